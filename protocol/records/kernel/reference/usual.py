"""Sets that are stored as they came, but for offsets and append times: as many as there are."""

from array import array

from ...latency import LatencyCounts
from ...layout import (
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    ENTRY_OVERHEAD,
    LAST_DELTA_AT,
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
from ..terms import NO_MORE, Offsets
from .bytes import INT16, LARGEST_INT32, LARGEST_INT64, flat, int32_at, int64_at
from .messages import stamp
from .records import RecordsFound, check_records
from .spans import entry_spans
from .walk import Walk, walk


class UsualSets(Walk):
    """The sets that were taken, as a walk over what is stored, one behind the other.

    The times of batches are their records'. Where the sets get an append time, `min_timestamp_ms`,
    `untimed`, `append_time_bits` and `last_append_time_ms` still say what was sent. `literal` is
    not looked at, and false.

    data: the bytes of the sets.
    first_offsets: of each of them.
    latency: of all of them, as they were sent.
    spans: rows of their messages' times (`time_blocks`), with their first offset, and how many
        bytes a block of the time map has in front of them and behind the last one that ended;
        `None` where they were not asked for, and where there are too many to be noted on the way
        (4,096 of a set, or 16 blocks).
    """

    __slots__ = ("data", "first_offsets", "spans")

    def __init__(self, data: memoryview, first_offsets: list[int]) -> None:
        super().__init__()
        self.data = data
        self.first_offsets = first_offsets
        self.spans: tuple[bytes, int, int, int] | None = None

    def take(self, whole: Walk) -> None:
        """Take what the walk over what is stored says, but for what only the sender's bytes say."""
        for name in Walk.__slots__:
            setattr(self, name, getattr(whole, name))
        self.literal = False
        self.append_time_bits, self.last_append_time_ms = 0, NO_TIMESTAMP


def producer_numbers(record_sets: list[Buffer]) -> list[tuple[int, int, int, int, int]]:
    """For each set that begins with a batch that its producer numbered: which of the sets it is,
    producer id, epoch, sequence number of the first record, records; as that batch says."""
    found: list[tuple[int, int, int, int, int]] = []
    for number, record_set in enumerate(record_sets):
        view = flat(record_set)
        if len(view) >= BATCH_OVERHEAD and view[MAGIC_AT] == 2:
            producer_id = int64_at(view, PRODUCER_ID_AT)
            if producer_id != NO_PRODUCER_ID:
                (epoch,) = INT16.unpack_from(view, PRODUCER_EPOCH_AT)
                sequence = int32_at(view, BASE_SEQUENCE_AT)
                records = int32_at(view, RECORD_COUNT_AT)
                found.append((number, producer_id, epoch, sequence, records))
    return found


def take_usual(
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
) -> UsualSets | None:
    """Take sets up to the first that is not usual; `None` if that is the first of all.

    A usual set is one of good messages alone, or of good batches alone, in formats whose bits
    (`1 << magic`) are in `magics`. Nothing in it is compressed or says that it has an append time,
    and a batch has no other attribute either, consecutive offsets and the largest timestamp that
    its header says, unless it gets an append time; one with a producer's number is alone in its
    set. Its messages have no timestamp, or one from `lowest_ms` to `highest_ms`; where they get an
    append time, that one is to be no later than `highest_ms` instead. Its entries, header included,
    are not larger than `entry_max_bytes`. It fits into what is left of `room_bytes`, and an index
    can hold its offsets. All sets together have at most `marks_max` marks, and no set is taken
    behind the last of so many.

    The sets get offsets from `base_offset` on, and `append_time_ms` if it is not -1. A single set
    that can be written is changed in place, and may be even if it is not taken, but for its
    content; others are copied. Other arguments are those of `walk`.

    With `block_bytes` there are `spans`, unless the sets get an append time: as `entry_spans` makes
    them of times that are more than `close_ms` apart or that some messages have and some have not,
    else one row. `block_since_bytes` is what a block has in front of the sets.
    """
    first_offset = base_offset
    last_markable = segment_offset + min(LARGEST_INT32 - 1, LARGEST_INT64 - segment_offset)
    kept = bytearray()
    offsets: list[int] = []
    latency = LatencyCounts()
    smallest: list[int] = []
    untimed = marks = 0
    since, largest = since_bytes, largest_ms
    in_place = len(record_sets) == 1 and not memoryview(record_sets[0]).readonly
    for record_set in record_sets:
        view = flat(record_set) if in_place else memoryview(bytearray(record_set))
        if len(view) > room_bytes - len(kept) or marks >= marks_max:
            break
        found = walk(
            *(view, 0, len(view)),
            offsets=Offsets.ASSIGN,
            base_offset=base_offset,
            now_ms=now_ms,
            interval_bytes=interval_bytes,
            since_bytes=since,
            largest_ms=largest,
            segment_offset=segment_offset,
            segment_position=segment_position + len(kept),
        )
        if not _is_usual(view, found, now_ms, magics, exact_times=append_time_ms < 0):
            break
        marks += len(found.marks)
        newest_ms = found.max_timestamp_ms if append_time_ms < 0 else append_time_ms
        is_timed = found.untimed < found.count
        if (
            found.last_offset > last_markable
            or found.largest_entry_bytes > entry_max_bytes
            or marks > marks_max
            or (is_timed and (found.min_timestamp_ms < lowest_ms or newest_ms > highest_ms))
        ):
            break
        offsets.append(base_offset)
        kept += view
        base_offset = found.last_offset + 1
        since, largest = found.since_bytes, max(found.largest_ms, append_time_ms)
        untimed += found.untimed
        if is_timed:
            smallest.append(found.min_timestamp_ms)
        if found.latency is not None:
            latency.add(found.latency)
    if not offsets:
        return None
    data = flat(record_sets[0]) if in_place else memoryview(kept)
    if append_time_ms >= 0:
        stamp(data, 0, len(data), append_time_ms)
    taken = UsualSets(data, offsets)
    whole = walk(
        *(data, 0, len(data)),
        check_crc=False,
        interval_bytes=interval_bytes,
        since_bytes=since_bytes,
        largest_ms=largest_ms,
        magic=magic,
        segment_offset=segment_offset,
        segment_position=segment_position,
    )
    taken.take(whole)
    taken.min_timestamp_ms = min(smallest, default=NO_TIMESTAMP)
    taken.untimed = untimed
    taken.latency = latency if now_ms >= 0 else None
    if append_time_ms < 0 and 0 <= block_since_bytes < block_bytes:
        rows, left = _spans(taken, first_offset, close_ms, block_bytes, block_since_bytes)
        taken.spans = rows, first_offset, block_since_bytes, left
    return taken


def _spans(
    taken: UsualSets, first_offset: int, close_ms: int, block_bytes: int, since_bytes: int
) -> tuple[bytes, int]:
    """Rows of sets, and what a block has behind the last one that ended."""
    size_bytes, lowest, highest = len(taken.data), taken.min_timestamp_ms, taken.max_timestamp_ms
    if taken.untimed == taken.count and close_ms >= 0:
        lowest = highest = NO_TIMESTAMP
    elif taken.untimed or lowest < 0 or highest - lowest > close_ms:
        rows, _, _, left = entry_spans(
            taken.data,
            0,
            block_bytes=block_bytes,
            since_bytes=since_bytes,
            next_offset=first_offset,
            check_crc=False,
        )
        return rows, left
    row = (size_bytes, taken.last_offset + 1 - first_offset, lowest, highest, taken.count, 1)
    left = since_bytes + size_bytes
    return array("q", row).tobytes(), left if left < block_bytes else 0


def _is_usual(
    view: memoryview, found: Walk, now_ms: int, magics: int, *, exact_times: bool
) -> bool:
    """Whether a set that `found` is the walk over is stored as it came; of one of batches the times
    and latencies of their records are noted in `found`."""
    if found.problem or found.codecs != 1 or found.append_time_bits or found.magics & ~magics:
        return False
    if not found.batches:
        return True
    if found.magics != 1 << 2:
        return False
    latency = LatencyCounts()
    found.untimed, found.max_timestamp_ms = 0, NO_TIMESTAMP
    smallest: list[int] = []
    largest: list[int] = []
    position = 0
    while position < len(view):
        stop = position + ENTRY_OVERHEAD + int32_at(view, position + SIZE_AT)
        records = _usual_records(view, position, stop, now_ms)
        if records is None:
            return False
        said_ms = int64_at(view, position + MAX_TIMESTAMP_AT)
        if exact_times and said_ms != records.max_timestamp_ms:
            return False
        if records.untimed < records.count:
            smallest.append(records.min_timestamp_ms)
            largest.append(records.max_timestamp_ms)
        found.untimed += records.untimed
        if records.latency is not None:
            latency.add(records.latency)
        position = stop
    found.min_timestamp_ms = min(smallest, default=NO_TIMESTAMP)
    found.max_timestamp_ms = max(largest, default=NO_TIMESTAMP)
    found.latency = latency
    return True


def _usual_records(view: memoryview, position: int, stop: int, now_ms: int) -> RecordsFound | None:
    """The records of a batch that has no attributes, and a good producer's number if it has any:
    then it is alone in its set. Else `None`."""
    if any(view[position + BATCH_ATTRIBUTES_AT : position + BATCH_ATTRIBUTES_AT + 2]):
        return None
    producer_id = int64_at(view, position + PRODUCER_ID_AT)
    if producer_id != NO_PRODUCER_ID:
        (epoch,) = INT16.unpack_from(view, position + PRODUCER_EPOCH_AT)
        sequence = int32_at(view, position + BASE_SEQUENCE_AT)
        if min(producer_id, epoch, sequence) < 0 or (position, stop) != (0, len(view)):
            return None
    found = check_records(
        view,
        position + BATCH_OVERHEAD,
        stop,
        base_timestamp_ms=int64_at(view, position + BASE_TIMESTAMP_AT),
        now_ms=now_ms,
    )
    said = int32_at(view, position + RECORD_COUNT_AT), int32_at(view, position + LAST_DELTA_AT)
    good = found.problem == NO_MORE and found.count > 0
    return found if good and said == (found.count, found.count - 1) else None
