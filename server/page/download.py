"""Download of the messages of a window as JSON lines, in the form of `horolog consume --json`."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Final

from ...protocol.records.messages.sets import Record
from ...storage.log.log import Log
from ...storage.read import reader
from ...storage.read.windows import ReadWindow
from ..handlers.base import Services
from .access import Query, prepared_log
from .messages import BUSY
from .window import Reading, content_search

AT_ONCE: Final = 200
"""Largest number of messages per piece."""
BUSY_SECONDS: Final = 0.2
"""Pause before another attempt when the broker was busy."""


async def lines(services: Services, query: Query) -> AsyncIterator[bytes]:
    """Yield the messages of a window, by partition in the order of offsets, a few lines at a time.

    With `text` they are those that contain it. A line with `problem` stands for messages that
    cannot be read. Raises `UnknownTopicOrPartition`, `PageRefusal`, errors of opening a log.
    """
    topic = query.text("topic")
    from_ms, until_ms = query.window()
    window = ReadWindow.between(from_ms, -1 if query.no_end else until_ms)
    content_search(query)
    for partition in range(services.logs.topic(topic).partitions):
        log = await prepared_log(services, topic, partition)
        offset: int | None = log.log_start_offset
        end_offset = log.high_watermark
        while offset is not None and offset < end_offset:
            reading = Reading(services, window, AT_ONCE, content_search(query))
            found, next_offset = await reading.read(log, offset)
            times = await _append_times(services, log, found)
            yield await services.work.in_reading_thread(partial(_encoded, partition, found, times))
            if reading.problem == BUSY and next_offset == offset:
                await asyncio.sleep(BUSY_SECONDS)
            elif reading.problem:
                yield _line({"partition": partition, "offset": offset, "problem": reading.problem})
            offset = next_offset


async def _append_times(services: Services, log: Log, found: Iterable[Record]) -> list[int]:
    turns = services.work.turns()
    times_ms = []
    for record in found:
        while not reader.append_times_loaded(log, record.offset):
            await turns.give_way()
        times_ms.append(reader.append_time_ms(log, record.offset))
        await turns.give_way()
    return times_ms


def _encoded(partition: int, found: list[Record], append_times_ms: list[int]) -> bytes:
    return b"".join(
        _message(partition, record, append_ms)
        for record, append_ms in zip(found, append_times_ms, strict=True)
    )


def _message(partition: int, record: Record, append_ms: int) -> bytes:
    kind = record.timestamp_type
    fields: dict[str, object] = {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": None if record.timestamp_ms < 0 else record.timestamp_ms,
        "timestamp_type": None if kind is None else kind.value,
        "key": _content(record.key),
        "value": _content(record.value),
        "append_time_ms": None if append_ms < 0 else append_ms,
    }
    if record.headers:
        fields["headers"] = [
            {"name": name, "value": _content(value)} for name, value in record.headers
        ]
    return _line(fields)


def _content(data: bytes | None) -> object:
    """Return a string for UTF-8, else `{"base64": ...}`; None for None."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


def _line(fields: dict[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"
