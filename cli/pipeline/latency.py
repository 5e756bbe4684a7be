"""`horolog pipeline latency`: measures latencies of messages, as figures and as a page."""

from pathlib import Path
from typing import Annotated, Final

import typer

from ...client.cluster.servers import Servers
from ...pipeline.jobs.latency import Latencies, LatencyReport, latency_report
from ...pipeline.jobs.latency_page import (
    NoMatplotlib,
    check_matplotlib,
    report_html,
    report_png,
    report_svg,
)
from ...pipeline.jobs.ranges import plan_by_append_time
from ..errors import CommandFailed, WrongUsage, note
from ..options import DEFAULT_SERVER, Json, Server, check_texts
from ..output import emit, emit_object, json_line, json_time, shown_span, shown_time, table
from .shown import From, To, length_ms, refusals, show_plan, times_between
from .spark import DEFAULT_MASTER, Conf, Master, spark_session

_PICTURES: Final = (".svg", ".png")


def latency(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", help="Names of topics.", callback=check_texts),
    ],
    start: From = None,
    end: To = None,
    by: Annotated[str, typer.Option(metavar="LENGTH", help="Length of the windows.")] = "1m",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File for a page (.html), or for a picture of one topic (.svg, .png).",
        ),
    ] = None,
    created_in: Annotated[
        str | None,
        typer.Option(
            "--created-in",
            metavar="HEADER",
            help="Header with the create time in epoch milliseconds, for a LogAppendTime "
            "topic, whose message times are append times.",
        ),
    ] = None,
    windows: Annotated[bool, typer.Option("--windows", help="Also print each window.")] = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Measure append time less create time, by topic, partition and minute of append time.

    The largest latency is the MaxLatencyOfCluster, by which a failover steps back. A message that
    was appended before it was created counts as 0 and as skewed: a clock is wrong.
    """
    from ..security.settings import for_workers

    server = for_workers(server)
    window_ms = length_ms("--by", by)
    if out is not None:
        _check_out(out, len(topics))
    _check_times(server, created_in)
    names = list(dict.fromkeys(topics))
    from_ms, to_ms = times_between(start, end)
    with refusals():
        own = created_in is not None
        plans = [
            plan_by_append_time(server, topic, from_ms, to_ms, own_times=own) for topic in names
        ]
    for plan in plans:
        show_plan(plan, as_json)
    if not any(plan.rows for plan in plans):
        raise CommandFailed("no message was appended in these times")
    with spark_session(master, conf) as spark, refusals():
        report = latency_report(spark, plans, window_ms, created_in=created_in)
    _show(report, windows, as_json)
    if out is not None:
        write_report(out, report)
    _check(report, sum(plan.rows for plan in plans))


def _check_out(out: Path, topics: int) -> None:
    """Raise an error for an --out file that could not be written at the end."""
    if out.suffix not in (".html", *_PICTURES) or not out.parent.is_dir():
        raise WrongUsage(
            f"--out: {out} is not a .html, .svg or .png file in a folder that is there"
        )
    if out.suffix in _PICTURES and topics > 1:
        raise WrongUsage(f"--out: a {out.suffix} file is the picture of one topic; .html has all")
    if out.suffix == ".png":
        try:
            check_matplotlib()
        except NoMatplotlib as error:
            raise CommandFailed(f"--out: {error}") from None


def _check_times(server: Servers, created_in: str | None) -> None:
    """Raise CommandFailed for a Kafka cluster, which keeps one time per message, without
    --created-in."""
    if created_in is None and server.kafka:
        raise CommandFailed(
            "a Kafka cluster keeps one time of each message, and a latency takes two: let "
            "producers put the create time into a header, the topic have "
            "message.timestamp.type=LogAppendTime, and name the header by --created-in"
        )


def write_report(out: Path, report: LatencyReport) -> None:
    """Write the page of all topics (.html), or the picture of the first topic (.svg, .png)."""
    if out.suffix == ".png":
        out.write_bytes(report_png(report, report.topics[0]))
    elif out.suffix == ".svg":
        out.write_text(report_svg(report, report.topics[0]), "utf-8")
    else:
        out.write_text(report_html(report), "utf-8")


def _check(report: LatencyReport, rows: int) -> None:
    if report.unknown:
        note(f"of {report.unknown} messages not both times are known; they are left out")
    if not report.measured:
        raise CommandFailed("of no message both times are known")
    if report.measured + report.unknown < rows:
        raise CommandFailed(
            f"{rows - report.measured - report.unknown} offsets of the plan had no message"
        )


def _show(report: LatencyReport, windows: bool, as_json: bool) -> None:
    rows = [
        row
        for topic in report.topics
        for of_window in ((False, True) if windows or as_json else (False,))
        for of_partition in (False, True)
        for row in report.select(topic, of_partition=of_partition, of_window=of_window)
    ]
    if as_json:
        emit(_as_json(row) for row in rows)
        emit_object(
            max_latency_ms=report.max_latency_ms,
            measured=report.measured,
            unknown=report.unknown,
            skewed=report.skewed,
        )
        return
    columns = ("topic", "partition", "window", "messages", "p50", "p95", "p99", "max", "skewed")
    chosen = columns if windows else (*columns[:2], *columns[3:])
    shown = [_as_row(row) for row in rows]
    if not windows:
        shown = [(*row[:2], *row[3:]) for row in shown]
    emit(table(chosen, shown, right=[name for name in chosen if name not in ("topic", "window")]))
    if report.max_latency_ms is not None:
        emit([f"largest latency of the cluster: {_span(report.max_latency_ms)}"])


def _as_row(row: Latencies) -> tuple[str, ...]:
    return (
        row.topic or "all",
        "all" if row.partition is None else str(row.partition),
        shown_time(row.start_ms),
        str(row.count),
        *(_span(value) for value in (row.p50_ms, row.p95_ms, row.p99_ms, row.max_ms)),
        str(row.skewed),
    )


def _span(ms: float) -> str:
    return shown_span(ms / 1000)


def _as_json(row: Latencies) -> str:
    return json_line(
        topic=row.topic,
        partition=row.partition,
        window_ms=json_time(row.start_ms),
        count=row.count,
        p50_ms=row.p50_ms,
        p95_ms=row.p95_ms,
        p99_ms=row.p99_ms,
        max_ms=row.max_ms,
        skewed=row.skewed,
    )
