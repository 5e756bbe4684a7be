"""`horolog topic`: create, list, describe, alter, delete."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ..client.administer.admin import Admin
from ..client.cluster.servers import Servers
from ..client.results import TopicDescription
from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from .completion import complete_topic
from .errors import WrongUsage
from .options import DEFAULT_SERVER, INT32_MAX, Json, Server, check_text, name_values
from .output import NOTHING, emit, json_line, shown_size, table

topics = typer.Typer(
    help="Create, list, describe, change and delete topics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

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

    async def run() -> None:
        async with Admin(server) as admin:
            await admin.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor or -1,
                settings=given,
            )

    asyncio.run(run())
    text = f"created topic {name} with {_count(partitions, 'partition')}"
    emit([json_line({"topic": name, "partitions": partitions}) if as_json else text])


@topics.command("list")
def list_(server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """List the topics."""

    async def run() -> dict[str, int]:
        async with Admin(server) as admin:
            return await admin.list_topics()

    found = asyncio.run(run())
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

    Of each setting: where it comes from, the topic, the broker or the default.
    """
    description, logs = asyncio.run(_describe(server, name))
    emit([_as_json(description, logs)] if as_json else _as_text(description, logs))


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

    The other settings stay. A change holds from the next append or maintenance pass on. Messages
    stay where they are; with more partitions, those with a key may go to another one from then on.
    """
    changes: dict[str, str | None] = dict(name_values(settings or []))
    for unwanted in unset or []:
        if unwanted in changes:
            raise WrongUsage(f"--unset {unwanted}: it is in --set too")
        changes[unwanted] = None
    if not changes and partitions is None:
        raise WrongUsage("give at least one --set NAME=VALUE, --unset NAME or --partitions N")
    asyncio.run(_alter(server, name, changes, partitions))
    if as_json:
        count = {} if partitions is None else {"partitions": partitions}
        emit([json_line({"topic": name, **count, "settings": changes})])
    else:
        said = [] if partitions is None else [_count(partitions, "partition")]
        said += [
            f"{setting} unset" if value is None else f"{setting} = {value}"
            for setting, value in changes.items()
        ]
        emit([f"altered topic {name}: {', '.join(said)}"])


async def _alter(
    server: Servers, name: str, changes: Mapping[str, str | None], partitions: int | None
) -> None:
    """All of it or nothing, as far as the broker can tell beforehand."""
    async with Admin(server) as admin:
        if partitions is not None:
            if changes:
                await admin.alter_topic(name, changes, validate_only=True)
            await admin.create_partitions(name, partitions)
        if changes:
            await admin.alter_topic(name, changes)


@topics.command()
def delete(name: Existing, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Delete a topic and its messages."""

    async def run() -> None:
        async with Admin(server) as admin:
            await admin.delete_topic(name)

    asyncio.run(run())
    emit([json_line({"topic": name}) if as_json else f"deleted topic {name}"])


@dataclass(frozen=True, slots=True)
class _Log:
    """A partition's log; the size is None where it is not told."""

    partition: int
    start_offset: int
    end_offset: int
    high_watermark: int
    size_bytes: int | None = None
    segments: int | None = None


Described = tuple[TopicDescription, list[_Log]]


def _describe(server: Servers, name: str) -> Coroutine[Any, Any, Described]:
    async def run() -> Described:
        async with Admin(server) as admin:
            description = await admin.describe_topic(name)
            log = _log_in_cluster if server.kafka else _log
            return description, [
                await log(admin, name, partition) for partition in range(description.partitions)
            ]

    return run()


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
    """What Kafka's protocol tells: offsets, and not what the files take."""
    start, end = await admin.list_offsets(name, partition, [EARLIEST, LATEST])
    end_offset = end.offset or 0
    return _Log(partition, start.offset or 0, end_offset, end_offset)


def _as_json(description: TopicDescription, logs: list[_Log]) -> str:
    return json_line(
        {
            "topic": description.name,
            "topic_id": description.topic_id,
            "partitions": [
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
            "settings": [
                {"name": one.name, "value": one.value, "source": one.source}
                for one in description.settings
            ],
        }
    )


def _as_text(description: TopicDescription, logs: list[_Log]) -> list[str]:
    columns = ("partition", "first offset", "next offset", "readable to", "size", "segments")
    rows = [
        (
            str(log.partition),
            str(log.start_offset),
            str(log.end_offset),
            str(log.high_watermark),
            NOTHING if log.size_bytes is None else shown_size(log.size_bytes),
            NOTHING if log.segments is None else str(log.segments),
        )
        for log in logs
    ]
    settings = [(one.name, one.value or "", one.source) for one in description.settings]
    return [
        f"topic {description.name}: {_count(description.partitions, 'partition')}",
        "",
        *table(columns, rows, right=columns),
        "",
        *table(("setting", "value", "from"), settings),
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
