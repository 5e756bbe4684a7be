"""Finds the first message with a time in the bytes that follow an index entry."""

from ...layout import (
    BASE_TIMESTAMP_AT,
    BATCH_ATTRIBUTES_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    ENTRY_OVERHEAD,
    LAST_DELTA_AT,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    SIZE_AT,
    TIMESTAMP_AT,
    Buffer,
)
from ..terms import OWN, RECORD, Offsets, Problem
from .bytes import int32_at, int64_at, wrapped
from .records import RecordCursor, find_timestamp
from .walk import scan_timestamp, walk

_EARLIEST = -(2**63)


def find_first_time(
    buffer: Buffer, offset: int, behind_start: bool, target_ms: int
) -> tuple[int, int, int] | None:
    """Return the first message with a timestamp >= `target_ms`: position of its entry, its offset
    and its timestamp. Offset and timestamp are -1 if the batch or wrapper has to be decompressed to
    find them.

    `buffer` starts with the entry for which an index has `offset`. For a batch that is its last
    offset; but for the first entry of a segment, which no index has, it is the first offset, unless
    `behind_start`. `None` means nothing is known: there is no such message, or some entry up to its
    end is damaged or its offset does not follow, which is rare.
    """
    view = memoryview(buffer)
    at, _ = scan_timestamp(view, 0, len(view), target_ms)
    if at < 0:
        return None
    stop = at + ENTRY_OVERHEAD + int32_at(view, at + SIZE_AT)
    first = offset
    if view[MAGIC_AT] == BATCH_MAGIC:
        first, delta = int64_at(view, 0), int32_at(view, LAST_DELTA_AT)
        if delta < 0 or offset != (first + delta if behind_start else first):
            return None
    passed = walk(view, 0, stop, offsets=Offsets.CONTIGUOUS, base_offset=first)
    if passed.problem is not Problem.NONE or passed.last_offset - first + 1 != passed.count:
        return None
    if passed.last_codec and passed.magics & ~(1 << BATCH_MAGIC):
        return None
    if view[at + MAGIC_AT] != BATCH_MAGIC:
        return at, passed.last_offset, int64_at(view, at + TIMESTAMP_AT)
    return _in_batch(view, at, stop, target_ms)


def _in_batch(view: memoryview, at: int, stop: int, target_ms: int) -> tuple[int, int, int] | None:
    """Like `find_first_time`, within a good batch."""
    bits = view[at + BATCH_ATTRIBUTES_AT + 1]
    if bits & CONTROL_BIT:
        return None
    if bits & CODEC_MASK:
        return at, OWN, NO_TIMESTAMP
    time_ms, base_ms = int64_at(view, at + MAX_TIMESTAMP_AT), int64_at(view, at + BASE_TIMESTAMP_AT)
    if bits & LOG_APPEND_TIME_BIT:
        target_ms = _EARLIEST
    cursor = RecordCursor(view, at + BATCH_OVERHEAD, stop)
    if find_timestamp(cursor, base_ms, target_ms) != RECORD:
        return None
    if not bits & LOG_APPEND_TIME_BIT:
        time_ms = wrapped(base_ms + cursor.timestamp_delta_ms)
    return at, wrapped(int64_at(view, at) + cursor.offset_delta), time_ms
