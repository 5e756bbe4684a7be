"""Download of the messages of a window as JSON lines, in the form of `horolog consume --json`."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Final

from ...protocol.errors import HorologError
from ...protocol.records.messages.sets import Record
from ...storage.directory.journal import Cause, Removal
from ...storage.log.log import Log
from ...storage.read import reader
from ...storage.read.windows import ReadWindow
from ...times import format_time
from ..handlers.base import Services
from .access import Query, prepared_log
from .messages import BUSY
from .removed import removed_since, show_removal
from .window import Reading, content_search

AT_ONCE: Final = 200
"""Largest number of messages per piece."""
REMOVALS_MAX: Final = 1000
"""Largest number of removals in the last line."""
BUSY_SECONDS: Final = 0.2
"""Pause before another attempt when the broker was busy."""


async def lines(services: Services, query: Query) -> AsyncIterator[bytes]:
    """Yield the messages of a window, by partition in the order of offsets, a few lines at a time.

    With `text` they are those that contain it. A line with `problem` stands for messages that
    cannot be read, because they are damaged, too large, or were deleted meanwhile. If the window is
    not complete, the last line says so, and what went: `problem`, `complete_from_ms`, `removed`.

    Raises `UnknownTopicOrPartition`, `PageRefusal`, errors of opening a log.
    """
    topic = query.text("topic")
    from_ms, until_ms = query.window()
    window = ReadWindow.between(from_ms, -1 if query.no_end else until_ms)
    content_search(query)
    missing = _Missing(services, topic, window.first_ms)
    for partition in range(services.logs.topic(topic).partitions):
        if missing.topic_is_gone():
            break
        log = await prepared_log(services, topic, partition)
        offset: int | None = log.log_start_offset
        missing.note(log)
        end_offset = log.high_watermark
        while offset is not None and offset < end_offset and not missing.topic_is_gone():
            reading = Reading(services, window, AT_ONCE, content_search(query))
            try:
                found, next_offset = await reading.read(log, offset)
            except (HorologError, OSError):
                if missing.topic_is_gone():
                    break
                raise
            times = await _append_times(services, log, found)
            yield await services.work.in_reading_thread(partial(_encoded, partition, found, times))
            if reading.problem == BUSY and next_offset == offset:
                await asyncio.sleep(BUSY_SECONDS)
            elif reading.problem:
                problem = {"offset": reading.problem_offset, "problem": reading.problem}
                yield _line({"partition": partition, **problem})
            if reading.lost:
                missing.note(log)
            offset = next_offset
    said = missing.as_fields()
    if said:
        # It is about all partitions; readers find the fields of the other lines.
        place = {"partition": None, "offset": None}
        yield await services.work.in_reading_thread(partial(_line, {**place, **said}))


class _Missing:
    """What a download lacks, because it left the topic."""

    def __init__(self, services: Services, topic: str, from_ms: int) -> None:
        self._services = services
        self._topic = topic
        self._topic_id = services.logs.topic(topic).topic_id
        self._from_ms = from_ms
        self._complete_from_ms: int | None = 0
        self._missing_until: dict[int, int] = {}
        """By partition the offset below which messages are missing."""
        self._deleted = False

    def topic_is_gone(self) -> bool:
        """Whether the topic was deleted, even if there is another one of its name. The end of the
        file says so then."""
        entry = self._services.directory.topics().get(self._topic)
        self._deleted = entry is None or entry.topic_id != self._topic_id
        return self._deleted

    def note(self, log: Log) -> None:
        """Note that messages below the log start are not in the file, unless they were read."""
        self._missing_until[log.partition] = log.log_start_offset
        known_ms = self._services.completeness.complete_from_ms(log)
        if self._complete_from_ms is not None:
            latest_ms = max(self._complete_from_ms, known_ms)
            self._complete_from_ms = latest_ms if known_ms >= 0 else None

    def as_fields(self) -> dict[str, object]:
        """Return what to say at the end of the file; nothing if nothing is missing."""
        if self._deleted:
            return {"problem": f"topic {self._topic!r} was deleted before all of it was read"}
        complete_from_ms = self._complete_from_ms
        if complete_from_ms is None:
            problem = "it is not known what left the topic"
        elif complete_from_ms > self._from_ms:
            complete_from = format_time(complete_from_ms)
            problem = f"complete only from {complete_from} on: earlier messages are gone"
        else:
            return {}
        removed = removed_since(self._services, self._topic, self._from_ms, complete_from_ms)
        shown = [show_removal(each) for each in removed if self._is_missing(each)]
        return {
            "problem": problem,
            "complete_from_ms": complete_from_ms,
            "removed": shown[-REMOVALS_MAX:],
        }

    def _is_missing(self, removal: Removal) -> bool:
        """Whether removed messages are missing, and were not read before."""
        until = self._missing_until.get(removal.partition, 0)
        return removal.cause == Cause.TRUNCATION or removal.first_offset < until


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
