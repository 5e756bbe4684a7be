"""The batches of the usual producers, many at a time: not compressed, and nothing in them but
records."""

from ...latency import LatencyCounts
from ...layout import (
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
    NO_TIMESTAMP,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    SIZE_AT,
    Buffer,
)
from ..terms import NO_MORE
from .bytes import INT16, INT64, UINT32, flat, int32_at, int64_at, part
from .records import RecordCursor, RecordTally
from .walk import crc32c


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

    def __init__(self) -> None:
        self.first_offsets: list[int] = []
        self.numbered: list[tuple[int, int, int, int, int]] = []
        self.min_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP
        self.true_times = True
        self.latency: LatencyCounts | None = None


def check_usual(buffer: Buffer, set_ends: list[int], now_ms: int) -> UsualBatches | None:  # noqa: C901 - the checks of one batch, in order
    """Check the batches of the sets that stand one behind the other in `buffer`.

    Their ends rise, the last one is no more than the buffer's; `now_ms` >= 0 is for the latencies.
    `None` when something is wrong with one of them, and when one is not usual: it is compressed, or
    has any other attribute, or its producer's number is none, or a set is empty.
    """
    view = flat(buffer)
    cursor = RecordCursor(view, 0, 0)
    tally = RecordTally(now_ms)
    found = UsualBatches()
    position = 0
    for end in set_ends:
        start = position
        if end > len(view) or end - start < ENTRY_OVERHEAD:
            return None
        found.first_offsets.append(int64_at(view, start))
        while position < end:
            if end - position < BATCH_OVERHEAD or view[position + MAGIC_AT] != 2:
                return None
            stop = position + ENTRY_OVERHEAD + int32_at(view, position + SIZE_AT)
            if stop - position < BATCH_OVERHEAD or stop > end:
                return None
            if any(view[position + BATCH_ATTRIBUTES_AT : position + BATCH_ATTRIBUTES_AT + 2]):
                return None
            cursor.begin(position + BATCH_OVERHEAD, stop)
            if tally.add(cursor, int64_at(view, position + BASE_TIMESTAMP_AT)) != NO_MORE:
                return None
            records = int32_at(view, position + RECORD_COUNT_AT)
            if records != tally.count or not records:
                return None
            if int32_at(view, position + LAST_DELTA_AT) != records - 1:
                return None
            if int64_at(view, position + MAX_TIMESTAMP_AT) != tally.max_timestamp_ms:
                found.true_times = False
            producer_id = int64_at(view, position + PRODUCER_ID_AT)
            if producer_id != NO_PRODUCER_ID:
                (epoch,) = INT16.unpack_from(view, position + PRODUCER_EPOCH_AT)
                sequence = int32_at(view, position + BASE_SEQUENCE_AT)
                if min(producer_id, epoch, sequence) < 0 or (position, stop) != (start, end):
                    return None
                number = len(found.first_offsets) - 1
                found.numbered.append((number, producer_id, epoch, sequence, records))
            position = stop
    found.min_timestamp_ms, found.max_timestamp_ms = tally.all_min_ms, tally.all_max_ms
    found.latency = tally.latency()
    return found


def stamp_batches(buffer: bytearray | memoryview, end: int, append_time_ms: int) -> None:
    """Give the batches that `buffer[:end]` is made of their append time, as `set_times_in_place`
    does."""
    view = part(buffer, 0, end)
    if view.readonly:
        raise TypeError("times cannot be written into a buffer that is read-only")
    position = 0
    while end - position >= BATCH_OVERHEAD:
        stop = position + ENTRY_OVERHEAD + int32_at(view, position + SIZE_AT)
        if stop - position < BATCH_OVERHEAD or stop > end:
            return
        view[position + BATCH_ATTRIBUTES_AT + 1] |= LOG_APPEND_TIME_BIT
        INT64.pack_into(view, position + MAX_TIMESTAMP_AT, append_time_ms)
        crc = crc32c(view, position + BATCH_ATTRIBUTES_AT, stop)
        UINT32.pack_into(view, position + BATCH_CRC_AT, crc)
        position = stop
