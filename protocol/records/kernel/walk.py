"""The one walk over a message set.

Admission, recovery, indexing and reading all learn what a set holds from `walk`. This source runs
as it is and compiled: then `walk.pxd` gives its integers their C types, and `kernel.h` reads the
fields and computes the CRC. It is one loop over integers in locals, no closure, no generator; that
is why the function is longer than others. Whether it is compiled is asked only where reading a
whole head with `struct` is quicker than field by field.
"""

from bisect import bisect_left
from struct import Struct
from typing import Final

from ..latency import LATENCY_BUCKETS_MS, LatencyCounts, exact_sum_ms
from ..layout import (
    BATCH_ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    ENTRY_OVERHEAD,
    LAST_DELTA_AT,
    LEADER_EPOCH_AT,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_CODECS,
    MESSAGE_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    RECORD_COUNT_AT,
    SIZE_AT,
    TIMESTAMP_AT,
    Buffer,
)
from .batch_head import batch_problem
from .marks import NO_MARKS, Marks
from .uncompiled import crc32 as crc32
from .walk_terms import Offsets as Offsets
from .walk_terms import Problem as Problem
from .walked import Walk as _Walk

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import (
        bytes_of,
        crc32_at,
        int32_at,
        int32s,
        int64_at,
        int64s,
        put_int32,
        put_int64,
    )

Walk = _Walk
"""For importers of this module: in C it knows the class by a name that is no Python name."""

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

_HEAD: Final = Struct(">qiIBBqii")
"""The first 34 bytes of a v1 entry: offset, size, CRC, magic, attributes, timestamp, key length
and, where the key is null or empty, value length."""
_HEAD_BYTES: Final = 34
_OVERHEAD: Final = ENTRY_OVERHEAD
_SIZE, _CRC, _MAGIC, _TIME = SIZE_AT, CRC_AT, MAGIC_AT, TIMESTAMP_AT
_LEADER_EPOCH, _BATCH_BITS = LEADER_EPOCH_AT, BATCH_ATTRIBUTES_AT + 1
_LAST_DELTA, _BATCH_TIME, _RECORDS = LAST_DELTA_AT, MAX_TIMESTAMP_AT, RECORD_COUNT_AT
_V0_KEY_AT, _V1_KEY_AT, _LENGTH_BYTES = 18, 26, 4
_V0_OVERHEAD, _V1_OVERHEAD = MESSAGE_OVERHEAD[0], MESSAGE_OVERHEAD[1]
_CODEC_MASK: Final = CODEC_MASK
_HIGHEST_CODEC: Final = int(max(MESSAGE_CODECS))
_APPEND_TIME: Final = LOG_APPEND_TIME_BIT
_NO_TIME: Final = NO_TIMESTAMP
_NO_EPOCH: Final = NO_LEADER_EPOCH
_LARGEST_INT32: Final = 2**31 - 1
_SMALLEST_INT64: Final = -(2**63)
_LARGEST_INT64: Final = 2**63 - 1
_BOUNDS: Final = LATENCY_BUCKETS_MS
_BUCKETS: Final = len(LATENCY_BUCKETS_MS) + 1

# In C an enumeration is a Python object like any other, so the loop knows the numbers alone.
_ASSIGN: Final = int(Offsets.ASSIGN)
_CONTIGUOUS: Final = int(Offsets.CONTIGUOUS)
_PROBLEMS: Final = tuple(Problem)
_PARTIAL, _BAD_SIZE, _BAD_CRC, _BAD_LENGTHS, _BAD_MAGIC, _BAD_CODEC, _BAD_OFFSET = map(
    int, _PROBLEMS[1:8]
)


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
    return _walk(
        memoryview(buffer),
        start,
        end,
        offsets,
        base_offset,
        check_crc,
        now_ms,
        interval_bytes,
        since_bytes,
        largest_ms,
        magic,
        segment_offset,
        segment_position,
    )


def _walk(
    view: memoryview,
    start: int,
    end: int,
    rule: int,
    base_offset: int,
    check_crc: bool,
    now_ms: int,
    interval_bytes: int,
    since_bytes: int,
    largest_ms: int,
    magic: int,
    segment_offset: int,
    segment_position: int,
) -> Walk:
    if start < 0 or end > len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    if rule == _ASSIGN and view.readonly:
        raise TypeError("offsets cannot be assigned in a buffer that is read-only")
    data = bytes_of(view)
    position = start
    last_whole_head = end - _HEAD_BYTES
    last_offset = base_offset - 1
    literal = True
    records, delta, batches = 1, 0, 0
    count = compressed = codecs = last_codec = append_time_bits = untimed = problem = magics = 0
    largest_size = attributes = timestamp = sum_ms = 0
    min_ms = _LARGEST_INT64
    max_ms = max_position = max_offset = -1
    marked_at = start - since_bytes
    mark_after = marked_at + interval_bytes if interval_bytes >= 0 else end
    # Beyond these an index entry cannot hold the position, or the offset that comes next.
    last_position = start + min(end - start, _LARGEST_INT32 - segment_position)
    last_markable = segment_offset + min(_LARGEST_INT32 - 1, _LARGEST_INT64 - segment_offset)
    marks = times = 0
    marked_ms = -1
    # Latencies are counted run by run: as long as timestamps are in one bucket, which is from
    # `from_ms` to `upto_ms`. Where none are counted, all are.
    bucket = skewed = before_run = 0
    from_ms, upto_ms = _SMALLEST_INT64, _LARGEST_INT64
    if now_ms >= 0:
        from_ms, upto_ms = upto_ms, from_ms
    if not cython.compiled:
        counts = [0] * _BUCKETS
    else:
        for number in range(_BUCKETS):
            counts[number] = 0
    magic_changes: list[tuple[int, int]] = []

    while position < end:
        if cython.compiled:
            if end - position < _OVERHEAD:
                problem = _PARTIAL
                break
            offset = int64_at(data, position)
            size = int32_at(data, position + _SIZE)
        elif position <= last_whole_head:
            head = _HEAD.unpack_from(view, position)
            offset, size, crc, entry_magic, entry_bits, entry_ms, key_bytes, value_bytes = head
        elif position + _OVERHEAD <= end:
            head = _HEAD.unpack(bytes(view[position:end]).ljust(_HEAD_BYTES, b"\0"))
            offset, size, crc, entry_magic, entry_bits, entry_ms, key_bytes, value_bytes = head
        else:
            problem = _PARTIAL
            break
        stop = position + _OVERHEAD + size
        if size < _V0_OVERHEAD:
            problem = _BAD_SIZE
            break
        if stop > end:
            problem = _PARTIAL
            break
        if cython.compiled:
            crc = int32_at(data, position + _CRC)
            entry_magic = data[position + _MAGIC]
            entry_bits = data[position + _MAGIC + 1]
            if entry_magic == 1 and size >= _V1_OVERHEAD:
                entry_ms = int64_at(data, position + _TIME)
                key_bytes = int32_at(data, position + _V1_KEY_AT)
                value_bytes = int32_at(data, position + _V1_KEY_AT + _LENGTH_BYTES)
        if entry_magic == 1:
            body_bytes = size - _V1_OVERHEAD
            key_at = position + _V1_KEY_AT
            if body_bytes < 0:
                problem = _BAD_SIZE
                break
        elif entry_magic == 0:
            body_bytes = size - _V0_OVERHEAD
            key_at = position + _V0_KEY_AT
            entry_ms = _NO_TIME
            key_bytes = int32_at(data, key_at)
            value_bytes = int32_at(data, key_at + _LENGTH_BYTES)
        elif entry_magic == 2:
            problem = batch_problem(view, position, stop, check_crc)
            if problem:
                break
            delta = int32_at(data, position + _LAST_DELTA)
            if rule != _ASSIGN and offset > _LARGEST_INT64 - delta:
                problem = _BAD_OFFSET
                break
            records = int32_at(data, position + _RECORDS)
            entry_bits = data[position + _BATCH_BITS]
            entry_ms = int64_at(data, position + _BATCH_TIME)
            key_bytes = value_bytes = body_bytes = 0
        else:
            problem = _BAD_MAGIC
            break
        if check_crc and entry_magic < 2:
            if cython.compiled:
                computed = crc32_at(data, position + _MAGIC, size - _LENGTH_BYTES)
            else:
                computed = crc32(view[position + _MAGIC : stop])
            if computed != crc:
                problem = _BAD_CRC
                break
        if key_bytes > 0:
            body_bytes -= key_bytes
            if body_bytes < 0:
                problem = _BAD_LENGTHS
                break
            value_bytes = int32_at(data, key_at + _LENGTH_BYTES + key_bytes)
        if value_bytes != body_bytes and (value_bytes >= 0 or body_bytes > 0):
            problem = _BAD_LENGTHS
            break
        codec = entry_bits & _CODEC_MASK
        if codec > _HIGHEST_CODEC and entry_magic < 2:
            problem = _BAD_CODEC
            break
        # The next offset is never computed before it is known to exist: 2**63 is none.
        if rule > _ASSIGN and (
            offset <= last_offset
            or (
                rule == _CONTIGUOUS
                and offset != last_offset + 1
                and (codec == 0 or entry_magic == 2)
            )
        ):
            problem = _BAD_OFFSET
            break
        if offset != count:
            literal = False
        if rule == _ASSIGN:
            offset = last_offset + 1
            put_int64(data, position, offset)
            if entry_magic == 2:
                put_int32(data, position + _LEADER_EPOCH, _NO_EPOCH)
        offset += delta
        last_offset = offset

        attributes = entry_bits
        timestamp = entry_ms
        if entry_magic != magic:
            magic = entry_magic
            magics |= 1 << magic
            magic_changes.append((position, magic))
        if attributes:
            if codec:
                compressed += records
                codecs |= 1 << codec
                last_codec = codec
            if magic > 0 and attributes & _APPEND_TIME:
                append_time_bits += 1
        if timestamp == _NO_TIME:
            untimed += records
        else:
            sum_ms += timestamp
            if timestamp < from_ms or timestamp > upto_ms:
                counts[bucket] += count - untimed - before_run
                before_run = count - untimed
                latency_ms = now_ms - timestamp if timestamp >= 0 else _LARGEST_INT64
                bucket = _bucket(latency_ms)
                from_ms = now_ms - _BOUNDS[bucket] if bucket < _BUCKETS - 1 else 0
                upto_ms = now_ms - _BOUNDS[bucket - 1] - 1 if bucket else now_ms
                if latency_ms < 0:
                    skewed += 1
                    sum_ms -= timestamp - now_ms
                    from_ms = _LARGEST_INT64
            if timestamp > max_ms or max_position < 0:
                max_ms = timestamp
                max_position = position
                max_offset = offset
            if timestamp < min_ms:
                min_ms = timestamp
        if mark_after < position <= last_position and segment_offset <= offset <= last_markable:
            if not marks:
                room = (end - position) // max(interval_bytes + 1, _OVERHEAD + _V0_OVERHEAD) + 1
                offsets, positions = bytearray(4 * room), bytearray(4 * room)
                timestamps, nexts = bytearray(8 * room), bytearray(4 * room)
                mark_offsets, mark_positions = int32s(offsets), int32s(positions)
                mark_timestamps, mark_nexts = int64s(timestamps), int32s(nexts)
            mark_offsets[marks] = offset - segment_offset
            mark_positions[marks] = position - start + segment_position
            marks += 1
            if max(largest_ms, max_ms) > marked_ms:
                marked_ms = max(largest_ms, max_ms)
                mark_timestamps[times] = marked_ms
                mark_nexts[times] = offset - segment_offset + 1
                times += 1
            marked_at = position
            mark_after = position + interval_bytes
        if size > largest_size:
            largest_size = size
        count += records
        position = stop
        if entry_magic == 2:
            batches += 1
            codecs |= codec == 0
            records, delta = 1, 0

    found = _Walk.__new__(_Walk)
    found.end = found.problem_position = position
    found.count = count
    found.batches = batches
    found.first_offset = found.first_timestamp_ms = found.last_offset = -1
    found.last_append_time_ms = -1
    found.largest_entry_bytes = 0
    if position > start:
        found.first_offset = int64_at(data, start)
        found.last_offset = last_offset
        if data[start + _MAGIC] == 1:
            found.first_timestamp_ms = int64_at(data, start + _TIME)
        elif data[start + _MAGIC] == 2:
            found.first_timestamp_ms = int64_at(data, start + _BATCH_TIME)
        magics |= 1 << data[start + _MAGIC]
        if compressed < count:
            codecs |= 1
        if magic > 0 and attributes & _APPEND_TIME:
            found.last_append_time_ms = timestamp
        found.largest_entry_bytes = largest_size + _OVERHEAD
    if max_position < 0:
        min_ms = _NO_TIME
    found.magics = magics
    found.codecs = codecs
    found.last_codec = last_codec
    found.literal = literal
    found.min_timestamp_ms = min_ms
    found.max_timestamp_ms = max_ms
    found.max_position = max_position
    found.max_offset = max_offset
    found.append_time_bits = append_time_bits
    found.untimed = untimed
    found.problem = _PROBLEMS[problem]
    found.marks = NO_MARKS
    if marks:
        found.marks = Marks(
            offsets[: 4 * marks],
            positions[: 4 * marks],
            timestamps[: 8 * times],
            nexts[: 4 * times],
        )
    found.since_bytes = position - marked_at
    found.largest_ms = max(largest_ms, max_ms)
    found.magic_changes = magic_changes
    found.latency = None
    if now_ms >= 0 and batches == 0:
        timed = count - untimed
        counts[bucket] += timed - before_run
        if timed and min_ms > _NO_TIME:
            latency_ms = max(now_ms - min_ms, 0)
            # In C sums of timestamps may wrap round, which the difference makes good.
            sum_ms = now_ms * timed - sum_ms
            found.latency = LatencyCounts(counts, skewed, untimed, sum_ms, latency_ms)
            if latency_ms > _LARGEST_INT64 // timed:
                found.latency.sum_ms = exact_sum_ms(view, start, position, now_ms)
        else:
            found.latency = LatencyCounts(untimed=count)
    return found


def _bucket(latency_ms: int) -> int:
    """As `latency_bucket`."""
    if not cython.compiled:
        return bisect_left(_BOUNDS, latency_ms)
    bucket = 0
    for number in range(_BUCKETS - 1):
        bucket += latency_ms > _BOUNDS[number]
    return bucket
