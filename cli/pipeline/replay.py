"""`horolog pipeline replay`: a stretch of a topic's time as Parquet files."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ...pipeline.jobs.ranges import ReadPlan, plan_by_create_time
from ...pipeline.jobs.replay import Replayed, Target, replay_target
from ...pipeline.jobs.replay import replay as run_replay
from ..errors import CommandFailed
from ..options import DEFAULT_SERVER, Json, Server, TopicName
from ..output import emit, emit_object, plural
from .shown import From, To, length_ms, refusals, show_plan, times_between
from .spark import DEFAULT_MASTER, Conf, Master, of_this_machine, seen_by_spark, spark_session


def replay(
    topic: TopicName,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where the files go.")],
    start: From = None,
    end: To = None,
    max_out_of_order: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="No message comes later than this after a later one, so reading may end that "
            "much after --to. When not given it goes on to the end of the log.",
        ),
    ] = None,
    what_is_left: Annotated[
        bool,
        typer.Option(
            "--what-is-left",
            help="Go on although messages of these times may have been deleted already.",
        ),
    ] = False,
    gaps: Annotated[
        bool,
        typer.Option("--gaps", help="Take it that the log has offsets without messages."),
    ] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Print what would be read, and end.")
    ] = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Write the messages whose times are in [--from, --to) as Parquet, by date and hour.

    Late ones are among them. Times that are whole hours replace these hours, so that doing it
    again gives the same; other times have a folder of their own (run=...), which is replaced.
    Exit code 1 when messages are missing, or when the files do not hold what was read.
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
    _show(done, target, as_json)
    _check(done, target, gaps)


def _check_whole(plan: ReadPlan, what_is_left: bool) -> None:
    if what_is_left or not plan.cut_off:
        return
    first = plan.cut_off[0]
    raise CommandFailed(
        f"{plan.topic}-{first.partition} begins at offset {first.log_start_offset} by now, so "
        "messages of these times may be deleted already, and what was written of them before would "
        "be replaced by a part; --what-is-left goes on all the same"
    )


def _show(done: Replayed, target: Target, as_json: bool) -> None:
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


def _check(done: Replayed, target: Target, gaps: bool) -> None:
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
