"""Messages of a time window over all partitions, and no others; and those of them that contain a
text in their key, value or headers."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from ...protocol.errors import CorruptMessage, HorologError, MessageTooLarge
from ...protocol.records.columns import read_columns
from ...protocol.records.kernel.terms import Headers
from ...protocol.records.messages.sets import Record, entries, records
from ...storage.files import Buffer
from ...storage.log.log import Log
from ...storage.read import reader, windows
from ...storage.read.windows import ReadWindow
from ..handlers.base import Services
from .access import PARTITION_MAX, PageRefusal, Query, prepared_log
from .messages import (
    BUSY,
    FIRST_READ_BYTES,
    LARGEST_READ_BYTES,
    MESSAGES_AT_ONCE,
    OPENED_BYTES,
    Decoded,
    nothing_of,
    show_messages,
    stored_bytes,
)

PLACES: Final = ("anywhere", "key", "value", "header")

READ_BYTES: Final = 4 << 20
"""Approximate limit of stored bytes read for one answer."""
SEARCHED_BYTES: Final = 32 << 20
"""Such a limit for an answer that searches for a text."""
EXAMINED: Final = 10_000
"""Messages of one read that are compared with a text; further ones follow with the next read."""
SECONDS: Final = 2.0
"""Time after which an answer ends, with the step in progress."""


class ContentSearch:
    """Finds messages that contain a text as UTF-8; ASCII letters match in either case."""

    def __init__(self, text: str, place: str) -> None:
        self._text = text.encode().lower()
        self._place = place
        self.looked = 0
        """Messages compared so far."""

    def matches(self, record: Record) -> bool:
        """Whether a message contains the text; counts the message."""
        self.looked += 1
        place = self._place
        return (
            (place in ("anywhere", "key") and self._is_in(record.key))
            or (place in ("anywhere", "value") and self._is_in(record.value))
            or (place in ("anywhere", "header") and self._is_in_headers(record.headers))
        )

    def _is_in(self, content: bytes | None) -> bool:
        return content is not None and self._text in content.lower()

    def _is_in_headers(self, headers: Headers) -> bool:
        """Whether one of the headers contains the text, written as `name=value`."""
        return any(self._is_in(f"{name}=".encode() + (value or b"")) for name, value in headers)


def content_search(query: Query) -> ContentSearch | None:
    """Return the search that a request asks for; None for one without a text. Raises
    `PageRefusal`."""
    text, place = query.text("text", ""), query.text("in", PLACES[0])
    if place not in PLACES:
        raise PageRefusal(400, f"in is {place[:40]!r}; it must be one of {', '.join(PLACES)}")
    return ContentSearch(text, place) if text else None


async def window(services: Services, query: Query) -> dict[str, object]:
    """Return up to `limit` messages whose time is in the window, by partition in the order of
    offsets; with `text` only those that contain it, and how many were `looked` at.

    They start at `offset` of `partition` (0: at the log start), or at the start of the topic.
    `next` is where the next request continues, although there may be no more messages; None at the
    end.
    """
    topic = query.text("topic")
    from_ms, until_ms = query.window()
    limit = query.integer("limit", 20, minimum=1, maximum=MESSAGES_AT_ONCE)
    partition = query.integer("partition", 0, maximum=PARTITION_MAX)
    offset = query.integer("offset", 0)
    partitions = services.logs.topic(topic).partitions
    if partition >= partitions:
        raise PageRefusal(404, f"partition is {partition}; the topic has 0 to {partitions - 1}")
    search = content_search(query)
    reading = Reading(
        services, ReadWindow.between(from_ms, -1 if query.no_end else until_ms), limit, search
    )
    shown: list[dict[str, object]] = []
    while partition < partitions:
        log = await prepared_log(services, topic, partition)
        found, next_offset = await reading.read(log, offset or log.log_start_offset)
        messages = await show_messages(services, log, found)
        shown += [{"partition": partition, **message} for message in messages]
        if next_offset is None:
            partition, offset = partition + 1, 0
        else:
            offset = next_offset
        if reading.full:
            break
    more = partition < partitions
    return {
        "from_ms": from_ms,
        "until_ms": until_ms,
        "messages": shown,
        "next": {"partition": partition, "offset": offset} if more else None,
        "problem": reading.problem,
        "looked": None if search is None else search.looked,
        "read_bytes": reading.read_bytes,
    }


class Reading:
    """Reads the messages of a window, until there are enough or the work is too much."""

    def __init__(
        self,
        services: Services,
        window: ReadWindow,
        limit: int,
        search: ContentSearch | None = None,
    ) -> None:
        self._services = services
        self._window = window
        self._left = limit
        self._search = search
        self._most_bytes = READ_BYTES if search is None else SEARCHED_BYTES
        self.read_bytes = 0
        self._stop = services.work.time() + SECONDS
        self.problem = ""
        """Why reading ended early, for people to read."""
        self.problem_offset = -1
        """First offset of the messages that the problem is about."""
        self.lost = False
        """Whether the problem is that messages were deleted before they were read."""

    @property
    def full(self) -> bool:
        """Whether no more may be read for this answer."""
        late = self._services.work.time() >= self._stop
        return self._left <= 0 or self.read_bytes >= self._most_bytes or bool(self.problem) or late

    async def read(self, log: Log, offset: int) -> tuple[list[Record], int | None]:
        """Return messages of one partition from an offset on, and the next offset; None at the end.

        If messages from the offset on were deleted, and may have been in the window, that is a
        problem. Raises errors from damage, and from making a time map.
        """
        found: list[Record] = []
        end_offset = log.high_watermark
        turns = self._services.work.turns()
        while True:
            offset = self._readable_offset(log, offset)
            if self.lost:
                return found, offset
            place = windows.find_position(log, offset, self._window, end_offset)
            offset = place.offset
            if place.unready is not None:
                await self._services.time_maps.make(log, place.unready)
            elif offset < place.end_offset:
                decoded = await self._read_once(log, offset, place.end_offset)
                found += decoded.messages
                if decoded.next_offset is None:
                    return found, None
                offset = decoded.next_offset
            if offset >= end_offset:
                return found, None
            if self.full:
                return found, offset
            await turns.give_way()

    def _readable_offset(self, log: Log, offset: int) -> int:
        """Return an offset, or the log start if that is later. Notes a problem if messages between
        them may have been in the window."""
        start = log.log_start_offset
        if offset >= start:
            return offset
        complete_from_ms = self._services.completeness.complete_from_ms(log)
        if not 0 <= complete_from_ms <= self._window.first_ms:
            self.lost, self.problem_offset = True, offset
            self.problem = (
                f"messages from offset {offset} to {start - 1} of partition {log.partition} were "
                "deleted before they were read"
            )
        return start

    def _decoding(self, data: Buffer, start: int) -> Callable[[], Decoded]:
        if self._search is not None:
            return _searching(data, start, self._window, self._left, self._search)
        return _decoding(data, start, self._window, self._left)

    async def _read_once(self, log: Log, start: int, end_offset: int) -> Decoded:
        """Return the result of one read. If it makes no progress, a larger read follows."""
        decoded = Decoded([], start)
        for wanted in (FIRST_READ_BYTES, LARGEST_READ_BYTES):
            if start < log.log_start_offset:
                break  # It was deleted between two reads.
            stored = reader.read(log, start, wanted, end_offset=end_offset)
            if not stored.size:
                return Decoded([], end_offset)
            data = await stored_bytes(self._services, stored)
            if data is None:
                decoded = Decoded([], start, BUSY)
                break
            self.read_bytes += stored.size
            decode = self._decoding(data, start)
            decoded = await self._services.work.in_reading_thread(decode)
            if decoded.next_offset != start or decoded.problem:
                break
            if stored.size < wanted:
                return Decoded([], end_offset)  # an entry that is being written
        self._left -= len(decoded.messages)
        self.problem, self.problem_offset = decoded.problem, start
        return decoded


def _searching(
    data: Buffer, start: int, window: ReadWindow, limit: int, search: ContentSearch
) -> Callable[[], Decoded]:
    """Return a function that decodes and compares, to be run in a thread."""

    def decode() -> Decoded:
        found: list[Record] = []
        next_offset = start
        problem = ""
        try:
            every = records(data, max_decompressed_bytes=OPENED_BYTES, from_offset=start)
            for record in islice(every, EXAMINED):
                next_offset = record.offset + 1
                in_window = window.first_ms <= record.timestamp_ms <= window.last_ms
                if in_window and search.matches(record):
                    found.append(record)
                    if len(found) >= limit:
                        break
            if next_offset == start:  # entries without messages
                next_offset = max((entry.offset + 1 for entry in entries(data)), default=start)
        except MessageTooLarge:
            problem = f"a compressed set opens to more than {OPENED_BYTES >> 20} MiB"
        except CorruptMessage as error:
            return Decoded(found, None, str(error))
        except HorologError as error:
            problem = str(error)
        if next_offset == start:
            return nothing_of(data, start, problem)
        # A message with a problem starts the next read, if there is one.
        return Decoded(found, next_offset)

    return decode


def _decoding(data: Buffer, start: int, window: ReadWindow, limit: int) -> Callable[[], Decoded]:
    """Return a function that decodes, to be run in a thread because decompression takes time."""

    def decode() -> Decoded:
        offsets: list[int] = []
        next_offset: int | None = start
        problem = ""
        try:
            for found, behind in _offsets(data, start, window):
                offsets += found
                next_offset = behind
                if len(offsets) >= limit:
                    offsets = offsets[:limit]
                    next_offset = offsets[-1] + 1
                    break
            if next_offset == start:  # entries without messages
                next_offset = max((entry.offset + 1 for entry in entries(data)), default=start)
        except MessageTooLarge:
            problem = f"a compressed set opens to more than {OPENED_BYTES >> 20} MiB"
        except CorruptMessage as error:
            next_offset, problem = None, str(error)
        except HorologError as error:
            problem = str(error)
        if next_offset == start:
            return nothing_of(data, start, problem)
        # A message with a problem starts the next read, if there is one.
        return Decoded(_records(data, offsets), next_offset, problem if next_offset is None else "")

    return decode


def _offsets(data: Buffer, start: int, window: ReadWindow) -> Iterator[tuple[list[int], int]]:
    """Yield, for each part of a set, the offsets of the window's messages from `start` on, and the
    offset after the messages examined. Raises the errors of `read_columns`."""
    for columns in read_columns(
        data, max_decompressed_bytes=OPENED_BYTES, from_offset=start, content=()
    ):
        offsets = memoryview(columns.offsets).cast("q")
        times_ms = memoryview(columns.timestamps).cast("q")
        found = [
            offset
            for offset, time_ms in zip(offsets, times_ms, strict=True)
            if window.first_ms <= time_ms <= window.last_ms
        ]
        yield found, offsets[-1] + 1


def _records(data: Buffer, offsets: list[int]) -> list[Record]:
    """Return the messages with these ascending offsets, which are in the set."""
    if not offsets:
        return []
    wanted = set(offsets)
    every = records(data, max_decompressed_bytes=OPENED_BYTES, from_offset=offsets[0])
    return list(islice((one for one in every if one.offset in wanted), len(offsets)))
