"""The fast path of appends: record sets that are stored unchanged except for offsets and append
times.

Such a set consists of good messages alone, or of good batches alone. Nothing in it is compressed or
has an append time. A batch has no other attribute either, and consecutive offsets; its header has
the largest timestamp of its records, unless it gets an append time. A batch with a producer id is
alone in its set.

Only the compiled form has this path, because it pays off only where handling a set costs less than
a call. In Python each set is admitted by itself, with the same result.
"""

from ...layout import (
    BASE_SEQUENCE_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    MAGIC_AT,
    NO_PRODUCER_ID,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    Buffer,
)
from .bytes import INT16, flat, int32_at, int64_at
from .walk import Walk


class UnchangedSets(Walk):
    """Result of `take_unchanged`: a walk over the sets as they are stored, one after the other.

    The times of batches are those of their records. If the sets get an append time,
    `min_timestamp_ms`, `untimed`, `append_time_bits` and `last_append_time_ms` still describe the
    sets as sent. `literal` is always false.

    data: bytes of the sets.
    first_offsets: first offset of each set.
    latency: latencies of all sets, as sent.
    spans: rows of the messages' times (`time_blocks`), their first offset, and the size of the time
        map's current block before the sets and after them. `None` if no rows were requested, and if
        the times exceed the room for them (4,096 of a set, or 16 blocks).
    """

    __slots__ = ("data", "first_offsets", "spans")

    data: memoryview
    first_offsets: list[int]
    spans: tuple[bytes, int, int, int] | None


def producer_numbers(record_sets: list[Buffer]) -> list[tuple[int, int, int, int, int]]:
    """For each set whose first batch has a producer id: the set's index, producer id, epoch, first
    sequence number and record count, as in the header of that batch."""
    found: list[tuple[int, int, int, int, int]] = []
    for number, record_set in enumerate(record_sets):
        view = flat(record_set)
        if len(view) >= BATCH_OVERHEAD and view[MAGIC_AT] == BATCH_MAGIC:
            producer_id = int64_at(view, PRODUCER_ID_AT)
            if producer_id != NO_PRODUCER_ID:
                (epoch,) = INT16.unpack_from(view, PRODUCER_EPOCH_AT)
                sequence = int32_at(view, BASE_SEQUENCE_AT)
                records = int32_at(view, RECORD_COUNT_AT)
                found.append((number, producer_id, epoch, sequence, records))
    return found


def take_unchanged(
    record_sets: list[Buffer],
    *,
    base_offset: int,
    now_ms: int,
    magics: int,
    append_time_ms: int,
    lowest_ms: int,
    highest_ms: int,
    entry_max_bytes: int,
    room_bytes: int,
    marks_max: int,
    interval_bytes: int,
    since_bytes: int,
    largest_ms: int,
    magic: int,
    segment_offset: int,
    segment_position: int,
    close_ms: int = 0,
    block_bytes: int = 0,
    block_since_bytes: int = 0,
    keyed: bool = False,
) -> UnchangedSets | None:
    """Take sets up to the first that cannot be stored unchanged; `None` if that is the first set.

    This form takes none. The compiled form takes a set under these conditions: the format of every
    entry has its bit (`1 << magic`) in `magics`. Every timestamp is -1 or from `lowest_ms` to
    `highest_ms`; if the sets get an append time, only that one has to be at most `highest_ms`. No
    entry is larger than `entry_max_bytes`, header included. The set fits into the rest of
    `room_bytes`, and an index can hold its offsets. All sets together have at most `marks_max`
    marks, and no set follows the last of them. With `keyed`, every message has a key.

    The sets get offsets from `base_offset` on, and `append_time_ms` unless it is -1. A single
    writable set is changed in place (not its content), even if it is not taken; other sets are
    copied. The remaining arguments are those of `walk`.

    With `block_bytes` the result has `spans`, unless the sets get an append time: the rows of
    `entry_spans` if times are more than `close_ms` apart or only some messages have one, otherwise
    a single row. `block_since_bytes` is the size of the current block before the sets.
    """
    return None
