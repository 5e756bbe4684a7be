"""`horolog pipeline failover`: finds where a reader goes on in another cluster, and checks whether
it misses messages."""

from dataclasses import asdict
from typing import Annotated

import typer

from ...client.cluster.servers import Servers
from ...pipeline.jobs.failover import (
    FailoverCheck,
    FailoverPlan,
    failover_check,
    failover_plan,
    failover_plan_at,
    part_before,
    part_from,
)
from ...pipeline.jobs.ranges import ReadPlan, plan_by_create_time
from ..errors import CommandFailed, WrongUsage
from ..options import DEFAULT_SERVER, Json, Server, TopicName, check_address
from ..output import emit, emit_object, json_line, json_time, shown_span, shown_time, table
from .shown import length_ms, refusals, time_ms
from .spark import DEFAULT_MASTER, Conf, Master, spark_session

MaxLatency = Annotated[
    str,
    typer.Option(
        metavar="LENGTH",
        help="The longest time from create to append in the old cluster (30s, 5m): the result "
        "of `horolog pipeline latency`, or the maximum of horolog_max_latency_seconds.",
    ),
]
OldServer = Annotated[
    str | None,
    typer.Option("--from-server", metavar="HOST:PORT", help="The old cluster, with --name."),
]
OldProfile = Annotated[
    str | None,
    typer.Option(
        "--from-profile",
        metavar="NAME",
        help="Profile with the login for the old cluster.",
    ),
]
LastRead = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="If the old cluster is gone, instead of --name and --from-server: the create "
        "time of the last message read in it, in the partition where that time is earliest.",
    ),
]
SamePartitions = Annotated[
    bool,
    typer.Option(
        "--same-partitions",
        help="Use if each message has the same partition number in both clusters.",
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Compare all messages of both clusters with Spark; exit with 1 if the plan "
        "misses a message.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="With --check: compare only messages created at this time or later."
    ),
]
Identity = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="With --check: expression that identifies a message; by default key, time and value.",
    ),
]


def failover(
    topic: TopicName,
    max_latency: MaxLatency,
    name: Annotated[
        str | None, typer.Option(help="Name, or consumer group, of the reader's positions.")
    ] = None,
    old_server: OldServer = None,
    old_profile: OldProfile = None,
    last_read: LastRead = None,
    same_partitions: SamePartitions = False,
    check: Check = False,
    since: Since = None,
    identity: Identity = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Say where a reader goes on in the cluster --server, so that it misses nothing.

    Some messages come twice. For a Spark query, use the offsets printed last as its
    startingOffsets, with a new checkpoint.
    """
    latency_ms = length_ms("--max-latency", max_latency)
    if (last_read is None) == (name is None) or (name is None) != (old_server is None):
        raise WrongUsage("give --name and --from-server, or --last-read alone")
    _refuse_idle_options(
        by_time=name is None,
        check=check,
        of_old_cluster=old_profile is not None or same_partitions,
        of_check=since is not None or identity is not None,
    )
    from ..security.settings import for_workers, with_profile

    server = for_workers(server)
    old = None
    if old_server is not None:
        old = with_profile(check_address(old_server, "--from-server"), old_profile)
    with refusals():
        if name is not None and old is not None:
            plan = failover_plan(
                old, server, topic, name, latency_ms, same_partitions=same_partitions
            )
        else:
            plan = failover_plan_at(
                server, topic, time_ms("--last-read", last_read) or 0, latency_ms
            )
    if as_json:
        emit([_as_json(plan)])
    else:
        _show(plan)
    if check:
        assert old is not None
        sides = _sides(plan, for_workers(old, "OLD_"), time_ms("--since", since))
        with spark_session(master, conf) as spark, refusals():
            found = failover_check(spark, *sides, identity)
        _show_check(found, as_json)


def _refuse_idle_options(
    *, by_time: bool, check: bool, of_old_cluster: bool, of_check: bool
) -> None:
    """Raise WrongUsage for options that would be ignored: without an old cluster, or without
    --check."""
    if by_time and check:
        raise WrongUsage("--check compares with the old cluster: give --name and --from-server")
    if by_time and of_old_cluster:
        raise WrongUsage(
            "--from-profile and --same-partitions are about the old cluster: give --name and "
            "--from-server, or leave them out"
        )
    if of_check and not check:
        raise WrongUsage("--since and --identity are for --check")


def _sides(
    plan: FailoverPlan, old_server: Servers, since_ms: int | None
) -> tuple[ReadPlan, ReadPlan, ReadPlan]:
    """Return the messages read in the old cluster, and those of the new cluster before and after
    the offsets of resumption."""
    old = plan_by_create_time(old_server, plan.topic, since_ms, None)
    if old.cut_off:
        raise CommandFailed(
            f"the old cluster has deleted messages of {plan.topic} already, which would count as "
            "missed: give --since a time from which on both have all"
        )
    new = plan_by_create_time(plan.new_server, plan.topic, since_ms, None)
    resume = {one.partition: one.offset for one in plan.resume}
    read = {one.partition: one.position for one in plan.consumed}
    return part_before(old, read), part_before(new, resume), part_from(new, resume)


def _show_check(found: FailoverCheck, as_json: bool) -> None:
    if as_json:
        emit_object({"done": "check", **asdict(found)})
    else:
        emit(
            [
                f"compared: {found.consumed} read in the old cluster; in the new one "
                f"{found.skipped} before the offsets and {found.ahead} from there on",
                f"{found.missed} missed, {found.twice} come twice",
            ]
        )
    if found.missed:
        raise CommandFailed(
            f"{found.missed} messages would be missed: is --max-latency the largest there is?"
        )


def _show(plan: FailoverPlan) -> None:
    if plan.consumed:
        emit([f"read of {plan.topic} in the old cluster:"])
        _show_consumed(plan)
    back = shown_span(plan.max_latency_ms / 1000)
    emit([f"going on in {plan.new_server}, {back} before the last message read:"])
    _show_resume(plan)
    emit([f"startingOffsets: {plan.starting_offsets()}"])


def _show_consumed(plan: FailoverPlan) -> None:
    columns = ("partition", "position", "last read")
    rows = [
        (str(one.partition), str(one.position), shown_time(one.last_ms)) for one in plan.consumed
    ]
    emit(table(columns, rows, right=columns[:2]))


def _show_resume(plan: FailoverPlan) -> None:
    columns = ("partition", "from", "first offset", "end offset", "rows", "first time")
    rows = [
        (
            str(one.partition),
            "the beginning" if one.from_ms is None else shown_time(one.from_ms),
            str(one.offset),
            str(one.end_offset),
            str(one.rows),
            shown_time(one.timestamp_ms),
        )
        for one in plan.resume
    ]
    emit(table(columns, rows, right=("partition", "first offset", "end offset", "rows")))


def _as_json(plan: FailoverPlan) -> str:
    return json_line(
        topic=plan.topic,
        max_latency_ms=plan.max_latency_ms,
        consumed=[
            {
                "partition": one.partition,
                "offset": one.position,
                "last_read_ms": json_time(one.last_ms),
            }
            for one in plan.consumed
        ],
        resume=[
            {
                "partition": one.partition,
                "from_ms": json_time(one.from_ms),
                "offset": one.offset,
                "timestamp_ms": json_time(one.timestamp_ms),
                "end": one.end_offset,
            }
            for one in plan.resume
        ],
        starting_offsets=plan.starting_offsets(),
    )
