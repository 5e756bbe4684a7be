"""`horolog explain offset`: how the offset of a time is found."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import typer

from ...client.administer.admin import Admin
from ...client.cluster.servers import Servers
from ...clock import SystemClock
from ...protocol.api.log.describe_log import DescribedSearch, DescribeLogPartitionResult
from ...times import TimeError, parse_time
from ..broker_requests import partitions_of
from ..errors import WrongUsage
from ..options import DEFAULT_SERVER, AnyUnit, Json, Partition, Server, TopicName, refused
from ..output import emit, json_line, json_time, shown_size, shown_time


def offset(
    topic: TopicName,
    at: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="2016-11-14T17:24:32Z, now, @-1h, or epoch milliseconds."
        ),
    ],
    partition: Partition = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
    any_unit: AnyUnit = False,
) -> None:
    """Say how the offset of a time is found.

    Segments are ruled out by the largest time in them, most of the segment by its time index, and
    the rest is read up to the message.
    """
    try:
        at_ms = parse_time(at, SystemClock().now_ms(), any_unit)
    except TimeError as error:
        raise WrongUsage(f"--at: {refused(error)}") from None
    for log in asyncio.run(_ask(server, topic, partition, at_ms)):
        (search,) = log.search
        if as_json:
            emit([_as_json(log, search, at_ms)])
        else:
            emit(_as_text(f"{topic}-{log.partition}", log, search, at_ms))


async def _ask(
    server: Servers, topic: str, partition: int | None, at_ms: int
) -> list[DescribeLogPartitionResult]:
    async with Admin(server, check_units=False) as admin:
        wanted = await partitions_of(admin, topic, partition)
        return [await admin.describe_log(topic, number, at_ms=at_ms) for number in wanted]


def _as_json(log: DescribeLogPartitionResult, search: DescribedSearch, at_ms: int) -> str:
    used = search.entry_offset >= 0
    inside = search.base_offset >= 0
    return json_line(
        partition=log.partition,
        at_ms=at_ms,
        offset=search.offset if inside else None,
        timestamp_ms=json_time(search.timestamp_ms),
        segments=search.segments,
        ruled_out=search.ruled_out,
        segment=search.base_offset if inside else None,
        entry_timestamp_ms=search.entry_timestamp_ms if used else None,
        entry_offset=search.entry_offset if used else None,
        start_offset=search.start_offset if inside else None,
        start_position=search.start_position if inside else None,
        read_bytes=search.read_bytes if inside else None,
    )


def _as_text(
    place: str, log: DescribeLogPartitionResult, search: DescribedSearch, at_ms: int
) -> Iterator[str]:
    yield (
        f"{place}: {search.ruled_out} of {search.segments} segments have no message of "
        f"{shown_time(at_ms)} or later."
    )
    if search.base_offset < 0:
        yield f"No message is as late as that; the next offset is {log.high_watermark}."
        return
    if search.entry_offset >= 0:
        yield (
            f"In segment {search.base_offset}, the time index says that no message below offset "
            f"{search.entry_offset} is later than {shown_time(search.entry_timestamp_ms)}."
        )
    else:
        yield f"In segment {search.base_offset}, no entry of the time index is earlier than that."
    yield (
        f"From offset {search.start_offset} on (byte {search.start_position}), "
        f"{shown_size(search.read_bytes)} are passed over."
    )
    yield (
        f"Offset {search.offset}, of {shown_time(search.timestamp_ms)}, is the first message of "
        "that time or later."
    )
