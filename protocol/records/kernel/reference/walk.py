"""The one walk over a message set, and the short ones that look at heads alone."""

from bisect import bisect_left
from collections.abc import Sequence
from zlib import crc32 as crc32

from .....values import value_class
from ...latency import LATENCY_BUCKETS_MS, LatencyCounts
from ...layout import (
    ATTRIBUTES_AT,
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CRC_AT,
    ENTRY_OVERHEAD,
    LAST_DELTA_AT,
    LEADER_EPOCH_AT,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    RECORD_COUNT_AT,
    SIZE_AT,
    TIMESTAMP_AT,
    Buffer,
)
from ...marks import NO_MARKS, Marks
from ..terms import BAD_OFFSET, BAD_SIZE, NOT_FOUND, Offsets, Problem
from .bytes import (
    HEAD,
    HIGHEST_CODEC,
    HIGHEST_MESSAGE_CODEC,
    INT32,
    INT64,
    LARGEST_INT32,
    LARGEST_INT64,
    LENGTH_BYTES,
    TIME_BYTES,
    UINT32,
    V0_OVERHEAD,
    V1_OVERHEAD,
    flat,
    int32_at,
    int64_at,
    part,
)


def crc32c(buffer: Buffer, start: int, end: int) -> int:
    """CRC-32C of `buffer[start:end]`. The library wants bytes and nothing else."""
    import google_crc32c  # only record batches have it

    view = flat(buffer)
    if not 0 <= start <= end <= len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    crc: int = google_crc32c.value(bytes(view[start:end]))
    return crc


class Walk:
    """What a walk found: everything here is about the good entries before `end`.

    end: position after the last good entry.
    count: how many messages there are; a wrapper counts as one, a batch as its records.
    batches: how many of the entries are batches.
    first_offset, last_offset: as stored, or as assigned; -1 when there is no entry. For a batch
        the first is that of its first record, the last that of its last.
    magics: bit `1 << magic` for each magic met.
    codecs: bit `1 << codec` for each codec met.
    last_codec: codec of the last compressed entry, else 0.
    literal: the offsets as sent were 0, 1, ..., count - 1.
    min_timestamp_ms, max_timestamp_ms: over the timestamps that are not -1 (a broken sender's can
        be below it); -1 without any.
    max_position, max_offset: the first entry that has the largest timestamp; -1 without any. The
        timestamp of a batch is the largest of its records', its offset here that of the last one.
    first_timestamp_ms: of the first entry, -1 for none.
    last_append_time_ms: timestamp of the last entry if a broker stamped it (bit 3), else -1.
    append_time_bits: how many v1 and v2 entries have bit 3.
    untimed: how many messages have no timestamp, those of v0 included; of a batch all or none.
    largest_entry_bytes: of the largest entry, the 12 bytes in front of it included.
    problem: why the walk stopped.
    problem_position: where the entry begins that stopped it; `end` without a problem.
    marks: index marks, as far as an index entry can hold them.
    since_bytes: bytes since the last mark.
    largest_ms: the larger of `max_timestamp_ms` and the `largest_ms` passed in.
    magic_changes: position and magic of each entry whose magic is not that of the entry before.
    latency: latencies against `now_ms`, if they were asked for. A set with a timestamp below -1,
        which cannot be one, has none: all its messages are `untimed`. `None` also when there are
        batches: only their records know (`check_records`).
    """

    __slots__ = (
        "append_time_bits",
        "batches",
        "codecs",
        "count",
        "end",
        "first_offset",
        "first_timestamp_ms",
        "largest_entry_bytes",
        "largest_ms",
        "last_append_time_ms",
        "last_codec",
        "last_offset",
        "latency",
        "literal",
        "magic_changes",
        "magics",
        "marks",
        "max_offset",
        "max_position",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "problem",
        "problem_position",
        "since_bytes",
        "untimed",
    )

    def __init__(self) -> None:
        self.end = self.problem_position = self.count = self.batches = 0
        self.first_offset = self.last_offset = -1
        self.magics = self.codecs = self.last_codec = 0
        self.literal = True
        self.min_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP
        self.max_position = self.max_offset = -1
        self.first_timestamp_ms = self.last_append_time_ms = NO_TIMESTAMP
        self.append_time_bits = self.untimed = self.largest_entry_bytes = 0
        self.problem = Problem.NONE
        self.marks = NO_MARKS
        self.since_bytes = 0
        self.largest_ms = NO_TIMESTAMP
        self.magic_changes: list[tuple[int, int]] = []
        self.latency: LatencyCounts | None = None


@value_class
class _Entry:
    """The fields of an entry, all of whose bytes are there and good."""

    stop: int
    offset: int
    magic: int
    attributes: int
    time_ms: int
    records: int
    delta: int
    """From the offset to that of the last record."""


def _read_entry(view: memoryview, position: int, end: int, check_crc: bool) -> _Entry | Problem:
    """The entry at `position`, or what is wrong with it."""
    if end - position < ENTRY_OVERHEAD:
        return Problem.PARTIAL
    offset, size = HEAD.unpack_from(view, position)
    stop = position + ENTRY_OVERHEAD + size
    if size < V0_OVERHEAD:
        return Problem.SIZE
    if stop > end:
        return Problem.PARTIAL
    magic = view[position + MAGIC_AT]
    if magic < BATCH_MAGIC:
        return _read_message(view, position, stop, offset, magic, check_crc)
    if magic == BATCH_MAGIC:
        return _read_batch(view, position, stop, offset, check_crc)
    return Problem.MAGIC


def _read_message(
    view: memoryview, position: int, stop: int, offset: int, magic: int, check_crc: bool
) -> _Entry | Problem:
    """The plain message or wrapper that is all of `view[position:stop]`, or what is wrong."""
    body_bytes = stop - position - ENTRY_OVERHEAD - MESSAGE_OVERHEAD[magic]
    if body_bytes < 0:
        return Problem.SIZE
    if check_crc:
        (stored,) = UINT32.unpack_from(view, position + CRC_AT)
        if crc32(view[position + MAGIC_AT : stop]) != stored:
            return Problem.CRC
    key_at = position + TIMESTAMP_AT + (TIME_BYTES if magic else 0)
    (key_bytes,) = INT32.unpack_from(view, key_at)
    if key_bytes > 0:
        key_at += key_bytes
        body_bytes -= key_bytes
        if body_bytes < 0:
            return Problem.LENGTHS
    (value_bytes,) = INT32.unpack_from(view, key_at + LENGTH_BYTES)
    if value_bytes != body_bytes and (value_bytes >= 0 or body_bytes > 0):
        return Problem.LENGTHS
    attributes = view[position + ATTRIBUTES_AT]
    if attributes & CODEC_MASK > HIGHEST_MESSAGE_CODEC:
        return Problem.CODEC
    time_ms = INT64.unpack_from(view, position + TIMESTAMP_AT)[0] if magic else NO_TIMESTAMP
    return _Entry(stop, offset, magic, attributes, time_ms, 1, 0)


def _read_batch(
    view: memoryview, position: int, stop: int, offset: int, check_crc: bool
) -> _Entry | Problem:
    """The batch that is all of `view[position:stop]`, or what is wrong with it."""
    problem = batch_problem(view, position, stop, check_crc)
    if problem:
        return Problem(problem)
    return _Entry(
        stop,
        offset,
        2,
        view[position + BATCH_ATTRIBUTES_AT + 1],
        int64_at(view, position + MAX_TIMESTAMP_AT),
        int32_at(view, position + RECORD_COUNT_AT),
        int32_at(view, position + LAST_DELTA_AT),
    )


def batch_problem(view: memoryview, position: int, stop: int, check_crc: bool) -> int:
    """The `Problem` of the batch that is all of `view[position:stop]`, 0 for none.

    A compaction leaves fewer records than offsets, so only more are a fault.
    """
    if not 0 <= position < stop <= len(view) or stop - position < BATCH_OVERHEAD:
        return Problem.SIZE
    if check_crc:
        (stored,) = UINT32.unpack_from(view, position + BATCH_CRC_AT)
        if crc32c(view, position + BATCH_ATTRIBUTES_AT, stop) != stored:
            return Problem.CRC
    if view[position + BATCH_ATTRIBUTES_AT + 1] & CODEC_MASK > HIGHEST_CODEC:
        return Problem.CODEC
    delta = int32_at(view, position + LAST_DELTA_AT)
    records = int32_at(view, position + RECORD_COUNT_AT)
    if records < 0 or delta < 0 or records - 1 > delta:
        return Problem.COUNT
    return Problem.NONE


def walk(
    buffer: Buffer,
    start: int,
    end: int,
    *,
    offsets: Offsets = Offsets.ANY,
    base_offset: int = 0,
    check_crc: bool = True,
    now_ms: int = -1,
    interval_bytes: int = -1,
    since_bytes: int = 0,
    largest_ms: int = -1,
    magic: int = -1,
    segment_offset: int = 0,
    segment_position: int = 0,
) -> Walk:
    """Walk the entries of `buffer[start:end]`, shallow: wrappers and batches are not opened.

    The walk stops at `end` or at the first entry that is not good, and says which; no content
    makes it raise. `now_ms` >= 0 asks for latencies against that time. `interval_bytes` >= 0 asks
    for index marks: an entry gets one when more than that many bytes have gone by since the last,
    of which `since_bytes` before `start`; they are counted from a segment's base offset
    `segment_offset`, and `segment_position` is that of `start` in its log file. `magic` is that
    of the entry before `start`, if any.
    """
    view = part(buffer, start, end)
    is_assigning = offsets == Offsets.ASSIGN
    if is_assigning and view.readonly:
        raise TypeError("offsets cannot be assigned in a buffer that is read-only")
    found = Walk()
    times: list[int] = []
    marks = _MarksAt(segment_offset, segment_position - start, start - since_bytes)
    position, last_offset = start, base_offset - 1
    while position < end:
        entry = _read_entry(view, position, end, check_crc)
        if isinstance(entry, Problem):
            found.problem = entry
            break
        if is_assigning:
            offset = last_offset + 1
            _assign(view, position, entry, offset)
        elif _breaks_rule(entry, offsets, last_offset):
            found.problem = Problem.OFFSET
            break
        else:
            offset = entry.offset
        if entry.offset != found.count:
            found.literal = False
        if position == start:
            found.first_offset, found.first_timestamp_ms = offset, entry.time_ms
        last_offset = offset + entry.delta
        _add_kind(found, entry, position, magic)
        magic = entry.magic
        _add_time(found, entry, position, last_offset, times)
        if position - marks.marked_at > interval_bytes >= 0:
            marks.add(position, last_offset, max(largest_ms, found.max_timestamp_ms))
        position = entry.stop
    if position > start:
        found.last_offset = last_offset
    _add_times(found, times, now_ms)
    found.end = found.problem_position = position
    found.marks = marks.finish()
    found.since_bytes = position - marks.marked_at
    found.largest_ms = max(largest_ms, found.max_timestamp_ms)
    return found


def _breaks_rule(entry: _Entry, rule: Offsets, last_offset: int) -> bool:
    """Whether an entry's offset is not one that may follow `last_offset`."""
    offset = entry.offset
    if offset > LARGEST_INT64 - entry.delta:
        return True
    if rule == Offsets.ANY:
        return False
    if offset <= last_offset:
        return True
    is_exact = entry.magic == BATCH_MAGIC or not entry.attributes & CODEC_MASK
    return rule == Offsets.CONTIGUOUS and is_exact and offset != last_offset + 1


def _assign(view: memoryview, position: int, entry: _Entry, offset: int) -> None:
    """Write another offset into an entry; a batch then is of no leader epoch."""
    INT64.pack_into(view, position, offset)
    if entry.magic == BATCH_MAGIC:
        INT32.pack_into(view, position + LEADER_EPOCH_AT, NO_LEADER_EPOCH)


def _add_kind(found: Walk, entry: _Entry, position: int, magic_before: int) -> None:
    """Count an entry, and what it says of itself."""
    found.count += entry.records
    found.magics |= 1 << entry.magic
    if entry.magic != magic_before:
        found.magic_changes.append((position, entry.magic))
    codec = entry.attributes & CODEC_MASK
    found.codecs |= 1 << codec
    if codec:
        found.last_codec = codec
    if entry.magic == BATCH_MAGIC:
        found.batches += 1
    size = entry.stop - position
    if size > found.largest_entry_bytes:
        found.largest_entry_bytes = size


def _add_time(
    found: Walk, entry: _Entry, position: int, last_offset: int, times: list[int]
) -> None:
    """Count the timestamp of an entry; `times` are those of the entries that have one."""
    time_ms = entry.time_ms
    if entry.magic and entry.attributes & LOG_APPEND_TIME_BIT:
        found.append_time_bits += 1
        found.last_append_time_ms = time_ms
    else:
        found.last_append_time_ms = NO_TIMESTAMP
    if time_ms == NO_TIMESTAMP:
        found.untimed += entry.records
        return
    times.append(time_ms)
    if time_ms > found.max_timestamp_ms or found.max_position < 0:
        found.max_timestamp_ms = time_ms
        found.max_position, found.max_offset = position, last_offset


def _add_times(found: Walk, times: list[int], now_ms: int) -> None:
    """Count what all the timestamps together say."""
    if times:
        found.min_timestamp_ms = min(times)
    if now_ms >= 0 and not found.batches:
        found.latency = latency_of(times, found.untimed, now_ms)


class _MarksAt:
    """Index marks that are made on the way; `shift` makes a position one in the log file."""

    def __init__(self, base_offset: int, shift: int, marked_at: int) -> None:
        self._base_offset, self._shift = base_offset, shift
        self.marked_at = marked_at
        self._marks = Marks()

    def add(self, position: int, offset: int, largest_ms: int) -> None:
        """Mark the entry, if an index entry can hold it."""
        relative = offset - self._base_offset
        # The next offset is in the index too.
        if position + self._shift > LARGEST_INT32 or not 0 <= relative < LARGEST_INT32:
            return
        marks = self._marks
        marks.offsets.append(relative)
        marks.positions.append(position + self._shift)
        if largest_ms > (marks.timestamps_ms[-1] if marks.timestamps_ms else NO_TIMESTAMP):
            marks.timestamps_ms.append(largest_ms)
            marks.next_offsets.append(relative + 1)
        self.marked_at = position

    def finish(self) -> Marks:
        return self._marks if len(self._marks) else NO_MARKS


def latency_of(times: Sequence[int], untimed: int, now_ms: int) -> LatencyCounts:
    """Latencies of messages with these times. A time below -1 cannot be one, and spoils all."""
    if not times or min(times) < NO_TIMESTAMP:
        return LatencyCounts(untimed=untimed + len(times))
    found = LatencyCounts(untimed=untimed)
    latencies_ms = [now_ms - time_ms if time_ms < now_ms else 0 for time_ms in times]
    for latency_ms in latencies_ms:
        found.counts[bisect_left(LATENCY_BUCKETS_MS, latency_ms)] += 1
    if max(times) > now_ms:
        found.skewed = sum(time_ms > now_ms for time_ms in times)
    found.sum_ms = sum(latencies_ms)
    found.max_ms = max(latencies_ms)
    return found


def scan_offset(buffer: Buffer, start: int, end: int, target_offset: int) -> tuple[int, int]:
    """Find the first entry whose offset, for a batch its last one, is >= `target_offset`.

    Returns `(position, stopped)`: the entry's position, or `NOT_FOUND`, `BAD_SIZE`, `BAD_OFFSET`,
    and the position of the first entry that was not passed. A batch counts as soon as
    `LAST_DELTA_AT` and what is there are in the buffer, a message as soon as its first 17 bytes
    are. No CRC is verified.
    """
    view = part(buffer, start, end)
    last = -1
    position = start
    while end - position >= ENTRY_OVERHEAD:
        offset, size = HEAD.unpack_from(view, position)
        if size < V0_OVERHEAD:
            return BAD_SIZE, position
        if offset <= last:
            return BAD_OFFSET, position
        if end - position <= MAGIC_AT:
            break
        if view[position + MAGIC_AT] == BATCH_MAGIC:
            if end - position < LAST_DELTA_AT + LENGTH_BYTES:
                break
            delta = int32_at(view, position + LAST_DELTA_AT)
            if delta < 0 or offset > LARGEST_INT64 - delta:
                return BAD_OFFSET, position
            offset += delta
        if offset >= target_offset:
            return position, position
        last = offset
        position += ENTRY_OVERHEAD + size
    return NOT_FOUND, position


def scan_timestamp(buffer: Buffer, start: int, end: int, target_ms: int) -> tuple[int, int]:
    """Find the first complete v1 entry, or batch, whose own timestamp is >= `target_ms`.

    That of a wrapper or batch is the largest of its messages', so one that is returned has to be
    opened. Entries of v0 have no time and never match. Returns as `scan_offset` does.
    """
    view = part(buffer, start, end)
    position = start
    while end - position >= ENTRY_OVERHEAD:
        size = int32_at(view, position + SIZE_AT)
        if size < V0_OVERHEAD:
            return BAD_SIZE, position
        following = position + ENTRY_OVERHEAD + size
        if following > end:
            break
        magic = view[position + MAGIC_AT]
        if magic in (1, 2):
            if size < (V1_OVERHEAD if magic == 1 else BATCH_OVERHEAD - ENTRY_OVERHEAD):
                return BAD_SIZE, position
            time_at = TIMESTAMP_AT if magic == 1 else MAX_TIMESTAMP_AT
            if int64_at(view, position + time_at) >= target_ms:
                return position, position
        position = following
    return NOT_FOUND, position
