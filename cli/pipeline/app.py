"""The commands of `horolog pipeline`. Defines those without a module of their own: `replay`, `lag`,
`watch`, and `doctor`, `env` and `package`, which are about this machine. Only commands that run
Spark import it."""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from ...pipeline.java import NoJava
from ...pipeline.jobs.lag import TimeLag, lag_by_time
from ...pipeline.jobs.machine import Check, Level, checks, spark_environment, write_package
from ...pipeline.jobs.ranges import ReadPlan, plan_by_create_time
from ...pipeline.jobs.replay import Replayed, Target, replay_target
from ...pipeline.jobs.replay import replay as run_replay
from ...pipeline.jobs.watch import Watch, start_watch
from ...pipeline.spark_types import DataFrame
from ..errors import CommandFailed, WrongUsage, note
from ..options import DEFAULT_SERVER, Json, Server, TopicName, check_texts, group
from ..output import (
    AsIs,
    emit,
    emit_object,
    json_line,
    json_time,
    plural,
    shown_number,
    shown_span,
    shown_time,
    table,
)
from .bootstrap import bootstrap
from .failover import failover
from .latency import latency
from .shown import From, To, length_ms, refusals, show_plan, times_between
from .spark import (
    DEFAULT_MASTER,
    Conf,
    Master,
    ask_in_thread,
    of_this_machine,
    seen_by_spark,
    spark_session,
)

pipeline = group("Jobs between topics, files and clusters.")


_MaxOutOfOrder = Annotated[
    str | None,
    typer.Option(
        "--max-out-of-order",
        metavar="LENGTH",
        help="How late a message can arrive. Reading then ends this long after --to. By default it "
        "goes on to the end of the log.",
    ),
]
_WhatIsLeft = Annotated[
    bool,
    typer.Option(
        "--what-is-left", help="Go on even if messages of these times may have been deleted."
    ),
]
_Gaps = Annotated[bool, typer.Option("--gaps", help="Accept offsets without messages in the log.")]
_PlanOnly = Annotated[bool, typer.Option("--plan", help="Print what would be read, and exit.")]


def replay(
    topic: TopicName,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Folder for the files.")],
    start: From = None,
    end: To = None,
    max_out_of_order: _MaxOutOfOrder = None,
    what_is_left: _WhatIsLeft = False,
    gaps: _Gaps = False,
    plan_only: _PlanOnly = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Write the messages whose times are in [--from, --to) as Parquet, by date and hour.

    Late messages are included. If both times are whole hours, the run replaces the folders of these
    hours, so that a second run gives the same files. Other times get their own folder (run=...),
    which a second run replaces. Exit code 1 if messages are missing, or if the files do not hold
    what was read.
    """
    from ..security.settings import for_workers

    server = for_workers(server)
    slack_ms = (
        None if max_out_of_order is None else length_ms("--max-out-of-order", max_out_of_order)
    )
    from_ms, to_ms = times_between(start, end)
    with refusals():
        plan = plan_by_create_time(
            server,
            topic,
            from_ms,
            to_ms,
            max_out_of_order_ms=slack_ms,
        )
        target = replay_target(out, plan)
    show_plan(plan, as_json)
    _check_whole(plan, what_is_left)
    if plan_only:
        return
    if plan.rows == 0 and of_this_machine(out, master) and not Path(target.path).exists():
        done = Replayed(0, 0, 0, 0, 0, 0)
    else:
        with spark_session(master, conf) as spark:
            there = replace(target, path=seen_by_spark(target.path, master))
            done = run_replay(spark, plan, there)
    _show_replay(done, target, as_json)
    _check_replay(done, target, gaps)


def _check_whole(plan: ReadPlan, what_is_left: bool) -> None:
    if what_is_left or not plan.cut_off:
        return
    first = plan.cut_off[0]
    raise CommandFailed(
        f"{plan.topic}-{first.partition} begins at offset {first.log_start_offset} by now, so "
        "messages of these times may be deleted already, and what was written of them before would "
        "be replaced by a part; --what-is-left goes on all the same"
    )


def _show_replay(done: Replayed, target: Target, as_json: bool) -> None:
    if as_json:
        emit_object(
            done="replay",
            path=target.path,
            scanned=done.scanned,
            rows=done.kept,
            stored=done.stored,
            hours=done.hours,
            without_time=done.without_time,
            missing=done.missing,
        )
        return
    emit(
        [
            f"{done.kept} of {done.scanned} messages are of these times: in {target.path}, "
            f"{done.hours} {plural(done.hours, 'hour')}"
        ]
    )


def _check_replay(done: Replayed, target: Target, gaps: bool) -> None:
    if not done.exact:
        raise CommandFailed(
            f"{done.kept} messages were written, and {target.path} has {done.stored} of these "
            "times: other replays have left some there that the log does not have"
        )
    if done.missing and not gaps:
        raise CommandFailed(
            f"{done.missing} offsets of the plan had no message; --gaps takes that as usual, as it "
            "is in a log that was compacted or copied"
        )


pipeline.command()(replay)
pipeline.command()(latency)
pipeline.command()(bootstrap)
pipeline.command()(failover)


def lag(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Names of positions; by default all.",
            callback=check_texts,
        ),
    ] = None,
    at_most: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="Exit with 1 if the lag of a reader is larger: 30s, 5m, 1h30m.",
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Say how far readers are behind, in messages and by time.

    "behind" is how long the first unread message has been waiting; a ~ marks values computed from
    create times. "read until" and "newest" are the create times of the last message read and of
    the newest message stored.
    """
    limit_ms = None if at_most is None else length_ms("--at-most", at_most)
    rows = lag_by_time(server, names or ())
    missing = sorted(set(names or ()) - {row.name for row in rows})
    if as_json:
        emit(_as_json(row) for row in rows)
    elif rows:
        _show(rows)
    elif not names:
        emit(["no positions are stored"])
    if missing:
        raise CommandFailed(f"no position is stored under {', '.join(missing)}")
    if limit_ms is not None:
        _check(rows, limit_ms)


def _check(rows: Sequence[TimeLag], limit_ms: int) -> None:
    late = [row for row in rows if row.behind_s is None or row.behind_s * 1000 > limit_ms]
    for row in late:
        behind = "for a time not known" if row.behind_s is None else shown_span(row.behind_s)
        note(f"{row.name} is behind in {row.topic}-{row.partition}: {behind}")
    if late:
        raise typer.Exit(1)


def _show(rows: Sequence[TimeLag]) -> None:
    columns = (
        *("name", "topic", "partition", "position", "end", "messages", "behind", "caught up in"),
        *("read until", "newest"),
    )
    emit(table(columns, [_as_row(row) for row in rows], right=columns[2:8]))


def _as_row(row: TimeLag) -> tuple[str, ...]:
    behind = shown_span(row.behind_s)
    return (
        row.name,
        row.topic,
        str(row.partition),
        str(row.position),
        str(row.end_offset),
        shown_number(row.messages),
        f"~{behind}" if row.estimated else behind,
        shown_span(row.catch_up_s),
        shown_time(row.read_until_ms),
        shown_time(row.newest_ms),
    )


def _as_json(row: TimeLag) -> str:
    return json_line(
        name=row.name,
        topic=row.topic,
        partition=row.partition,
        offset=row.position,
        end=row.end_offset,
        lag=row.messages,
        lag_s=row.behind_s,
        estimated=row.estimated,
        catch_up_s=row.catch_up_s,
        read_until_ms=json_time(row.read_until_ms),
        newest_ms=json_time(row.newest_ms),
    )


pipeline.command()(lag)


_Window = Annotated[str, typer.Option("--window", metavar="LENGTH", help="Length of the windows.")]
_Late = Annotated[
    str,
    typer.Option(
        "--late",
        metavar="LENGTH",
        help="How late a message may be, behind the latest create time, and still count.",
    ),
]
_By = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="SQL",
        help="A further expression to group by, such as CAST(key AS STRING).",
    ),
]
_Identity = Annotated[
    str | None,
    typer.Option(
        "--identity",
        metavar="SQL",
        help="Expression that is equal for copies of a message; by default key, time and value.",
    ),
]
_Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="FOLDER",
        help="Folder for the progress; a later run continues from it.",
    ),
]
_FromNow = Annotated[
    bool,
    typer.Option(
        "--new", help="Count only messages from now on, without those that are stored already."
    ),
]
_AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="End when all stored messages are counted.")
]
_Every = Annotated[str, typer.Option("--every", metavar="LENGTH", help="Time between batches.")]


def watch(
    topic: TopicName,
    window: _Window = "1m",
    late: _Late = "5m",
    by: _By = None,
    identity: _Identity = None,
    checkpoint: _Checkpoint = None,
    from_now: _FromNow = False,
    available_now: _AvailableNow = False,
    every: _Every = "1s",
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Count messages by windows of their create time, until Ctrl-C.

    Prints a line for a window whenever its count changes; the last line of a window is the valid
    one. Copies of a message count once. Messages that come later than --late do not count, nor do
    messages from more than five minutes in the future.
    """
    from ..security.settings import for_workers

    server = for_workers(server)
    asked = Watch(
        server=server,
        topic=topic,
        window=f"{length_ms('--window', window, least=1)} milliseconds",
        late=f"{length_ms('--late', late, least=1)} milliseconds",
        identity=identity,
        by=by,
        checkpoint=None if checkpoint is None else seen_by_spark(checkpoint, master),
        available_now=available_now,
        trigger=f"{length_ms('--every', every)} milliseconds",
        start="latest" if from_now else "earliest",
    )
    plan = plan_by_create_time(server, topic, None, None)
    if from_now:
        plan = replace(
            plan, ranges=tuple(replace(one, start_offset=one.end_offset) for one in plan.ranges)
        )
    if checkpoint is not None:
        note(f"going on where {checkpoint} says; if it says nothing, this is read:")
    show_plan(plan, as_json)
    with spark_session(master, conf) as spark, refusals():
        query = start_watch(spark, asked, _printer(as_json))
        ask_in_thread(query.awaitTermination, query.stop)


def _printer(as_json: bool) -> Callable[[DataFrame, int], None]:
    def show(windows: DataFrame, batch: int) -> None:
        rows = windows.selectExpr(
            "unix_millis(start) start", "unix_millis(end) end", "by", "count"
        ).collect()
        for row in sorted(rows, key=lambda one: (one["start"], one["by"] or "")):
            if as_json:
                fields = {"start_ms": row["start"], "end_ms": row["end"], "by": row["by"]}
                emit_object({**fields, "count": row["count"], "batch": batch})
            else:
                by = "" if row["by"] is None else f"  {row['by']}"
                emit([f"{shown_time(row['start'])}  {row['count']:>9}{by}"])

    return show


pipeline.command()(watch)


def doctor(
    start: Annotated[
        bool, typer.Option("--start", help="Also start Spark, and run a small task on a worker.")
    ] = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Look for what keeps jobs from running, and say what to do about it.

    Checks Java, Python, packages, whether Spark's workers can import this package, and the broker.
    Exit code 1 if there is a problem; warnings leave it at 0.
    """
    found = list(checks(server, os.environ))
    if start and not any(one.level is Level.PROBLEM for one in found if one.name != "broker"):
        found += _started(master, conf)
    if as_json:
        emit(json_line(asdict(one)) for one in found)
    else:
        rows = [(one.name, one.level.value, one.found) for one in found]
        emit(table(("check", "", "found"), rows))
        emit(f"To do: {one.fix}" for one in found if one.fix)
    if any(one.level is Level.PROBLEM for one in found):
        raise typer.Exit(1)


def env(as_json: Json = False) -> None:
    """Print the variables that spark-submit needs: eval "$(horolog pipeline env)"."""
    try:
        variables = spark_environment(os.environ)
    except NoJava as error:
        raise CommandFailed(str(error)) from None
    if as_json:
        emit_object(variables)
    else:
        emit(AsIs(f"export {name}={shlex.quote(value)}") for name, value in variables.items())


def package(
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to write, such as horolog.zip.")
    ],
) -> None:
    """Write this package as a file that spark-submit sends to workers without it: --py-files FILE.

    The packages that it needs (pyarrow and others) must be installed on the workers. It runs as
    plain Python: jobs that read small messages take two to three times as long as with Horolog
    installed.
    """
    if target.suffix != ".zip":
        raise WrongUsage(f"{target}: Spark takes a package from a .zip file")
    try:
        write_package(target)
    except OSError as error:
        raise CommandFailed(f"{target} cannot be written: {error.strerror or error}") from None
    emit([f"wrote {target}"])


def _started(master: str, conf: list[str] | None) -> Iterator[Check]:
    try:
        with spark_session(master, conf) as spark:
            (name,) = spark.sparkContext.parallelize([0], 1).map(_imported).collect()
            yield Check("spark", Level.GOOD, f"{spark.version} ran a task that imported {name}")
    except CommandFailed as error:
        yield Check("spark", Level.PROBLEM, str(error))


def _imported(_: int) -> str:
    """Import the data source in a worker, and return its module's name."""
    from ...pipeline import source

    return source.__name__


pipeline.command()(doctor)
pipeline.command()(env)
pipeline.command()(package)
