"""Time spans of messages, and the blocks of a time map built from them.

A row of six numbers (int64) describes consecutive messages: bytes in the log, number of offsets,
smallest and largest time (both -1 if no message has a time), number of messages, and the width of
the intervals in which times were joined, 1 if they were not. A row of 0 bytes belongs to the next
row with bytes, which also has its bytes and offsets.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ...layout import (
    BASE_TIMESTAMP_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    Buffer,
)
from ..terms import RECORD
from .bytes import LARGEST_INT64, flat, int64_at, wrapped
from .records import RecordCursor
from .walk import Entry, read_entries

MOST_SPANS: Final = 32
"""Maximum number of spans in one block."""

JOINED_MS: Final = (
    *(1, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000),
    *(864_000_000, 8_640_000_000, 86_400_000_000, 2**63 - 1),
)
"""Widths of the intervals, in ms, in which the spans of one block are joined until they are few
enough. Each width divides the next; minutes, hours and days are among them, because most windows
are whole minutes, hours or days."""

ROW_NUMBERS: Final = 6


class TimeSpan(NamedTuple):
    """Messages with times from `low` to `high`; both times occur."""

    low: int
    high: int
    messages: int


def time_spans(
    timestamps: "bytes | bytearray | array[int]", *, log_bytes: int, offsets: int
) -> bytes:
    """Return rows of messages with these times (int64; a negative one means no time).

    Raises `ValueError` for more messages than offsets.
    """
    times = int64s(timestamps)
    if log_bytes <= 0 or offsets <= 0 or len(times) > offsets:
        raise ValueError("an append of no bytes, of no time or of more messages than offsets")
    return array("q", _rows(times, log_bytes, offsets)).tobytes()


def entry_spans(
    buffer: Buffer,
    start: int,
    *,
    block_bytes: int,
    since_bytes: int,
    next_offset: int,
    check_crc: bool,
) -> tuple[bytes, int, int, int]:
    """Return the rows of the entries from `start` on. The rows end before an entry that is
    compressed, a control batch, bad or incomplete, or whose offset is below the one expected
    (`next_offset` for the first entry).

    The current block of the map began `since_bytes` before `start`, and ends once it has
    `block_bytes`; a row belongs to one block. After the rows, the result has the end of their
    entries, the next offset, and the size of the block that has not ended. Raises `ValueError` for
    an invalid start.
    """
    view = flat(buffer)
    if not 0 <= start <= len(view) or not 0 <= since_bytes < block_bytes or next_offset < 0:
        raise ValueError("no place in a buffer, or in a block")
    rows, times = list[int](), list[int]()
    position = begin = start
    first_offset = next_offset
    entries, _ = read_entries(view, start, len(view), check_crc)
    for entry in entries:
        some = _times_of(view, position, entry)
        offset, last_offset = entry[1], entry[1] + entry[6]
        if some is None or offset < next_offset or last_offset >= LARGEST_INT64:
            break
        times += some
        next_offset, position = last_offset + 1, entry[0]
        if since_bytes + position - begin >= block_bytes:
            rows += _rows(times, position - begin, next_offset - first_offset)
            begin, first_offset, since_bytes = position, next_offset, 0
            times = []
    if position > begin:
        rows += _rows(times, position - begin, next_offset - first_offset)
        since_bytes += position - begin
    return array("q", rows).tobytes(), position, next_offset, since_bytes


def _times_of(view: memoryview, position: int, entry: Entry) -> list[int] | None:
    """Return the times of an entry's messages; `None` if the entry is compressed or a control
    batch."""
    stop, _, magic, bits, time_ms, _, delta = entry
    if bits & CODEC_MASK or (magic == BATCH_MAGIC and bits & CONTROL_BIT):
        return None
    if magic != BATCH_MAGIC:
        return [time_ms]
    cursor = RecordCursor(view, position + BATCH_OVERHEAD, stop)
    base_ms = int64_at(view, position + BASE_TIMESTAMP_AT)
    times = []
    while cursor.step() == RECORD:
        own_ms = wrapped(base_ms + cursor.timestamp_delta_ms)
        times.append(time_ms if bits & LOG_APPEND_TIME_BIT else own_ms)
    return times if cursor.following == stop and len(times) - 1 <= delta else None


def _rows(times: Sequence[int], log_bytes: int, offsets: int) -> list[int]:
    counts = Counter(times).items()
    spans, joined_ms = _few(
        TimeSpan(time, time, messages) for time, messages in counts if time >= 0
    )
    rows = [(span, joined_ms) for span in spans]
    untimed = sum(time < 0 for time in times)
    if untimed or not spans:
        rows.insert(0, (TimeSpan(-1, -1, untimed), 1))
    numbers = [number for span, joined_ms in rows for number in (0, 0, *span, joined_ms)]
    numbers[-ROW_NUMBERS : 2 - ROW_NUMBERS] = log_bytes, offsets
    return numbers


def time_blocks(
    appends: "array[int]", *, block_bytes: int, whole: bool
) -> tuple[bytes, int, tuple[int, int, int, int, int, int]]:
    """Return the map of the blocks built from consecutive rows, the number of rows used, and the
    map's `time_map_extent`.

    A block ends once it has `block_bytes`; with `whole`, the remaining rows are a block too. Raises
    `ValueError` for invalid rows.
    """
    numbers = int64s(appends)
    blocks, ended, spans = bytearray(), 0, list[TimeSpan]()
    made = made_bytes = made_offsets = made_untimed = 0
    times_ms = list[int]()
    log_bytes = offsets = untimed = joined_ms = 0
    last = len(numbers) // ROW_NUMBERS - 1
    for number in range(last + 1):
        first = number * ROW_NUMBERS
        size, added, low, high, messages, width_ms = numbers[first : first + ROW_NUMBERS]
        log_bytes, offsets = log_bytes + size, offsets + added
        joined_ms = max(joined_ms, width_ms)
        if low < 0:
            untimed += messages
        else:
            spans.append(TimeSpan(low, high, messages))
        sound = min(size, added) >= 0 and (size > 0) == (added > 0) and low <= high
        sound = sound and messages >= (low >= 0) and (low < 0) == (high < 0)
        if not sound or max(log_bytes, offsets, untimed) > LARGEST_INT64:
            raise ValueError("an append of no bytes, of no time or of more messages than offsets")
        if size and (log_bytes >= block_bytes or (whole and number == last)):
            made += 1
            made_bytes += log_bytes
            made_offsets += offsets
            made_untimed += untimed
            if max(made_bytes, made_offsets) > LARGEST_INT64:
                raise ValueError("blocks that add up to more than 63 bits")
            blocks += _block(spans, log_bytes, offsets, untimed, joined_ms)
            times_ms += (bound_ms for span in spans for bound_ms in span[:2])
            spans, ended = [], number + 1
            log_bytes = offsets = untimed = joined_ms = 0
    first_ms, last_ms = min(times_ms, default=-1), max(times_ms, default=-1)
    extent = (made, made_bytes, made_offsets, made_untimed, first_ms, last_ms)
    return bytes(blocks), ended, extent


def _block(
    found: list[TimeSpan], log_bytes: int, offsets: int, untimed: int, joined_ms: int
) -> bytes:
    if untimed + sum(span.messages for span in found) > offsets:
        raise ValueError("a block of more messages than offsets")
    found, _ = _few(found, joined_ms)
    numbers = [log_bytes, offsets, untimed, len(found)]
    before_ms = 0
    for span in found:
        numbers += (span.low - before_ms, span.high - span.low, span.messages)
        before_ms = span.high
    return b"".join(map(_varint, numbers))


def _few(spans: Iterable[TimeSpan], joined_ms: int = 1) -> tuple[list[TimeSpan], int]:
    """Join spans with the smallest width from `joined_ms` on that leaves few enough. Returns the
    spans and the width."""
    found = sorted(spans, key=lambda span: span.low)
    for width_ms in JOINED_MS:
        if width_ms >= joined_ms or width_ms == JOINED_MS[-1]:
            found = _joined(found, width_ms)
            if len(found) <= MOST_SPANS:
                break
    return found, width_ms


def int64s(numbers: "Buffer | array[int]") -> Sequence[int]:
    """Return the numbers in a buffer, in the byte order of this machine."""
    view = memoryview(numbers)
    return view.cast("B").cast("q") if view.nbytes else ()


def _joined(spans: Iterable[TimeSpan], width_ms: int) -> list[TimeSpan]:
    """Join spans, in ascending order, that overlap or lie in the same interval of this width."""
    joined: list[TimeSpan] = []
    for span in spans:
        into = joined[-1] if joined else None
        if into is not None and (
            span.low <= into.high or span.high // width_ms == into.low // width_ms
        ):
            joined[-1] = TimeSpan(
                into.low, max(into.high, span.high), into.messages + span.messages
            )
        else:
            joined.append(span)
    return joined


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
