"""Some messages of a partition, as a page can show them, and which offset it was at a time."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final

from ...protocol.errors import CorruptMessage, HorologError, MessageTooLarge, StorageError
from ...protocol.records.layout import (
    BATCH_MAGIC,
    ENTRY_OVERHEAD,
    LAST_DELTA_AT,
    MAGIC_AT,
    NO_TIMESTAMP,
    SIZE_AT,
    TimestampType,
)
from ...protocol.records.messages.sets import Record, records
from ...storage.files import Buffer
from ...storage.log.log import Log
from ...storage.read import reader
from ...storage.read.search import FoundMessage
from ...storage.read.slices import Slice
from ...times import TimeError, parse_time
from ...values import value_class
from ..handlers.base import Services
from ..handlers.counting import complete_from_ms
from ..work import searched
from .access import PageRefusal, Query, asked_log
from .removed import REMOVALS, removed_since, show_removal

BY_TIME, BY_APPEND = "timestamp", "append"

MESSAGES_AT_ONCE: Final = 50
FIRST_READ_BYTES: Final = 64 << 10
LARGEST_READ_BYTES: Final = 1 << 20
"""Largest read of stored bytes. A message that does not fit is not shown."""
ANY_SIZE: Final = 1 << 40
"""More bytes than a set has."""
OPENED_BYTES: Final = 4 << 20
"""Largest size of a decompressed set."""
SHOWN_CHARACTERS: Final = 2000
SHOWN_BYTES: Final = 256
SHOWN_HEADERS: Final = 20
BUSY: Final = "the broker is busy"


@value_class
class Shown:
    """How much of one message is shown."""

    characters: int = SHOWN_CHARACTERS
    """Of each text; four times as many bytes are decoded."""
    hex_bytes: int = SHOWN_BYTES
    """Of each key, value or header that is not text."""
    headers: int = SHOWN_HEADERS


IN_PART: Final = Shown()
WHOLE: Final = Shown(characters=256 << 10, hex_bytes=64 << 10, headers=1000)


@value_class
class Decoded:
    """Messages decoded from stored bytes."""

    messages: list[Record]
    next_offset: int | None
    """Offset to continue at; None if nothing after it can be read."""
    problem: str = ""


async def messages(services: Services, query: Query) -> dict[str, object]:
    """Return messages from offset `from` on, by default the last `limit` ones. With `whole` it is
    one message, of which more is shown."""
    log = await asked_log(services, query)
    is_whole = bool(query.integer("whole", 0, maximum=1))
    how = WHOLE if is_whole else IN_PART
    limit = 1 if is_whole else query.integer("limit", 20, maximum=MESSAGES_AT_ONCE)
    start = query.integer("from", -1)
    if start < 0:
        return await _latest(services, log, limit, how)
    start = min(max(start, log.log_start_offset), log.high_watermark)
    decoded = await read_messages(services, log, start, limit)
    shown = await show_messages(services, log, decoded.messages, how)
    return _answer(log, log.high_watermark, start, shown, decoded.next_offset, decoded.problem)


def _answer(
    log: Log,
    end_offset: int,
    start: int,
    shown: list[dict[str, object]],
    next_offset: int | None,
    problem: str,
) -> dict[str, object]:
    return {
        "log_start_offset": log.log_start_offset,
        "end_offset": end_offset,
        "from": start,
        "messages": shown,
        "next_offset": next_offset,
        "problem": problem,
    }


async def _latest(services: Services, log: Log, limit: int, how: Shown) -> dict[str, object]:
    """Return the messages of the last `limit` offsets, without the older ones for which there is no
    room in `LARGEST_READ_BYTES`.

    They are read backwards, set by set. What cannot be shown is passed over; `problem` is the
    newest one.
    """
    end_offset = offset = log.high_watermark
    shown: list[dict[str, object]] = []
    problem = ""
    left_bytes = LARGEST_READ_BYTES
    turns = services.work.turns()
    while True:
        await turns.give_way()
        lowest = max(end_offset - limit, log.log_start_offset)
        if offset <= lowest:
            break
        try:
            if not reader.located(log, offset - 1):
                continue
            found = reader.read(log, offset - 1, ANY_SIZE, end_offset=offset)
        except StorageError as error:  # behind the damage of a segment
            problem = problem or str(error)
            offset -= 1
            continue
        decoded = Decoded([], None, _too_large(found.size))
        if found.size <= LARGEST_READ_BYTES:
            if found.size > left_bytes:
                break
            left_bytes -= found.size
            decoded = await _decoded(services, found, lowest, offset)
        problem = problem or decoded.problem
        if decoded.problem == BUSY:
            break
        shown[:0] = await show_messages(services, log, decoded.messages, how)
        read = decoded.messages
        offset = read[0].offset if read else offset - 1
    return _answer(log, end_offset, offset, shown, end_offset, problem)


async def _decoded(services: Services, found: Slice, start: int, end_offset: int) -> Decoded:
    """Return the messages of a set from offset `start` on and below `end_offset`; none if a slice
    is empty."""
    data = await stored_bytes(services, found)
    if data is None:
        return Decoded([], start, BUSY)
    if not data:  # no message has these offsets
        return Decoded([], end_offset)
    decode = _decoding(data, start, end_offset - start)
    return await services.work.in_reading_thread(decode)


async def show_messages(
    services: Services, log: Log, records: Iterable[Record], how: Shown = IN_PART
) -> list[dict[str, object]]:
    """Return messages as JSON, with their append times. Raises `OSError`."""
    turns = services.work.turns()
    shown = []
    for record in records:
        while not reader.append_times_loaded(log, record.offset):
            await turns.give_way()
        shown.append(show_message(log, record, how))
        await turns.give_way()
    return shown


async def read_messages(services: Services, log: Log, start: int, limit: int) -> Decoded:
    """Return up to `limit` messages from `start` on. Reads have a bounded size and end at segment
    ends; the first one without messages is the last."""
    read: list[Record] = []
    next_offset: int | None = start
    problem = ""
    left_bytes = LARGEST_READ_BYTES
    while next_offset is not None and len(read) < limit and left_bytes > 0 and not problem:
        decoded, size = await _read_once(services, log, next_offset, limit - len(read))
        read += decoded.messages
        next_offset, problem = decoded.next_offset, decoded.problem
        left_bytes -= size
        if not decoded.messages:
            break
    return Decoded(read, next_offset, problem)


async def _read_once(services: Services, log: Log, start: int, limit: int) -> tuple[Decoded, int]:
    """Return the result of one read, and its size in bytes."""
    decoded, size = Decoded([], start), 0
    for wanted in (FIRST_READ_BYTES, LARGEST_READ_BYTES):
        if start < log.log_start_offset:
            break  # It was deleted between two reads.
        found = reader.read(log, start, wanted)
        size = found.size
        if not size:
            break
        data = await stored_bytes(services, found)
        if data is None:
            return Decoded([], start, BUSY), 0
        decoded = await services.work.in_reading_thread(_decoding(data, start, limit))
        if decoded.messages or decoded.problem or size < wanted:
            break
    return decoded, size


async def stored_bytes(services: Services, found: Slice) -> Buffer | None:
    """Return the bytes of a slice; None if its file is not available now."""
    data: Buffer | None = found.read_now()
    if data is None:
        stretch = found.stretch()
        if stretch is None:
            return None
        read = partial(stretch.file.pread, len(stretch), stretch.position)
        data = await services.work.in_reading_thread(read)
    return data


def _decoding(data: Buffer, start: int, limit: int) -> Callable[[], Decoded]:
    """Return a function that decodes, to be run in a thread because decompression takes time."""

    def decode() -> Decoded:
        read: list[Record] = []
        problem = ""
        try:
            every = records(data, max_decompressed_bytes=OPENED_BYTES, from_offset=start)
            read.extend(islice(every, limit))  # keeps the records before an error
        except MessageTooLarge:
            problem = f"a compressed set opens to more than {OPENED_BYTES >> 20} MiB"
        except CorruptMessage as error:
            return Decoded(read, None, str(error))
        except HorologError as error:
            problem = str(error)
        if read:
            return Decoded(read, read[-1].offset + 1)
        return nothing_of(data, start, problem)

    return decode


def nothing_of(data: Buffer, start: int, problem: str) -> Decoded:
    """Return the result for bytes whose first entry cannot be shown."""
    entry_bytes = ENTRY_OVERHEAD + int.from_bytes(data[SIZE_AT : SIZE_AT + 4], "big", signed=True)
    if not problem and (len(data) < LARGEST_READ_BYTES or entry_bytes <= len(data)):
        return Decoded([], start)
    last_offset = int.from_bytes(data[:SIZE_AT], "big", signed=True)
    if data[MAGIC_AT] == BATCH_MAGIC:
        delta = data[LAST_DELTA_AT : LAST_DELTA_AT + 4]
        last_offset += int.from_bytes(delta, "big", signed=True)
    return Decoded([], max(last_offset, start) + 1, problem or _too_large(entry_bytes))


def _too_large(entry_bytes: int) -> str:
    return f"{entry_bytes:,} bytes stored as one are too many to be shown here"


def show_message(log: Log, record: Record, how: Shown = IN_PART) -> dict[str, object]:
    """Return one message as JSON. Its append time must be loaded. Raises `OSError`."""
    kind = record.timestamp_type
    append_ms = reader.append_time_ms(log, record.offset)
    if append_ms == NO_TIMESTAMP and kind is TimestampType.LOG_APPEND_TIME:
        append_ms = record.timestamp_ms
    return {
        "offset": record.offset,
        "timestamp_ms": None if record.timestamp_ms < 0 else record.timestamp_ms,
        "timestamp_type": None if kind is None else kind.value,
        "append_time_ms": None if append_ms < 0 else append_ms,
        "key": show_bytes(record.key, how),
        "value": show_bytes(record.value, how),
        "headers": [
            {"name": name[: IN_PART.characters], "value": show_bytes(content)}
            for name, content in record.headers[: how.headers]
        ],
        "headers_left_out": max(len(record.headers) - how.headers, 0),
    }


def show_bytes(data: bytes | None, how: Shown = IN_PART) -> dict[str, object] | None:
    """Return bytes as JSON: as text if they are readable UTF-8, else in hexadecimal. Long ones are
    cut."""
    if data is None:
        return None
    head = data[: 4 * how.characters]
    try:
        text = getincrementaldecoder("utf-8")().decode(head, len(head) == len(data))
    except UnicodeDecodeError:
        text = "\0"
    if any(letter < " " and letter not in "\t\r\n" for letter in text):
        return {
            "hex": data[: how.hex_bytes].hex(" "),
            "bytes": len(data),
            "cut": len(data) > how.hex_bytes,
        }
    cut = len(text) > how.characters or len(head) < len(data)
    return {"text": text[: how.characters], "bytes": len(data), "cut": cut}


async def find(services: Services, query: Query) -> dict[str, object]:
    """Return the first message at or after time `at`; `by` is `timestamp` or `append`.

    `complete_from_ms` is the time, by `by`, from which on no message has left the partition; None
    if it is not known. If it is later than `at`, `removed` has the last removals of messages that
    might have been found.
    A text that is not a time is not an error of the page: `refused` then says what to write.
    """
    by = query.text("by", BY_TIME)
    if by not in (BY_TIME, BY_APPEND):
        raise PageRefusal(400, f"by is {by!r}; it must be {BY_TIME!r} or {BY_APPEND!r}")
    try:
        target_ms = parse_time(query.text("at").strip(), services.clock.now_ms())
    except TimeError as error:
        return {"refused": str(error)}
    log = await asked_log(services, query)
    turns = services.work.turns()
    search = (
        reader.find_time(log, target_ms)
        if by == BY_TIME
        else reader.find_append_time(log, target_ms)
    )
    found = await searched(services.work, turns, search)
    known_ms = await complete_from_ms(services, log, by)
    removed = removed_since(services, log.topic, target_ms, known_ms, by_append=by == BY_APPEND)
    removed = [each for each in removed if each.partition == log.partition]
    answer: dict[str, object] = {
        "target_ms": target_ms,
        "by": by,
        "offset": None if found is None else found.offset,
        "timestamp_ms": None if found is None else found.timestamp_ms,
        "log_start_offset": log.log_start_offset,
        "end_offset": log.high_watermark,
        "complete_from_ms": known_ms if known_ms >= 0 else None,
        "removed": [show_removal(each) for each in removed[-REMOVALS:]],
        "how": _how(log, target_ms, found) if by == BY_TIME else None,
        "message": None,
    }
    if found is not None:
        read = await read_messages(services, log, found.offset, 1)
        if read.messages:
            while not reader.append_times_loaded(log, found.offset):
                await turns.give_way()
            answer["message"] = show_message(log, read.messages[0])
    return answer


def _how(log: Log, target_ms: int, found: FoundMessage | None) -> dict[str, object]:
    trail = reader.search_trail(log, target_ms, found)
    shown: dict[str, object] = {"segments": trail.segments, "ruled_out": trail.ruled_out}
    segment = trail.segment
    if segment is None:
        return shown
    return {
        **shown,
        "segment": segment.base_offset,
        "largest_ms": segment.largest_timestamp_ms,
        "time_entries": trail.time_entries,
        "entry": trail.entry,
        "start_offset": trail.start_offset,
        "start_byte": trail.start_position,
        "read_bytes": trail.read_bytes,
    }
