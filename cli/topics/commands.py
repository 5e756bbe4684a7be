"""`horolog topic`: create, list, describe, alter, delete, trim."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from ..client.administer.admin import Admin
from ..client.cluster.servers import Servers
from ..client.results import AfterEnd, Found, NoTimestamps, TopicDescription
from ..clock import SystemClock
from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from ..protocol.errors import HorologError
from ..times import INT64_MAX, TimeError, parse_time
from ..values import value_class
from .broker_requests import ask, partitions_of
from .errors import CommandFailed, WrongUsage, note
from .options import (
    DEFAULT_SERVER,
    INT32_MAX,
    AnyUnit,
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
    name_values,
    refused,
)
from .output import (
    emit,
    emit_object,
    json_line,
    not_cleaned_yet,
    plural,
    shown_number,
    shown_size,
    table,
)

_OFFSET: Final = "offset:"
_LATEST: Final = "latest"

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
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the topic; may be repeated."),
]


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
    given = name_values(settings or [])

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
    """List the topics."""
    found = ask(Admin, server, Admin.list_topics)
    if as_json:
        emit(
            json_line({"topic": name, "partitions": partitions})
            for name, partitions in found.items()
        )
    elif found:
        rows = [(name, str(partitions)) for name, partitions in found.items()]
        emit(table(("topic", "partitions"), rows, right=("partitions",)))
    else:
        emit(["no topics"])


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
        typer.Option(metavar="NAME", help="A setting to give back; may be repeated."),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Change settings of a topic, or give it more partitions.

    Other settings stay unchanged. A change applies from the next append or maintenance pass on.
    Stored messages stay in their partitions; with more partitions, new messages with the same key
    may go to another partition than before.
    """
    changes: dict[str, str | None] = dict(name_values(settings or []))
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
def delete(name: Existing, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Delete a topic and its messages."""
    ask(Admin, server, lambda admin: admin.delete_topic(name))
    emit([json_line({"topic": name}) if as_json else f"deleted topic {name}"])


def trim(
    name: TopicName,
    before: Annotated[
        str,
        typer.Option(
            metavar="POS",
            help="Keep this and what is behind it: a time (2016-11-14T17:24:32Z, @-1h, epoch "
            "milliseconds), offset:N, or latest, which keeps nothing.",
        ),
    ],
    partition: Partition = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
    any_unit: AnyUnit = False,
) -> None:
    """Delete the oldest messages of a topic, for good.

    With a time, all messages before the first one, in offset order, with that time or a later one
    are deleted: no message with a later time is lost. Disk space is freed in whole segments, after
    file.delete.delay.ms.
    """
    target = _target(before, any_unit)
    starts = asyncio.run(_trim(server, name, partition, target))
    if as_json:
        emit(json_line({"partition": at, "log_start_offset": start}) for at, start in starts)
        return
    rows = [(str(at), str(start)) for at, start in starts]
    columns = ("partition", "first offset")
    emit(table(columns, rows, right=columns))


def _target(text: str, any_unit: bool) -> Position | None:
    """Parse `--before`: the position from which messages are kept; None keeps nothing. Raises
    WrongUsage."""
    if text == _LATEST:
        return None
    digits = text.removeprefix(_OFFSET)
    if digits != text:
        if not digits.isascii() or not digits.isdigit() or int(digits[:20]) > INT64_MAX:
            raise WrongUsage(f"--before {text}: write offset:N with N from 0 to {INT64_MAX}")
        return AtOffset(int(digits))
    try:
        return AtTime(parse_time(text, SystemClock().now_ms(), any_unit))
    except TimeError as error:
        raise WrongUsage(f"--before: {refused(error)}; or offset:N, or latest") from None


async def _trim(
    server: Servers, name: str, partition: int | None, before: Position | None
) -> list[tuple[int, int]]:
    """Trim the partitions; return each with its new log start."""
    async with Admin(server, check_units=False) as admin:
        partitions = await partitions_of(admin, name, partition)
        # All offsets are found before the first partition is trimmed, so that an error in a search
        # changes nothing.
        offsets = [await _offset(admin, name, number, before) for number in partitions]
        return [
            (number, await admin.delete_records(name, number, offset))
            for number, offset in zip(partitions, offsets, strict=True)
        ]


async def _offset(admin: Admin, name: str, partition: int, before: Position | None) -> int:
    if isinstance(before, AtOffset):
        return before.offset
    if before is None:
        (end,) = await admin.list_offsets(name, partition, [LATEST])
        return end.offset or 0
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
    settings = [(one.name, one.value or "", one.source) for one in description.settings]
    return [
        f"topic {description.name}: {count} {plural(count, 'partition')}",
        *([] if not_cleaned is None else [not_cleaned]),
        "",
        *table(columns, rows, right=columns),
        "",
        *table(("setting", "value", "from"), settings),
    ]
