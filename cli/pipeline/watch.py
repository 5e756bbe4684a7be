"""`horolog pipeline watch`: a topic counted by windows of event time, as it grows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import typer

from ...pipeline.jobs.ranges import plan_by_create_time
from ...pipeline.jobs.watch import Watch, start_watch
from ...pipeline.spark_types import DataFrame
from ..errors import note
from ..options import DEFAULT_SERVER, Json, Server, TopicName
from ..output import emit, emit_object, shown_time
from .shown import length_ms, refusals, show_plan
from .spark import DEFAULT_MASTER, Conf, Master, ask_in_thread, seen_by_spark, spark_session


def watch(
    topic: TopicName,
    window: Annotated[str, typer.Option(metavar="LENGTH", help="Length of the windows.")] = "1m",
    late: Annotated[
        str,
        typer.Option(
            metavar="LENGTH", help="How far behind the latest create time messages still count."
        ),
    ] = "5m",
    by: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="What to count by too, such as CAST(key AS STRING)."),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(
            metavar="SQL", help="Equal for copies of a message; key, time and value if not given."
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Remember there where it was, and go on from it."),
    ] = None,
    from_now: Annotated[
        bool, typer.Option("--new", help="Only what comes from now on; else all there is too.")
    ] = False,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End when what is there is counted.")
    ] = False,
    every: Annotated[str, typer.Option(metavar="LENGTH", help="Time from batch to batch.")] = "1s",
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Count messages by windows of their create time, until Ctrl-C.

    Prints each window whenever its count has changed; the last line of a window counts. Copies of
    a message count once, and messages later than --late no more. Messages of more than five
    minutes in the future are left out.
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
