"""Time maps: their format, and queries on them.

A time map (`storage/index/time_map.py`) describes each block of a log, in order, as varints: its
bytes in the log, its number of offsets, its number of messages without a time, and its number of
spans. For each span follow, in ascending order and without overlap: the distance of its smallest
time from the largest of the span before (or from 0), its length in time, and its number of
messages. A varint has seven bits per byte, the lowest first; all bytes but the last have the
highest bit set.
"""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from .spans import TimeSpan, int64s

_LARGEST: Final = 2**63 - 1
_BITS: Final = 63
_CUT_OFF: Final = "the time map ends in the middle of a block, or has a number of more than 63 bits"
_TOO_MANY: Final = "a block of the time map has more messages than offsets"
_TOO_LATE: Final = "a time of the time map has more than 63 bits"

Run = tuple[int, int, int, int]
"""Start and end position of consecutive blocks in the log, their first offset, and the next offset
after them."""

Counted = tuple[int, int, int, int]
"""Number of messages counted, number without a time, smallest and largest time; -1 if nothing was
counted."""


class Extent(NamedTuple):
    """Sums of a whole map."""

    blocks: int
    log_bytes: int
    offsets: int
    untimed: int
    first_ms: int
    """Smallest time in ms, -1 without any."""
    last_ms: int


class MapBlock(NamedTuple):
    """One block of the log, as its time map describes it."""

    position: int
    """Position in the log."""
    end: int
    offset: int
    """First offset of the block."""
    next_offset: int
    untimed: int
    """Number of messages without a timestamp."""
    spans: list[TimeSpan]
    map_position: int
    """Position of the block in the map."""
    map_end: int


def _numbers(time_map: bytes) -> Iterator[tuple[int, int]]:
    """Yield each number, and the position after it."""
    value = shift = 0
    for end, byte in enumerate(memoryview(time_map), 1):
        if shift >= _BITS:
            break
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value, end
            value = shift = 0
    if shift:
        raise ValueError(_CUT_OFF)


def time_map_blocks(time_map: bytes, base_offset: int) -> Iterator[MapBlock]:
    """Yield the blocks of a map, in order. Raises `ValueError` for bytes that are not a map."""
    numbers = _numbers(time_map)
    position, offset, map_position = 0, base_offset, 0
    for log_bytes, _ in numbers:
        try:
            (offsets, _), (untimed, _), (count, map_end) = (next(numbers) for _ in range(3))
            if max(position + log_bytes, offset + offsets) > _LARGEST:
                raise ValueError("the blocks of the time map add up to more than 63 bits")
            if untimed > offsets:
                raise ValueError(_TOO_MANY)
            spans: list[TimeSpan] = []
            left, before_ms = offsets - untimed, 0
            for _ in range(count):
                low = before_ms + next(numbers)[0]
                if low > _LARGEST:
                    raise ValueError(_TOO_LATE)
                high = low + next(numbers)[0]
                if high > _LARGEST:
                    raise ValueError(_TOO_LATE)
                messages, map_end = next(numbers)
                left -= messages
                if left < 0:
                    raise ValueError(_TOO_MANY)
                spans.append(TimeSpan(low, high, messages))
                before_ms = high
        except (StopIteration, RuntimeError):
            raise ValueError(_CUT_OFF) from None
        end, next_offset = position + log_bytes, offset + offsets
        yield MapBlock(position, end, offset, next_offset, untimed, spans, map_position, map_end)
        position, offset, map_position = end, next_offset, map_end


def time_map_runs(time_map: bytes, *, base_offset: int, from_ms: int, last_ms: int) -> list[Run]:
    """Return the longest runs of blocks that may have messages with times from `from_ms` to
    `last_ms`. Raises `ValueError` for bytes that are not a map."""
    runs: list[Run] = []
    joins = False
    for block in time_map_blocks(time_map, base_offset):
        hit = any(span.low <= last_ms and span.high >= from_ms for span in block.spans)
        if hit and joins:
            position, _, offset, _ = runs.pop()
            runs.append((position, block.end, offset, block.next_offset))
        elif hit:
            runs.append((block.position, block.end, block.offset, block.next_offset))
        joins = hit
    return runs


def time_map_counts(
    time_map: bytes,
    counts: "array[int]",
    *,
    base_offset: int,
    begin_offset: int,
    end_offset: int,
    from_ms: int,
    last_ms: int,
    every_ms: int,
) -> tuple[Counted, list[Run]]:
    """Add to `counts` (int64) the messages from `begin_offset` to before `end_offset` in each
    interval of a window, as far as the map can count them. The returned runs are the blocks that it
    cannot count. Raises `ValueError` for bytes that are not a map."""
    _check_window(counts, from_ms, last_ms, every_ms)
    messages = untimed = 0
    times: list[int] = []
    runs: list[Run] = []
    for block in time_map_blocks(time_map, base_offset):
        whole = begin_offset <= block.offset and block.next_offset <= end_offset
        if not whole and not (block.offset < end_offset and block.next_offset > begin_offset):
            continue
        some = [span for span in block.spans if span.low <= last_ms and span.high >= from_ms]
        if not whole or any(
            span.low < from_ms
            or span.high > last_ms
            or (span.low - from_ms) // every_ms != (span.high - from_ms) // every_ms
            for span in some
        ):
            runs.append((block.position, block.end, block.offset, block.next_offset))
            continue
        untimed += block.untimed
        for span in some:
            counts[(span.low - from_ms) // every_ms] += span.messages
            messages += span.messages
            times += (span.low, span.high)
    return (messages, untimed, min(times, default=-1), max(times, default=-1)), runs


def count_times(
    offsets: "bytes | bytearray | array[int]",
    timestamps: "bytes | bytearray | array[int]",
    counts: "array[int]",
    *,
    begin_offset: int,
    end_offset: int,
    from_ms: int,
    last_ms: int,
    every_ms: int,
) -> Counted:
    """Like `time_map_counts`, for messages with these offsets and times (int64)."""
    _check_window(counts, from_ms, last_ms, every_ms)
    if memoryview(offsets).nbytes != memoryview(timestamps).nbytes:
        raise ValueError("there are not as many offsets as times")
    untimed, times = 0, []
    for offset, timestamp in zip(int64s(offsets), int64s(timestamps), strict=True):
        if not begin_offset <= offset < end_offset:
            continue
        if timestamp < 0:
            untimed += 1
        elif from_ms <= timestamp <= last_ms:
            counts[(timestamp - from_ms) // every_ms] += 1
            times.append(timestamp)
    return len(times), untimed, min(times, default=-1), max(times, default=-1)


def _check_window(counts: "array[int]", from_ms: int, last_ms: int, every_ms: int) -> None:
    if memoryview(counts).readonly and len(counts):
        raise TypeError("nothing can be counted in a buffer that is read-only")
    if from_ms < 0 or last_ms < from_ms - 1 or every_ms <= 0:
        raise ValueError("a window that begins before all times, or ends before it begins")
    if last_ms >= from_ms and (last_ms - from_ms) // every_ms >= len(counts):
        raise ValueError("there are more intervals than counts")


def time_map_extent(time_map: bytes) -> Extent:
    """Return the sums of a whole map. Raises `ValueError` for bytes that are not a map."""
    blocks, log_bytes, offsets, untimed, times = 0, 0, 0, 0, []
    for block in time_map_blocks(time_map, 0):
        blocks += 1
        log_bytes, offsets = block.end, block.next_offset
        untimed += block.untimed
        times += [time for span in block.spans for time in span[:2]]
    return Extent(
        blocks, log_bytes, offsets, untimed, min(times, default=-1), max(times, default=-1)
    )
