"""Sets that are stored as they were sent, but for offsets and append times.

A usual set is one of good messages alone, or of good batches alone. Nothing in it is compressed or
says that it has an append time, and a batch has no other attribute either, consecutive offsets and
the largest timestamp that its header says, unless it gets an append time; one with a producer's
number is alone in its set.
"""

from array import array
from typing import Final

from ...latency import LatencyCounts
from ...layout import (
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_ATTRIBUTES_AT,
    BATCH_MAGIC,
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
from ..terms import NO_MORE, Offsets, Problem
from .bytes import INT16, LARGEST_INT32, LARGEST_INT64, flat, int32_at, int64_at
from .messages import stamp
from .records import RecordsFound, check_records
from .spans import entry_spans
from .walk import Walk, walk

BATCHES_ALONE: Final = 1 << 2
"""`Walk.magics` of batches, whose magic is 2."""


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

    def __init__(
        self, data: memoryview, base_offset: int, since_bytes: int, largest_ms: int, now_ms: int
    ) -> None:
        super().__init__()
        self.data = data
        self.first_offsets: list[int] = []
        self.last_offset, self.literal = base_offset - 1, False
        self.since_bytes, self.largest_ms = since_bytes, largest_ms
        self.latency = LatencyCounts() if now_ms >= 0 else None
        self.spans: tuple[bytes, int, int, int] | None = None

    def add(self, found: Walk) -> None:
        """Take a set that follows, which `found` is the walk over."""
        if not self.first_offsets:
            self.first_offset, self.first_timestamp_ms = (
                found.first_offset,
                found.first_timestamp_ms,
            )
        self.first_offsets.append(found.first_offset)
        if found.untimed < found.count:
            is_first = self.untimed == self.count
            if is_first or found.max_timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = found.max_timestamp_ms
                self.max_position, self.max_offset = found.max_position, found.max_offset
            if is_first or found.min_timestamp_ms < self.min_timestamp_ms:
                self.min_timestamp_ms = found.min_timestamp_ms
        for name in ("count", "batches", "untimed", "magic_changes"):
            setattr(self, name, getattr(self, name) + getattr(found, name))
        for name in ("end", "problem_position", "last_offset", "since_bytes", "largest_ms"):
            setattr(self, name, getattr(found, name))
        self.magics |= found.magics
        self.codecs |= found.codecs
        self.largest_entry_bytes = max(self.largest_entry_bytes, found.largest_entry_bytes)
        if len(self.marks):
            self.marks.extend(found.marks)
        else:
            self.marks = found.marks
        if self.latency is not None and found.latency is not None:
            self.latency.add(found.latency)

    def stamp(self, append_time_ms: int, largest_ms: int) -> None:
        """Give all sets an append time; `largest_ms` is the largest timestamp in front of them."""
        stamp(self.data, 0, self.end, append_time_ms)
        self.first_timestamp_ms = self.max_timestamp_ms = append_time_ms
        self.max_position, self.max_offset = 0, self.first_offset
        if self.data[MAGIC_AT] == BATCH_MAGIC:
            self.max_offset += int32_at(self.data, LAST_DELTA_AT)
        self.largest_ms = max(largest_ms, append_time_ms)
        if len(self.marks):  # No later one has a larger time than the first.
            self.marks.timestamps_ms = array("q", [self.largest_ms])
            self.marks.next_offsets = array("i", [self.marks.offsets[0] + 1])


def producer_numbers(record_sets: list[Buffer]) -> list[tuple[int, int, int, int, int]]:
    """For each set that begins with a batch that its producer numbered: which of the sets it is,
    producer id, epoch, sequence number of the first record, records; as that batch says."""
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
    keyed: bool = False,
) -> UsualSets | None:
    """Take sets up to the first that is not usual; `None` if that is the first of all.

    The formats of a usual set have bits (`1 << magic`) in `magics`. Its messages have no timestamp,
    or one from `lowest_ms` to `highest_ms`; where they get an append time, that one is to be no
    later than `highest_ms` instead. Its entries, header included, are not larger than
    `entry_max_bytes`. It fits into what is left of `room_bytes`, and an index can hold its offsets.
    All sets together have at most `marks_max` marks, and no set is taken behind the last of so
    many.

    The sets get offsets from `base_offset` on, and `append_time_ms` if it is not -1. A single set
    that can be written is changed in place, and may be even if it is not taken, but for its
    content; others are copied. Other arguments are those of `walk`.

    Where messages are to be `keyed`, a set with one that has no key is not usual.

    With `block_bytes` there are `spans`, unless the sets get an append time: as `entry_spans` makes
    them of times that are more than `close_ms` apart or that some messages have and some have not,
    else one row. `block_since_bytes` is what a block has in front of the sets.
    """
    in_place = len(record_sets) == 1 and not memoryview(record_sets[0]).readonly
    size_bytes = min(sum(map(len, record_sets)), max(room_bytes, 0))
    data = flat(record_sets[0] if in_place else bytearray(size_bytes))
    taken = UsualSets(data, base_offset, since_bytes, largest_ms, now_ms)
    place = magic, interval_bytes, segment_offset, segment_position
    times = now_ms, append_time_ms, lowest_ms, highest_ms
    bounds = magics, entry_max_bytes, room_bytes, marks_max
    _take(taken, record_sets, in_place, place, times, bounds, keyed=keyed)
    if not taken.first_offsets:
        return None
    _finish(taken, append_time_ms, largest_ms, (close_ms, block_bytes, block_since_bytes))
    return taken


def _take(
    taken: UsualSets,
    record_sets: list[Buffer],
    in_place: bool,
    place: tuple[int, int, int, int],
    times: tuple[int, int, int, int],
    bounds: tuple[int, int, int, int],
    *,
    keyed: bool,
) -> None:
    """Take sets up to the first that is not usual or keeps not to a bound. The tuples are
    arguments of `take_usual`."""
    magic, interval_bytes, segment_offset, segment_position = place
    now_ms, append_time_ms, lowest_ms, highest_ms = times
    magics, entry_max_bytes, room_bytes, marks_max = bounds
    last_markable = segment_offset + min(LARGEST_INT32 - 1, LARGEST_INT64 - segment_offset)
    data = taken.data
    for record_set in record_sets:
        start, stop = taken.end, taken.end + len(record_set)
        if stop > room_bytes or len(taken.marks) >= marks_max:
            break
        if not in_place:
            data[start:stop] = record_set
        found = walk(
            *(data, start, stop),
            offsets=Offsets.ASSIGN,
            base_offset=taken.last_offset + 1,
            now_ms=now_ms,
            interval_bytes=interval_bytes,
            since_bytes=taken.since_bytes,
            largest_ms=taken.largest_ms,
            magic=taken.magic_changes[-1][1] if taken.magic_changes else magic,
            segment_offset=segment_offset,
            segment_position=segment_position + start,
            keyed=keyed,
        )
        if not _is_plain(found, magics) or not _count_records(
            data, start, found, now_ms, exact_times=append_time_ms < 0, keyed=keyed
        ):
            break
        newest_ms = found.max_timestamp_ms if append_time_ms < 0 else append_time_ms
        is_timed = found.untimed < found.count
        if (
            found.last_offset > last_markable
            or found.largest_entry_bytes > entry_max_bytes
            or len(taken.marks) + len(found.marks) > marks_max
            or (is_timed and (found.min_timestamp_ms < lowest_ms or newest_ms > highest_ms))
        ):
            break
        taken.add(found)


def _finish(
    taken: UsualSets, append_time_ms: int, largest_ms: int, blocks: tuple[int, int, int]
) -> None:
    """Give the sets that were taken their append time, or note their times for blocks of the time
    map: apart by how many ms, of how many bytes, with how many in front of the sets."""
    taken.data = taken.data[: taken.end]
    if taken.min_timestamp_ms < NO_TIMESTAMP and taken.latency is not None:
        taken.latency = LatencyCounts(untimed=taken.count)
    close_ms, block_bytes, since_bytes = blocks
    if append_time_ms >= 0:
        taken.stamp(append_time_ms, largest_ms)
    elif 0 <= since_bytes < block_bytes:
        first_offset = taken.first_offsets[0]
        rows, left = _spans(taken, first_offset, close_ms, block_bytes, since_bytes)
        taken.spans = rows, first_offset, since_bytes, left


def _is_plain(found: Walk, magics: int) -> bool:
    """Whether a set is of good messages alone, or of good batches alone, in formats that are in
    `magics`, and nothing in it is compressed or has an append time."""
    return (
        found.problem is Problem.NONE
        and found.codecs == 1
        and not found.append_time_bits
        and not found.magics & ~magics
        and (not found.batches or found.magics == BATCHES_ALONE)
    )


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


def _count_records(
    data: memoryview, start: int, found: Walk, now_ms: int, *, exact_times: bool, keyed: bool
) -> bool:
    """Put the times and latencies of the records of a set of batches into the walk over it. False
    at a batch that is not stored as it was sent."""
    if not found.batches:
        return True
    found.untimed, found.min_timestamp_ms, found.max_timestamp_ms = 0, NO_TIMESTAMP, NO_TIMESTAMP
    found.latency = LatencyCounts()
    smallest: list[int] = []
    largest: list[int] = []
    position = start
    while position < found.end:
        stop = position + ENTRY_OVERHEAD + int32_at(data, position + SIZE_AT)
        is_alone = (position, stop) == (start, found.end)
        records = _usual_records(data, position, stop, now_ms, is_alone=is_alone, keyed=keyed)
        if records is None:
            return False
        said_ms = int64_at(data, position + MAX_TIMESTAMP_AT)
        if exact_times and said_ms != records.max_timestamp_ms:
            return False
        if records.untimed < records.count:
            smallest.append(records.min_timestamp_ms)
            largest.append(records.max_timestamp_ms)
        found.untimed += records.untimed
        if records.latency is not None:
            found.latency.add(records.latency)
        position = stop
    found.min_timestamp_ms = min(smallest, default=NO_TIMESTAMP)
    found.max_timestamp_ms = max(largest, default=NO_TIMESTAMP)
    return True


def _usual_records(
    data: memoryview, position: int, stop: int, now_ms: int, *, is_alone: bool, keyed: bool
) -> RecordsFound | None:
    """The records of a batch that has no attributes, and a good producer's number if it has any:
    then it is alone in its set. Else `None`."""
    if any(data[position + BATCH_ATTRIBUTES_AT : position + BATCH_ATTRIBUTES_AT + 2]):
        return None
    producer_id = int64_at(data, position + PRODUCER_ID_AT)
    if producer_id != NO_PRODUCER_ID:
        (epoch,) = INT16.unpack_from(data, position + PRODUCER_EPOCH_AT)
        sequence = int32_at(data, position + BASE_SEQUENCE_AT)
        if min(producer_id, epoch, sequence) < 0 or not is_alone:
            return None
    found = check_records(
        data,
        position + BATCH_OVERHEAD,
        stop,
        base_timestamp_ms=int64_at(data, position + BASE_TIMESTAMP_AT),
        now_ms=now_ms,
        keyed=keyed,
    )
    said = int32_at(data, position + RECORD_COUNT_AT), int32_at(data, position + LAST_DELTA_AT)
    good = found.problem == NO_MORE and found.count > 0
    return found if good and said == (found.count, found.count - 1) else None
