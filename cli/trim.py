"""`horolog topic trim`: drop the oldest messages."""

import asyncio
from typing import Annotated, Final

import typer

from ..client.administer.admin import Admin
from ..client.cluster.servers import Servers
from ..client.results import AfterEnd, Found, NoTimestamps
from ..clock import SystemClock
from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from ..times import INT64_MAX, TimeError, parse_time
from .broker_requests import partitions_of
from .errors import CommandFailed, WrongUsage
from .options import DEFAULT_SERVER, AnyUnit, Json, Partition, Server, TopicName, refused
from .output import emit, json_line, table
from .positions import AtOffset, AtTime, Position

_OFFSET: Final = "offset:"
_LATEST: Final = "latest"


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
    """Drop the oldest messages of a topic, for good.

    By a time, all messages before the first one, in offset order, that has this time or a later
    one: no message as late as that is dropped. The disk gets its room back by whole segments,
    after file.delete.delay.ms.
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
    """What is kept, with all behind it; None keeps nothing."""
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
    """Each partition with its first offset afterwards."""
    async with Admin(server, check_units=False) as admin:
        partitions = await partitions_of(admin, name, partition)
        # All are looked for before the first is trimmed: what fails then changes nothing.
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
