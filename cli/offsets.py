"""`horolog offsets`: finds the offset of a time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from ..client.administer.admin import Admin
from ..client.client import ReadFrom as ReadFromValue
from ..client.cluster.servers import Servers
from ..client.results import AfterEnd, Found, NoTimestamps
from ..clock import SystemClock
from ..protocol.api.log.list_offsets import EARLIEST, LARGEST, LATEST
from .broker_requests import partitions_of
from .errors import WrongUsage
from .gone import Incompleteness, incompleteness, joined_by_topic
from .options import (
    DEFAULT_SERVER,
    AnyUnit,
    Json,
    Partition,
    ReadFrom,
    Server,
    TopicName,
    check_read_from,
    parse_moment,
)
from .output import NOTHING, emit, json_line, json_time, shown_time, table

_NAMED: Final = {"earliest": EARLIEST, "latest": LATEST, "largest": LARGEST}


class SearchedBy(StrEnum):
    """The times that a search by `--at` compares: the messages' own, or append times."""

    TIMESTAMP = "timestamp"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """Result of one `--at` in one partition."""

    partition: int
    at: str
    offset: int | None
    timestamp_ms: int | None
    why: str
    """Text that says why there is no offset."""
    missing: Sequence[Incompleteness] = ()
    """What the search may miss."""


def offsets(
    topic: TopicName,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POS",
            help="A time (2016-11-14T17:24:32Z, now, @-1h, epoch milliseconds), earliest (the "
            "first offset stored), latest (the next one to be written) or largest (the message "
            "with the largest time). May be repeated; earliest and latest when not given.",
        ),
    ] = None,
    by: Annotated[
        SearchedBy,
        typer.Option(
            help="Go by the messages' own times, or by when the broker appended them, where it "
            "knows that."
        ),
    ] = SearchedBy.TIMESTAMP,
    partition: Partition = None,
    read_from: ReadFrom = "leader",
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
    any_unit: AnyUnit = False,
) -> None:
    """Say which offset it was at a time.

    The offset is that of the first message, in offset order, with that time or a later one. If
    messages are out of order, messages after it may be older. Prints a line for each partition and
    each --at, in this order. With --by append the time in the line is the append time.
    """
    now_ms = SystemClock().now_ms()
    targets = [(text, _target(text, now_ms, any_unit)) for text in at or ("earliest", "latest")]
    if by is SearchedBy.APPEND and LARGEST in (target for _, target in targets):
        raise WrongUsage("--at largest goes by the messages' own times, not by append times")
    check_read_from(server, read_from)
    answers = asyncio.run(_ask(server, read_from, topic, partition, targets, by))
    if as_json:
        emit(_as_json(answer) for answer in answers)
    else:
        rows = [_as_row(answer) for answer in answers]
        emit(table(("partition", "at", "offset", "time"), rows, right=("partition", "offset")))
    for part in joined_by_topic(part for answer in answers for part in answer.missing):
        part.tell()


def _target(text: str, now_ms: int, any_unit: bool) -> int:
    if text in _NAMED:
        return _NAMED[text]
    return parse_moment(text, "--at", now_ms, any_unit, others="earliest, latest, largest")


async def _ask(
    server: Servers,
    read_from: ReadFromValue,
    topic: str,
    partition: int | None,
    targets: Sequence[tuple[str, int]],
    by: SearchedBy,
) -> list[OffsetAnswer]:
    async with Admin(server, check_units=False, read_from=read_from) as admin:
        return [
            answer
            for number in await partitions_of(admin, topic, partition)
            async for answer in _partition_answers(admin, server, topic, number, targets, by)
        ]


async def _partition_answers(
    admin: Admin,
    server: Servers,
    topic: str,
    partition: int,
    targets: Sequence[tuple[str, int]],
    by: SearchedBy,
) -> AsyncIterator[OffsetAnswer]:
    no_time = "no message has a time"
    if by is SearchedBy.APPEND:
        no_time = "of no message it is known when it was appended"
    for text, target in targets:
        if target < 0:
            (found,) = await admin.list_offsets(topic, partition, [target])
            yield OffsetAnswer(partition, text, found.offset, found.timestamp_ms, no_time)
            continue
        result = await admin.find_offset(topic, partition, timestamp_ms=target, by=by.value)
        missing = incompleteness(server, topic, target, result.complete_from_ms, result.removed)
        match result:
            case Found(offset, timestamp_ms):
                yield OffsetAnswer(partition, text, offset, timestamp_ms, "", missing)
            case AfterEnd(end_offset):
                why = f"no message is as late as that (the next offset is {end_offset})"
                yield OffsetAnswer(partition, text, None, None, why, missing)
            case NoTimestamps():
                yield OffsetAnswer(partition, text, None, None, no_time, missing)


def _as_json(answer: OffsetAnswer) -> str:
    return json_line(
        partition=answer.partition,
        at=answer.at,
        offset=answer.offset,
        timestamp_ms=json_time(answer.timestamp_ms),
    )


def _as_row(answer: OffsetAnswer) -> tuple[str, str, str, str]:
    partition, at = str(answer.partition), answer.at
    if answer.offset is None:
        return partition, at, NOTHING, answer.why
    return partition, at, str(answer.offset), shown_time(answer.timestamp_ms)
