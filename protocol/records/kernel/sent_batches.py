"""The batches of the usual producers, many at a time: checked and stamped in one go.

Usual are batches that are not compressed and have nothing about them but records. It runs as it is
and compiled, as `walk` does, whose walk has passed the batches.
"""

from typing import Final

from ..latency import LatencyCounts
from ..layout import (
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_OVERHEAD,
    ENTRY_OVERHEAD,
    LAST_DELTA_AT,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    NO_PRODUCER_ID,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    SIZE_AT,
    Buffer,
)
from .record_check import RecordTally
from .record_cursor import NO_MORE, RecordCursor

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import bytes_of, crc32c_at, int32_at, int64_at, put_int32, put_int64

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

_OVERHEAD, _ENTRY_OVERHEAD = BATCH_OVERHEAD, ENTRY_OVERHEAD
_SIZE, _MAGIC, _CRC = SIZE_AT, MAGIC_AT, BATCH_CRC_AT
_ATTRIBUTES, _LAST_DELTA, _RECORDS = BATCH_ATTRIBUTES_AT, LAST_DELTA_AT, RECORD_COUNT_AT
_BASE_TIME, _MAX_TIME = BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT
_PRODUCER_ID, _PRODUCER_EPOCH, _SEQUENCE = PRODUCER_ID_AT, PRODUCER_EPOCH_AT, BASE_SEQUENCE_AT
_NO_PRODUCER: Final = NO_PRODUCER_ID
_NO_MORE: Final = NO_MORE
_APPEND_TIME: Final = LOG_APPEND_TIME_BIT


class UsualBatches:
    """What is in sets of usual batches.

    first_offsets: of each set, as it stands in its first batch.
    numbered: for each batch of a producer that numbers its batches, in their order: which set that
        is, producer id, epoch, sequence number of the first record, records. It is alone in its
        set.
    min_timestamp_ms: the smallest of the records' that is not -1; -1 without any. Can be below -1.
    max_timestamp_ms: the largest, -1 without any.
    true_times: whether each batch's largest timestamp is what its header says.
    latency: against `now_ms`, by the rules of `Walk.latency`.
    """

    __slots__ = (
        "first_offsets",
        "latency",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "numbered",
        "true_times",
    )

    first_offsets: list[int]
    numbered: list[tuple[int, int, int, int, int]]
    min_timestamp_ms: int
    max_timestamp_ms: int
    true_times: bool
    latency: LatencyCounts | None


def check_usual(buffer: Buffer, set_ends: list[int], now_ms: int) -> UsualBatches | None:
    """Check the batches of the sets that stand one behind the other in `buffer`.

    Their ends rise, the last one is no more than the buffer's; `now_ms` >= 0 is for the latencies.
    `None` when something is wrong with one of them, and when one is not usual: it is compressed, or
    has any other attribute, or its producer's number is none, or a set is empty.
    """
    return _check_usual(memoryview(buffer), set_ends, now_ms)


def _check_usual(view: memoryview, set_ends: list[int], now_ms: int) -> UsualBatches | None:
    data = bytes_of(view)
    whole = len(view)
    cursor = RecordCursor(view, 0, 0)
    tally = RecordTally(now_ms)
    first_offsets: list[int] = []
    numbered: list[tuple[int, int, int, int, int]] = []
    true_times = True
    position = 0
    for end in set_ends:
        start = position
        if end > whole or start >= end:
            return None
        first_offsets.append(int64_at(data, start))
        while position < end:
            if end - position < _OVERHEAD or data[position + _MAGIC] != 2:
                return None
            stop = position + _ENTRY_OVERHEAD + int32_at(data, position + _SIZE)
            if stop - position < _OVERHEAD or stop > end:
                return None
            if data[position + _ATTRIBUTES] or data[position + _ATTRIBUTES + 1]:
                return None
            cursor.begin(position + _OVERHEAD, stop)
            if tally.add(cursor, int64_at(data, position + _BASE_TIME)) != _NO_MORE:
                return None
            records = int32_at(data, position + _RECORDS)
            if (
                records != tally.count
                or not records
                or int32_at(data, position + _LAST_DELTA) != records - 1
            ):
                return None
            if int64_at(data, position + _MAX_TIME) != tally.max_timestamp_ms:
                true_times = False
            producer_id = int64_at(data, position + _PRODUCER_ID)
            if producer_id != _NO_PRODUCER:
                # The epoch is the upper half of the 32 bits that begin with it.
                epoch = int32_at(data, position + _PRODUCER_EPOCH) >> 16
                sequence = int32_at(data, position + _SEQUENCE)
                if producer_id < 0 or epoch < 0 or sequence < 0:
                    return None
                if position != start or stop != end:
                    return None
                numbered.append((len(first_offsets) - 1, producer_id, epoch, sequence, records))
            position = stop
    found = UsualBatches.__new__(UsualBatches)
    found.first_offsets = first_offsets
    found.numbered = numbered
    found.min_timestamp_ms = tally.all_min_ms
    found.max_timestamp_ms = tally.all_max_ms
    found.true_times = true_times
    found.latency = tally.latency()
    return found


def stamp_batches(buffer: bytearray | memoryview, end: int, append_time_ms: int) -> None:
    """Give the batches that `buffer[:end]` is made of their append time, as `set_times_in_place`
    does."""
    _stamp_batches(memoryview(buffer), end, append_time_ms)


def _stamp_batches(view: memoryview, end: int, append_time_ms: int) -> None:
    if end > len(view):
        raise IndexError(f"no bytes 0 to {end} in a buffer of {len(view)}")
    if view.readonly:
        raise TypeError("times cannot be written into a buffer that is read-only")
    data = bytes_of(view)
    position = 0
    while end - position >= _OVERHEAD:
        stop = position + _ENTRY_OVERHEAD + int32_at(data, position + _SIZE)
        if stop - position < _OVERHEAD or stop > end:
            return
        data[position + _ATTRIBUTES + 1] |= _APPEND_TIME
        put_int64(data, position + _MAX_TIME, append_time_ms)
        crc = crc32c_at(data, position + _ATTRIBUTES, stop - position - _ATTRIBUTES)
        put_int32(data, position + _CRC, crc)
        position = stop
