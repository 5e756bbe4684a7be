"""The fast path of appends in plain Python: what the compiled `take_unchanged` is compared with.

It takes a set at a time, by the functions of the kernel's Python form.
"""

from array import array
from typing import Final

from horolog.protocol.records.kernel.reference.bytes import (
    INT16,
    LARGEST_INT32,
    LARGEST_INT64,
    flat,
    int32_at,
    int64_at,
)
from horolog.protocol.records.kernel.reference.messages import stamp
from horolog.protocol.records.kernel.reference.records import RecordsFound, check_records
from horolog.protocol.records.kernel.reference.spans import entry_spans
from horolog.protocol.records.kernel.reference.unchanged import UnchangedSets
from horolog.protocol.records.kernel.reference.walk import Walk, walk
from horolog.protocol.records.kernel.terms import NO_MORE, Offsets, Problem
from horolog.protocol.records.latency import LatencyCounts
from horolog.protocol.records.layout import (
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

BATCHES_ALONE: Final = 1 << 2
"""`Walk.magics` of batches, whose magic is 2."""


def _begun(
    data: memoryview, base_offset: int, since_bytes: int, largest_ms: int, now_ms: int
) -> UnchangedSets:
    """The result before any set is taken."""
    found = UnchangedSets()
    found.data, found.first_offsets, found.spans = data, [], None
    found.last_offset, found.literal = base_offset - 1, False
    found.since_bytes, found.largest_ms = since_bytes, largest_ms
    found.latency = LatencyCounts() if now_ms >= 0 else None
    return found


def _add(taken: UnchangedSets, found: Walk) -> None:
    """Take the set that `found` is the walk over."""
    if not taken.first_offsets:
        taken.first_offset, taken.first_timestamp_ms = found.first_offset, found.first_timestamp_ms
    taken.first_offsets.append(found.first_offset)
    if found.untimed < found.count:
        is_first = taken.untimed == taken.count
        if is_first or found.max_timestamp_ms > taken.max_timestamp_ms:
            taken.max_timestamp_ms = found.max_timestamp_ms
            taken.max_position, taken.max_offset = found.max_position, found.max_offset
        if is_first or found.min_timestamp_ms < taken.min_timestamp_ms:
            taken.min_timestamp_ms = found.min_timestamp_ms
    for name in ("count", "batches", "untimed", "magic_changes"):
        setattr(taken, name, getattr(taken, name) + getattr(found, name))
    for name in ("end", "problem_position", "last_offset", "since_bytes", "largest_ms"):
        setattr(taken, name, getattr(found, name))
    taken.magics |= found.magics
    taken.codecs |= found.codecs
    taken.largest_entry_bytes = max(taken.largest_entry_bytes, found.largest_entry_bytes)
    if len(taken.marks):
        taken.marks.extend(found.marks)
    else:
        taken.marks = found.marks
    if taken.latency is not None and found.latency is not None:
        taken.latency.add(found.latency)


def _stamp(taken: UnchangedSets, append_time_ms: int, largest_ms: int) -> None:
    """Give all sets an append time; `largest_ms` is the largest timestamp before them."""
    stamp(taken.data, 0, taken.end, append_time_ms)
    taken.first_timestamp_ms = taken.max_timestamp_ms = append_time_ms
    taken.max_position, taken.max_offset = 0, taken.first_offset
    if taken.data[MAGIC_AT] == BATCH_MAGIC:
        taken.max_offset += int32_at(taken.data, LAST_DELTA_AT)
    taken.largest_ms = max(largest_ms, append_time_ms)
    if len(taken.marks):  # No later one has a larger time than the first.
        taken.marks.timestamps_ms = array("q", [taken.largest_ms])
        taken.marks.next_offsets = array("i", [taken.marks.offsets[0] + 1])


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
    """`reference.take_unchanged`, as it says that the compiled form is."""
    in_place = len(record_sets) == 1 and not memoryview(record_sets[0]).readonly
    size_bytes = min(sum(map(len, record_sets)), max(room_bytes, 0))
    data = flat(record_sets[0] if in_place else bytearray(size_bytes))
    taken = _begun(data, base_offset, since_bytes, largest_ms, now_ms)
    place = magic, interval_bytes, segment_offset, segment_position
    times = now_ms, append_time_ms, lowest_ms, highest_ms
    bounds = magics, entry_max_bytes, room_bytes, marks_max
    _take(taken, record_sets, in_place, place, times, bounds, keyed=keyed)
    if not taken.first_offsets:
        return None
    _finish(taken, append_time_ms, largest_ms, (close_ms, block_bytes, block_since_bytes))
    return taken


def _take(
    taken: UnchangedSets,
    record_sets: list[Buffer],
    in_place: bool,
    place: tuple[int, int, int, int],
    times: tuple[int, int, int, int],
    bounds: tuple[int, int, int, int],
    *,
    keyed: bool,
) -> None:
    """Take sets up to the first that cannot stay unchanged or breaks a bound. The tuples are
    arguments of `take_unchanged`."""
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
        _add(taken, found)


def _finish(
    taken: UnchangedSets, append_time_ms: int, largest_ms: int, blocks: tuple[int, int, int]
) -> None:
    """Give the sets that were taken their append time, or note their times for blocks of the time
    map: apart by how many ms, of how many bytes, with how many in front of the sets."""
    taken.data = taken.data[: taken.end]
    if taken.min_timestamp_ms < NO_TIMESTAMP and taken.latency is not None:
        taken.latency = LatencyCounts(untimed=taken.count)
    close_ms, block_bytes, since_bytes = blocks
    if append_time_ms >= 0:
        _stamp(taken, append_time_ms, largest_ms)
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
    taken: UnchangedSets, first_offset: int, close_ms: int, block_bytes: int, since_bytes: int
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
        records = _unchanged_records(data, position, stop, now_ms, is_alone=is_alone, keyed=keyed)
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


def _unchanged_records(
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
