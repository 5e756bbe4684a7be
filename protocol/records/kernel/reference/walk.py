"""The walk over a record set, and scans that read only the headers of entries."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from operator import add, eq, sub
from zlib import crc32 as crc32

from ...latency import LATENCY_BUCKETS_MS, LatencyCounts
from ...layout import (
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
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
    ENTRY_HEAD,
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
    """Return the CRC-32C of `buffer[start:end]`. The library accepts only `bytes`."""
    import google_crc32c  # only record batches need it

    view = flat(buffer)
    if not 0 <= start <= end <= len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    crc: int = google_crc32c.value(bytes(view[start:end]))
    return crc


class Walk:
    """Result of a walk. All attributes describe the good entries before `end`.

    end: position after the last good entry.
    count: number of messages; a wrapper counts as one, a batch as its records, perhaps none.
    batches: number of entries that are batches.
    first_offset, last_offset: as stored, or as assigned; -1 if there is no entry. For a batch,
        the first is that of its first record, the last that of its last record.
    magics: bit `1 << magic` for each magic that occurs.
    codecs: bit `1 << codec` for each codec that occurs.
    last_codec: codec of the last compressed entry, 0 if there is none.
    literal: whether the offsets as sent were 0, 1, ..., count - 1.
    min_timestamp_ms, max_timestamp_ms: over the timestamps other than -1 (those of a faulty sender
        can be smaller); -1 if there are none.
    max_position, max_offset: position and offset of the first entry with the largest timestamp; -1
        if there is none. A batch has the largest timestamp of its records, and here the offset of
        its last record.
    first_timestamp_ms: timestamp of the first entry, -1 for none.
    last_append_time_ms: timestamp of the last entry if it is an append time (bit 3), otherwise -1.
    append_time_bits: number of v1 and v2 entries with bit 3.
    untimed: number of messages without a timestamp, including v0; for a batch all or none.
    largest_entry_bytes: size of the largest entry, with its 12 bytes of header.
    problem: why the walk stopped.
    problem_position: position of the entry that stopped the walk; `end` without a problem.
    marks: index marks, as far as an index entry can hold them.
    since_bytes: bytes since the last mark.
    largest_ms: the larger of `max_timestamp_ms` and the `largest_ms` passed in.
    magic_changes: position and magic of each entry whose magic differs from that of the one before.
    latency: latencies at `now_ms`, if requested. A set with an invalid timestamp (below -1) has
        none: all its messages count as `untimed`. Also `None` if there are batches, whose times
        are in their records (`check_records`).
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


Entry = tuple[int, int, int, int, int, int, int]
"""A complete, good entry: its end, offset, magic, attributes and time, its number of records, and
the offset delta of the last record."""


def _read_entry(
    view: memoryview, position: int, end: int, check_crc: bool, keyed: bool
) -> Entry | Problem:
    """Return the entry at `position`, or its fault."""
    if end - position < ENTRY_OVERHEAD + V0_OVERHEAD:
        is_whole = end - position >= ENTRY_OVERHEAD
        is_bad = is_whole and int32_at(view, position + SIZE_AT) < V0_OVERHEAD
        return Problem.SIZE if is_bad else Problem.PARTIAL
    offset, size, crc, magic, attributes = ENTRY_HEAD.unpack_from(view, position)
    stop = position + ENTRY_OVERHEAD + size
    if size < V0_OVERHEAD:
        return Problem.SIZE
    if stop > end:
        return Problem.PARTIAL
    if magic == BATCH_MAGIC:
        return _read_batch(view, position, stop, offset, check_crc)
    if magic > BATCH_MAGIC:
        return Problem.MAGIC
    if size < MESSAGE_OVERHEAD[magic]:
        return Problem.SIZE
    if check_crc and crc32(view[position + MAGIC_AT : stop]) != crc:
        return Problem.CRC
    return _read_message(view, position, stop, offset, magic, attributes, keyed)


def _read_message(
    view: memoryview,
    position: int,
    stop: int,
    offset: int,
    magic: int,
    attributes: int,
    keyed: bool,
) -> Entry | Problem:
    """Return the plain message or wrapper that fills `view[position:stop]`, or its fault. The CRC
    has been verified."""
    key_at = position + TIMESTAMP_AT
    time_ms = NO_TIMESTAMP
    if magic:
        (time_ms,) = INT64.unpack_from(view, key_at)
        key_at += TIME_BYTES
    (key_bytes,) = INT32.unpack_from(view, key_at)
    value_at = key_at + LENGTH_BYTES + (key_bytes if key_bytes > 0 else 0)
    most_bytes = stop - LENGTH_BYTES - value_at
    if most_bytes < 0:
        return Problem.LENGTHS
    (value_bytes,) = INT32.unpack_from(view, value_at)
    if value_bytes != most_bytes and (value_bytes >= 0 or most_bytes > 0):
        return Problem.LENGTHS
    if attributes & CODEC_MASK > HIGHEST_MESSAGE_CODEC:
        return Problem.CODEC
    if keyed and key_bytes < 0 and not attributes & CODEC_MASK:
        return Problem.KEY
    return stop, offset, magic, attributes, time_ms, 1, 0


def _read_batch(
    view: memoryview, position: int, stop: int, offset: int, check_crc: bool
) -> Entry | Problem:
    """Return the batch that fills `view[position:stop]`, or its fault."""
    problem = batch_problem(view, position, stop, check_crc)
    if problem:
        return Problem(problem)
    attributes = view[position + BATCH_ATTRIBUTES_AT + 1]
    records = int32_at(view, position + RECORD_COUNT_AT)
    delta = int32_at(view, position + LAST_DELTA_AT)
    time_ms = int64_at(view, position + MAX_TIMESTAMP_AT)
    return stop, offset, 2, attributes, time_ms, records, delta


def batch_problem(view: memoryview, position: int, stop: int, check_crc: bool) -> int:
    """Return the `Problem` of the batch that fills `view[position:stop]`, 0 for none.

    A compaction leaves fewer records than offsets, so only more records are a fault.
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
    keyed: bool = False,
) -> Walk:
    """Walk the entries of `buffer[start:end]` without decompressing wrappers and batches.

    The walk stops at `end` or at the first bad entry; no content makes it raise. `now_ms` >= 0
    requests latencies at that time. `interval_bytes` >= 0 requests index marks: an entry gets one
    when more than that many bytes have passed since the last mark, `since_bytes` of them before
    `start`. Marks are relative to a segment's base offset `segment_offset`; `segment_position` is
    the position of `start` in its log file. `magic` is that of the entry before `start`, if any.
    With `keyed`, a message without a key is bad; in batches `check_records` finds it.
    """
    view = part(buffer, start, end)
    is_assigning = offsets == Offsets.ASSIGN
    if is_assigning and view.readonly:
        raise TypeError("offsets cannot be assigned in a buffer that is read-only")
    found = Walk()
    entries, found.problem = read_entries(view, start, end, check_crc, keyed=keyed)
    if not is_assigning and _drop_unruly(entries, offsets, base_offset - 1):
        found.problem = Problem.OFFSET
    found.end = found.problem_position = entries[-1][0] if entries else start
    marked_at = start - since_bytes
    timed: Sequence[int] = ()
    if entries:
        stops, sent_offsets, magics, attributes, times, records, deltas = zip(*entries, strict=True)
        positions = (start, *stops[:-1])
        first_offsets: Sequence[int] = sent_offsets
        if is_assigning:
            first_offsets = _assign(view, positions, magics, deltas, base_offset)
        last_offsets = tuple(map(add, first_offsets, deltas))
        found.first_offset, found.last_offset = first_offsets[0], last_offsets[-1]
        found.literal = all(map(eq, sent_offsets, accumulate(records, initial=0)))
        found.largest_entry_bytes = max(map(sub, stops, positions))
        found.magic_changes = _magic_changes(magics, positions, magic)
        _add_kinds(found, magics, attributes, records)
        if magics[-1] and attributes[-1] & LOG_APPEND_TIME_BIT:
            found.last_append_time_ms = times[-1]
        places = positions, last_offsets, times
        timed = _add_times(found, *places, records)
        shifts = segment_position - start, segment_offset
        found.marks, marked_at = _mark(*places, *shifts, marked_at, interval_bytes, largest_ms)
    if now_ms >= 0 and not found.batches:
        found.latency = latency_of(timed, found.untimed, now_ms)
    found.since_bytes = found.end - marked_at
    found.largest_ms = max(largest_ms, found.max_timestamp_ms)
    return found


def read_entries(
    view: memoryview, position: int, end: int, check_crc: bool, *, keyed: bool = False
) -> tuple[list[Entry], Problem]:
    """Return the entries up to the first bad one, and the fault of that one."""
    entries: list[Entry] = []
    while position < end:
        entry = _read_entry(view, position, end, check_crc, keyed)
        if not isinstance(entry, tuple):
            return entries, entry
        entries.append(entry)
        position = entry[0]
    return entries, Problem.NONE


def _drop_unruly(entries: list[Entry], rule: Offsets, last_offset: int) -> bool:
    """Remove the first entry whose offset breaks the rule, and all behind it; return whether there
    is one. `last_offset` is the offset before the first entry."""
    for number, (_, offset, magic, attributes, _, _, delta) in enumerate(entries):
        is_exact = magic == BATCH_MAGIC or not attributes & CODEC_MASK
        due = last_offset + 1
        if (
            offset > LARGEST_INT64 - delta
            or (rule != Offsets.ANY and offset < due)
            or (rule == Offsets.CONTIGUOUS and is_exact and offset != due)
        ):
            del entries[number:]
            return True
        last_offset = offset + delta
    return False


def _assign(
    view: memoryview,
    positions: Sequence[int],
    magics: Sequence[int],
    deltas: Sequence[int],
    offset: int,
) -> list[int]:
    """Write offsets from `offset` on into the entries, and return them. The leader epoch of batches
    is reset to none."""
    assigned = []
    for position, magic, delta in zip(positions, magics, deltas, strict=True):
        INT64.pack_into(view, position, offset)
        if magic == BATCH_MAGIC:
            INT32.pack_into(view, position + LEADER_EPOCH_AT, NO_LEADER_EPOCH)
        assigned.append(offset)
        offset += delta + 1
    return assigned


def _magic_changes(
    magics: Sequence[int], positions: Sequence[int], magic_before: int
) -> list[tuple[int, int]]:
    """Return position and magic of the entries whose magic differs from that of the entry
    before."""
    before = (magic_before, *magics)
    return [
        (position, magic)
        for position, magic, last in zip(positions, magics, before, strict=False)
        if magic != last
    ]


def _add_kinds(
    found: Walk, magics: Sequence[int], attributes: Sequence[int], records: Sequence[int]
) -> None:
    """Count the entries by magic, codec and timestamp type."""
    found.count, found.batches = sum(records), magics.count(2)
    for (magic, bits), entries in Counter(zip(magics, attributes, strict=True)).items():
        found.magics |= 1 << magic
        found.codecs |= 1 << (bits & CODEC_MASK)
        if magic and bits & LOG_APPEND_TIME_BIT:
            found.append_time_bits += entries
    if found.codecs > 1:
        codecs = (bits & CODEC_MASK for bits in reversed(attributes))
        found.last_codec = next(filter(None, codecs))


def _add_times(
    found: Walk,
    positions: Sequence[int],
    last_offsets: Sequence[int],
    times: Sequence[int],
    records: Sequence[int],
) -> Sequence[int]:
    """Record the timestamps of entries, and where the largest is; return those that are not -1."""
    found.first_timestamp_ms = times[0]
    timed = times
    if NO_TIMESTAMP in times:
        found.untimed = sum(
            count for count, time_ms in zip(records, times, strict=True) if time_ms == NO_TIMESTAMP
        )
        timed = [time_ms for time_ms in times if time_ms != NO_TIMESTAMP]
    if timed:
        found.min_timestamp_ms, found.max_timestamp_ms = min(timed), max(timed)
        newest = times.index(found.max_timestamp_ms)
        found.max_position, found.max_offset = positions[newest], last_offsets[newest]
    return timed


def _mark(
    positions: Sequence[int],
    last_offsets: Sequence[int],
    times: Sequence[int],
    shift: int,
    segment_offset: int,
    marked_at: int,
    interval_bytes: int,
    largest_ms: int,
) -> tuple[Marks, int]:
    """Return the marks of entries, as far as an index entry can hold them, and the position of the
    last one; no marks if `interval_bytes` is negative. `marked_at` is the position of the mark
    before; `shift` is added to a position to get that in the log file."""
    if interval_bytes < 0:
        return NO_MARKS, marked_at
    marks = Marks()
    known = number = 0
    while (number := bisect_right(positions, marked_at + interval_bytes, number)) < len(positions):
        largest_ms = max(largest_ms, *times[known : number + 1])
        position, relative = positions[number], last_offsets[number] - segment_offset
        known = number = number + 1
        # The index also stores the next offset.
        if position + shift > LARGEST_INT32 or not 0 <= relative < LARGEST_INT32:
            continue
        marks.offsets.append(relative)
        marks.positions.append(position + shift)
        if largest_ms > (marks.timestamps_ms[-1] if marks.timestamps_ms else NO_TIMESTAMP):
            marks.timestamps_ms.append(largest_ms)
            marks.next_offsets.append(relative + 1)
        marked_at = position
    return marks if len(marks) else NO_MARKS, marked_at


def latency_of(times: Sequence[int], untimed: int, now_ms: int) -> LatencyCounts:
    """Return the latencies of messages with these times; none if a time is invalid, that is below
    -1."""
    rising = sorted(times)
    if not rising or rising[0] < NO_TIMESTAMP:
        return LatencyCounts(untimed=untimed + len(rising))
    past = bisect_right(rising, now_ms)
    # For each bound, the number of larger latencies.
    longer = [bisect_left(rising, now_ms - bound_ms, 0, past) for bound_ms in LATENCY_BUCKETS_MS]
    counts = list(map(sub, [len(rising), *longer], [*longer, 0]))
    sum_ms = past * now_ms - sum(rising[:past])
    longest_ms = max(now_ms - rising[0], 0)
    return LatencyCounts(counts, len(rising) - past, untimed, sum_ms, longest_ms)


def scan_offset(buffer: Buffer, start: int, end: int, target_offset: int) -> tuple[int, int]:
    """Find the first entry whose offset (for a batch, its last one) is >= `target_offset`.

    Returns `(position, stopped)`: the entry's position, or `NOT_FOUND`, `BAD_SIZE`, `BAD_OFFSET`;
    and the position of the first entry that was not passed. A batch is considered once its bytes up
    to the last offset delta are in the buffer, a message once its first 17 bytes are. No CRC is
    verified.
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
    """Find the first complete v1 entry, or batch, whose timestamp is >= `target_ms`.

    The timestamp of a wrapper or batch is the largest of its messages', so the caller has to
    decompress it. Entries of v0 have no time and never match. Returns the same as `scan_offset`.
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
        if magic in (1, BATCH_MAGIC):
            if size < (V1_OVERHEAD if magic == 1 else BATCH_OVERHEAD - ENTRY_OVERHEAD):
                return BAD_SIZE, position
            time_at = TIMESTAMP_AT if magic == 1 else MAX_TIMESTAMP_AT
            if int64_at(view, position + time_at) >= target_ms:
                return position, position
        position = following
    return NOT_FOUND, position
