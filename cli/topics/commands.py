"""`horolog topic`: create, list, describe, alter, delete, trim."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Final

import typer

from ...client.administer.admin import Admin
from ...client.cluster.servers import Servers
from ...client.results import AfterEnd, Found, NoTimestamps, TopicDescription
from ...clock import SystemClock
from ...config.topic import shown_value
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ...protocol.errors import HorologError, OffsetOutOfRange
from ...values import value_class
from ..broker_requests import ask, partitions_of
from ..errors import CommandFailed, WrongUsage, is_terminal, note
from ..options import (
    DEFAULT_SERVER,
    INT32_MAX,
    AnyUnit,
    AtEnd,
    AtOffset,
    AtTime,
    Json,
    Partition,
    Position,
    Server,
    TopicName,
    check_text,
    complete_topic,
    group,
    parse_position,
)
from ..output import (
    NOTHING,
    confirm,
    emit,
    emit_object,
    json_line,
    json_time,
    not_cleaned_yet,
    plural,
    shown_number,
    shown_size,
    shown_time,
    table,
)
from .extent import (
    PartitionExtent,
    TopicExtent,
    extent_of,
    for_each,
    partition_extent,
    time_of_offset,
    topic_extents,
    whole_topic,
)
from .settings import Settings, complete_setting_name, given_settings

_MIN_INSYNC: Final = "min.insync.replicas"

topics = group("Create, list, describe, change and delete topics.")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the topic.", callback=check_text)
]
Existing = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the topic.",
        autocompletion=complete_topic,
        callback=check_text,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@topics.command()
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option(min=1, max=INT32_MAX, metavar="N", help="Partitions.")
    ] = 1,
    settings: Settings = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**15 - 1,
            metavar="N",
            help="Copies of each partition, in a Kafka cluster. As many as the cluster's default "
            "says when not given.",
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Create a topic."""
    given = given_settings(settings)

    async def make(admin: Admin) -> str:
        await admin.create_topic(
            name,
            partitions=partitions,
            replication_factor=replication_factor or -1,
            settings=given,
        )
        return await _too_few_in_sync(admin, name, given)

    _warn(ask(Admin, server, make))
    text = f"created topic {name} with {partitions} {plural(partitions, 'partition')}"
    emit([json_line({"topic": name, "partitions": partitions}) if as_json else text])


@topics.command("list")
def list_(server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """List the topics, with what each has stored and for how long.

    The first time is the smallest of all messages, the last time the largest. A Kafka cluster tells
    neither: the first time is then that of the first message in a log, and the last time is -. What
    the server does not tell, or the user may not know, is - (null with --json).
    """
    found = ask(
        partial(Admin, check_units=False), server, lambda admin: _listed(admin, kafka=server.kafka)
    )
    if as_json:
        emit(_listed_as_json(*each) for each in found)
    elif found:
        emit(table(_LIST_COLUMNS, [_listed_as_row(*each) for each in found], right=_LIST_RIGHT))
    else:
        emit(["no topics"])


_LIST_COLUMNS: Final = ("topic", "partitions", "messages", "size", "first", "last", "retention")
_LIST_RIGHT: Final = ("partitions", "messages", "size")
_RETENTION: Final = ("retention.ms", "retention.bytes", "cleanup.policy")

Listed = tuple[str, int, TopicExtent, Mapping[str, str]]
"""Name, partitions and extent of a topic, and its settings of `_RETENTION`; none if unknown."""


async def _listed(admin: Admin, *, kafka: bool) -> list[Listed]:
    counts = await admin.list_topics()
    extents = await topic_extents(admin, counts, kafka=kafka)
    described = await for_each(admin.describe_topic, counts)
    return [
        (name, count, extents[name], _retention(described[name])) for name, count in counts.items()
    ]


def _retention(description: TopicDescription | None) -> Mapping[str, str]:
    if description is None:
        return {}
    return {one.name: one.value or "" for one in description.settings if one.name in _RETENTION}


def _listed_as_json(
    name: str, partitions: int, extent: TopicExtent, settings: Mapping[str, str]
) -> str:
    return json_line(
        topic=name,
        partitions=partitions,
        messages=extent.messages,
        size_bytes=extent.size_bytes,
        first_ms=extent.first_ms,
        last_ms=extent.last_ms,
        retention_ms=_number(settings.get("retention.ms")),
        retention_bytes=_number(settings.get("retention.bytes")),
        cleanup_policy=settings.get("cleanup.policy"),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _listed_as_row(
    name: str, partitions: int, extent: TopicExtent, settings: Mapping[str, str]
) -> tuple[str, ...]:
    return (
        name,
        str(partitions),
        shown_number(extent.messages),
        shown_size(extent.size_bytes),
        shown_time(extent.first_ms),
        shown_time(extent.last_ms),
        _retention_as_text(settings),
    )


def _retention_as_text(settings: Mapping[str, str]) -> str:
    """Return `7d`, `7d, 1GiB`, `compact` or `no limit`."""
    if not settings:
        return NOTHING
    policies = settings.get("cleanup.policy", "delete").split(",")
    parts = [policy for policy in policies if policy != "delete"]
    if "delete" in policies:
        limits = [
            shown_value(name, text)
            for name in _RETENTION[:2]
            if (text := settings.get(name, "-1")) and int(text) >= 0
        ]
        parts += limits or ["no limit"]
    return ", ".join(parts)


@topics.command()
def describe(name: Existing, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Show a topic's partitions and settings.

    For each setting it says where the value comes from: the topic, the broker or the default.
    """
    description, logs = ask(
        Admin, server, lambda admin: _describe(admin, name, in_cluster=server.kafka)
    )
    # A server that is reached over Kafka's protocol may be Kafka, which cleans compacted topics.
    not_cleaned = None if server.kafka else _not_cleaned_yet(description)
    if as_json:
        emit([_as_json(description, logs, not_cleaned is not None)])
    else:
        emit(_as_text(description, logs, not_cleaned))


@topics.command()
def alter(
    name: Existing,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, max=INT32_MAX, metavar="N", help="How many it is to have; more than it has."
        ),
    ] = None,
    settings: Settings = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete_setting_name,
            help="A setting to give back; may be repeated.",
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Change settings of a topic, or give it more partitions.

    Other settings stay unchanged. A change applies from the next append or maintenance pass on.
    Stored messages stay in their partitions; with more partitions, new messages with the same key
    may go to another partition than before.
    """
    changes: dict[str, str | None] = dict(given_settings(settings))
    for unwanted in unset or []:
        if unwanted in changes:
            raise WrongUsage(f"--unset {unwanted}: it is in --set too")
        changes[unwanted] = None
    if not changes and partitions is None:
        raise WrongUsage("give at least one --set NAME=VALUE, --unset NAME or --partitions N")
    _warn(ask(Admin, server, lambda admin: _alter(admin, name, changes, partitions)))
    if as_json:
        count = {} if partitions is None else {"partitions": partitions}
        emit_object({"topic": name, **count, "settings": changes})
    else:
        said = [] if partitions is None else [f"{partitions} {plural(partitions, 'partition')}"]
        said += [
            f"{setting} unset" if value is None else f"{setting} = {value}"
            for setting, value in changes.items()
        ]
        emit([f"altered topic {name}: {', '.join(said)}"])


async def _alter(
    admin: Admin, name: str, changes: Mapping[str, str | None], partitions: int | None
) -> str:
    """Make all changes or none, as far as the broker can check in advance; return a warning."""
    if partitions is not None:
        if changes:
            await admin.alter_topic(name, changes, validate_only=True)
        await admin.create_partitions(name, partitions)
    if changes:
        await admin.alter_topic(name, changes)
    return await _too_few_in_sync(admin, name, changes)


async def _too_few_in_sync(admin: Admin, name: str, given: Mapping[str, str | None]) -> str:
    """Return a warning if the given min.insync.replicas is more than the brokers in sync; else an
    empty text."""
    wanted = int(given.get(_MIN_INSYNC) or 1)
    if wanted == 1:
        return ""
    try:
        topic = (await admin.describe_cluster([name])).topics.get(name)
    except HorologError:
        return ""  # the change itself was made; only the warning is missing
    if topic is None or topic.in_sync is None or topic.in_sync >= wanted:
        return ""
    there = f"{topic.in_sync} {plural(topic.in_sync, 'broker')} {_are(topic.in_sync)} in sync"
    return (
        f"{_MIN_INSYNC} of {name} is {wanted}, and {there}: messages with acks=all are refused "
        f"until there are {wanted}"
    )


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _warn(text: str) -> None:
    if text:
        note(text)


@topics.command()
def delete(
    name: Existing, yes: Yes = False, server: Server = DEFAULT_SERVER, as_json: Json = False
) -> None:
    """Delete a topic and its messages.

    Says how many messages go, and of which times. On a terminal it asks first; without one, and
    with --yes, it does not.
    """
    extent = ask(
        partial(Admin, check_units=False),
        server,
        lambda admin: extent_of(admin, name, kafka=server.kafka),
    )
    _confirm(yes, f"this deletes topic {whole_topic(name, extent)}")
    ask(Admin, server, lambda admin: admin.delete_topic(name))
    if as_json:
        emit_object(
            topic=name,
            messages=extent.messages,
            size_bytes=extent.size_bytes,
            first_ms=extent.first_ms,
            last_ms=extent.last_ms,
        )
    else:
        emit([f"deleted topic {whole_topic(name, extent)}"])


def _confirm(yes: bool, what: str) -> None:
    """Ask before something is deleted, if a person at a terminal can answer. Raises
    CommandFailed."""
    if yes or not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        return
    note(what)
    confirm("Do this?", "nothing was deleted")


def trim(
    name: TopicName,
    before: Annotated[
        str,
        typer.Option(
            metavar="POS",
            help="Keep this and what is behind it: a time (2016-11-14T17:24:32Z, @-1h, epoch "
            "milliseconds), offset:N, earliest, which keeps all, or latest, which keeps nothing.",
        ),
    ],
    partition: Partition = None,
    yes: Yes = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
    any_unit: AnyUnit = False,
) -> None:
    """Delete the oldest messages of a topic, for good.

    With a time, all messages before the first one, in offset order, with that time or a later one
    are deleted: no message with a later time is lost. Messages of earlier times behind that one
    stay, and their number is said. Says how many messages go, and the times of
    the first and the last of them. On a terminal it asks first; without one, and with --yes, it
    does not. Disk space is freed in whole segments, after file.delete.delay.ms.
    """
    target = parse_position(before, "--before", SystemClock().now_ms(), any_unit)
    plan = asyncio.run(_trim_plan(server, name, partition, target))
    gone = sum(one.messages for one in plan)
    if gone:
        first_ms = min((one.first_ms for one in plan if one.first_ms is not None), default=None)
        last_ms = max((one.last_ms for one in plan if one.last_ms is not None), default=None)
        _confirm(yes, f"this deletes {_first_and_last(gone, first_ms, last_ms)} of {name}")
    starts = asyncio.run(_carry_out(server, name, plan))
    _emit_trimmed(plan, starts, as_json=as_json)
    if isinstance(target, AtTime) and not server.kafka:
        for kept in asyncio.run(_kept_earlier(server, name, plan, target)):
            note(kept)


def _first_and_last(messages: int, first_ms: int | None, last_ms: int | None) -> str:
    """Return how many messages go, with the times of the first and the last one. Those between may
    have earlier or later times."""
    times = [
        f"{which} time {shown_time(time_ms)}"
        for which, time_ms in (("first", first_ms), ("last", last_ms))
        if time_ms is not None
    ]
    text = f"{messages:,} {plural(messages, 'message')}"
    return f"{text} ({', '.join(times)})" if times else text


async def _kept_earlier(
    server: Servers, name: str, trimmed: Sequence[PartitionExtent], before: AtTime
) -> list[str]:
    """Say of each trimmed partition how many earlier messages stay, if any, and why."""
    kept = []
    async with Admin(server, check_units=False) as admin:
        for one in trimmed:
            found = await admin.count_by_time(
                name, 0, before.timestamp_ms, partitions=[one.partition]
            )
            if not found.messages:
                continue
            (first,) = await admin.list_offsets(name, one.partition, [before.timestamp_ms])
            if first.offset is None:
                continue  # Appended since then.
            kept.append(
                f"{name}-{one.partition}: {found.messages:,} "
                f"{plural(found.messages, 'message')} of earlier times "
                f"{'stays' if found.messages == 1 else 'stay'} behind offset {first.offset}: a log "
                f"is trimmed from its start, and that message, of "
                f"{shown_time(first.timestamp_ms)}, is to be kept"
            )
    return kept


def _emit_trimmed(plan: Sequence[PartitionExtent], starts: Sequence[int], *, as_json: bool) -> None:
    if as_json:
        emit(_trimmed_as_json(*each) for each in zip(plan, starts, strict=True))
        return
    rows = [
        (
            str(one.partition),
            str(start),
            str(one.messages),
            shown_time(one.first_ms),
            shown_time(one.last_ms),
        )
        for one, start in zip(plan, starts, strict=True)
    ]
    columns = ("partition", "first offset", "deleted", "first time", "last time")
    emit(table(columns, rows, right=columns[:3]))


def _trimmed_as_json(step: PartitionExtent, log_start_offset: int) -> str:
    return json_line(
        partition=step.partition,
        log_start_offset=log_start_offset,
        messages=step.messages,
        first_ms=json_time(step.first_ms),
        last_ms=json_time(step.last_ms),
    )


async def _trim_plan(
    server: Servers, name: str, partition: int | None, before: Position
) -> list[PartitionExtent]:
    """Return for each partition the messages that go: `end` is the new log start."""
    async with Admin(server, check_units=False) as admin:
        partitions = await partitions_of(admin, name, partition)
        # All offsets are found before the first partition is trimmed, so that an error in a search
        # changes nothing.
        offsets = [await _offset(admin, name, number, before) for number in partitions]
        there = [await partition_extent(admin, name, number) for number in partitions]
    if isinstance(before, AtOffset):
        _check_offset(name, there, before.offset)
    return [
        await _leaving(server, name, one, offset)
        for one, offset in zip(there, offsets, strict=True)
    ]


def _check_offset(name: str, there: Sequence[PartitionExtent], offset: int) -> None:
    """Raise OffsetOutOfRange if a partition ends before the offset. None is trimmed then."""
    short = [one for one in there if one.end < offset]
    if short:
        ends = ", ".join(f"{name}-{one.partition} at offset {one.end}" for one in short[:5])
        more = f" and {len(short) - 5} more" if len(short) > 5 else ""
        raise OffsetOutOfRange(
            f"--before offset:{offset} is behind the end of {ends}{more}, so nothing was trimmed: "
            "give a lower offset, --partition N, or --before latest"
        )


async def _leaving(
    server: Servers, name: str, there: PartitionExtent, offset: int
) -> PartitionExtent:
    """Return the part of a partition that is below `offset`."""
    last_ms = None
    if there.start < offset <= there.end:
        last_ms = await time_of_offset(server, name, there.partition, offset - 1)
    first_ms = there.first_ms if there.start < offset else None
    return PartitionExtent(there.partition, there.start, offset, first_ms, last_ms)


async def _carry_out(server: Servers, name: str, plan: Sequence[PartitionExtent]) -> list[int]:
    """Trim the partitions; return their new log starts."""
    async with Admin(server) as admin:
        return [await admin.delete_records(name, one.partition, one.end) for one in plan]


async def _offset(admin: Admin, name: str, partition: int, before: Position) -> int:
    if isinstance(before, AtOffset):
        return before.offset
    if isinstance(before, AtEnd):
        sentinel = EARLIEST if before is AtEnd.EARLIEST else LATEST
        (found,) = await admin.list_offsets(name, partition, [sentinel])
        return found.offset or 0
    match await admin.find_offset(name, partition, timestamp_ms=before.timestamp_ms):
        case Found(offset, _):
            return offset
        case AfterEnd(end_offset):
            return end_offset
        case NoTimestamps():
            start, end = await admin.list_offsets(name, partition, [EARLIEST, LATEST])
            if start != end:
                raise CommandFailed(
                    f"{name}-{partition}: no message has a time, so none is known to be older; "
                    "trim by --before offset:N"
                )
            return end.offset or 0


topics.command()(trim)


@value_class
class _Log:
    """Offsets and size of a partition; size and segments are None if the server does not tell."""

    partition: int
    start_offset: int
    end_offset: int
    high_watermark: int
    size_bytes: int | None = None
    segments: int | None = None


async def _describe(
    admin: Admin, name: str, *, in_cluster: bool
) -> tuple[TopicDescription, list[_Log]]:
    description = await admin.describe_topic(name)
    log = _log_in_cluster if in_cluster else _log
    return description, [
        await log(admin, name, partition) for partition in range(description.partitions)
    ]


async def _log(admin: Admin, name: str, partition: int) -> _Log:
    log = await admin.describe_log(name, partition)
    return _Log(
        log.partition,
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        log.size_bytes,
        len(log.segments),
    )


async def _log_in_cluster(admin: Admin, name: str, partition: int) -> _Log:
    """Describe a partition over Kafka's protocol, which tells its offsets but not its size."""
    start, end = await admin.list_offsets(name, partition, [EARLIEST, LATEST])
    end_offset = end.offset or 0
    return _Log(partition, start.offset or 0, end_offset, end_offset)


def _as_json(description: TopicDescription, logs: list[_Log], not_cleaned: bool) -> str:
    return json_line(
        topic=description.name,
        topic_id=description.topic_id,
        not_cleaned_yet=not_cleaned,
        partitions=[
            {
                "partition": log.partition,
                "log_start_offset": log.start_offset,
                "log_end_offset": log.end_offset,
                "high_watermark": log.high_watermark,
                "size_bytes": log.size_bytes,
                "segments": log.segments,
            }
            for log in logs
        ],
        settings=[
            {"name": one.name, "value": one.value, "source": one.source}
            for one in description.settings
        ],
    )


def _not_cleaned_yet(description: TopicDescription) -> str | None:
    """Return the note about a compacted topic that Horolog does not clean; None for others."""
    values = {one.name: one.value for one in description.settings}
    policy = values.get("cleanup.policy") or "delete"
    return not_cleaned_yet(policy) if "compact" in policy.split(",") else None


def _as_text(description: TopicDescription, logs: list[_Log], not_cleaned: str | None) -> list[str]:
    columns = ("partition", "first offset", "next offset", "readable to", "size", "segments")
    rows = [
        (
            str(log.partition),
            str(log.start_offset),
            str(log.end_offset),
            str(log.high_watermark),
            shown_size(log.size_bytes),
            shown_number(log.segments),
        )
        for log in logs
    ]
    count = description.partitions
    settings = [
        (one.name, shown_value(one.name, one.value or ""), one.source)
        for one in description.settings
    ]
    return [
        f"topic {description.name}: {count} {plural(count, 'partition')}",
        *([] if not_cleaned is None else [not_cleaned]),
        "",
        *table(columns, rows, right=columns),
        "",
        *table(("setting", "value", "from"), settings),
    ]
