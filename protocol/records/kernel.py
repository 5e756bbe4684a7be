"""The one walk over a message set.

Admission, recovery, indexing and reading all learn what a set holds from `walk`. It is plain
Python in a shape that a compiler takes as it is: one loop over integers in locals, no closure, no
generator. That is why the function is longer than others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from .latency import LatencyCounts, latency_bucket
from .layout import (
    CODEC_MASK,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MESSAGE_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_AT,
    Buffer,
    Codec,
)

crc32: Callable[[Buffer], int]
try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32


class Problem(IntEnum):
    """Why a walk stopped before `end`."""

    NONE = 0
    PARTIAL = 1
    """Fewer bytes are left than the entry says it has, or fewer than 12."""
    SIZE = 2
    """The size field is below that of the smallest message of its magic."""
    CRC = 3
    LENGTHS = 4
    """Key and value do not add up to the size."""
    MAGIC = 5
    """Neither 0 nor 1."""
    CODEC = 6
    """Bits 0-2 of the attributes name no codec."""
    OFFSET = 7
    """The offset breaks the rule that was asked for."""


class Offsets(IntEnum):
    """What a walk does about the entries' offsets."""

    ANY = 0
    ASSIGN = 1
    """Write base offset, base offset + 1, ... into the entries; the buffer must be writable."""
    CONTIGUOUS = 2
    """A plain entry has exactly the next offset, a wrapper that one or a larger one."""
    RISING = 3
    """Each offset is larger than the one before; the first is at least the base offset."""


@dataclass(slots=True)
class Walk:
    """What a walk found: everything here is about the good entries before `end`."""

    end: int
    """Position after the last good entry."""
    count: int
    first_offset: int
    last_offset: int
    """As stored, or as assigned; -1 when there is no entry."""
    magics: int
    """Bit `1 << magic` for each magic met."""
    codecs: int
    """Bit `1 << codec` for each codec met."""
    last_codec: int
    """Codec of the last compressed entry, else 0."""
    literal: bool
    """The offsets as sent were 0, 1, ..., count - 1."""
    min_timestamp_ms: int
    max_timestamp_ms: int
    """Over the timestamps that are not -1 (a broken sender's can be below it); -1 without any."""
    max_position: int
    max_offset: int
    """The first entry that has the largest timestamp; -1 without any."""
    first_timestamp_ms: int
    last_append_time_ms: int
    """Timestamp of the last entry if a broker stamped it (bit 3), else -1."""
    append_time_bits: int
    """How many v1 entries have bit 3."""
    untimed: int
    """How many entries have no timestamp, v0 entries included."""
    largest_entry_bytes: int
    problem: Problem
    problem_position: int
    """Where the entry begins that stopped the walk; `end` without a problem."""
    marks: list[tuple[int, int, int, int]]
    """Index marks: position of an entry, its offset, the offset after it, and the largest timestamp
    so far (this entry's and the `largest_ms` passed in included)."""
    since_bytes: int
    """Bytes since the last mark."""
    largest_ms: int
    """The larger of `max_timestamp_ms` and the `largest_ms` passed in."""
    magic_changes: list[tuple[int, int]]
    """Position and magic of each entry whose magic is not that of the entry before."""
    latency: LatencyCounts | None


_HEAD: Final = Struct(">qiIBBqii")
"""The first 34 bytes of a v1 entry: offset, size, CRC, magic, attributes, timestamp, key length
and, where the key is null or empty, value length."""
_HEAD_BYTES: Final = 34
_TIMED_HEAD: Final = Struct(">qiIBBq")
"""The same up to the timestamp: 26 bytes, as long as the smallest v0 entry."""
_V0_LENGTHS: Final = Struct(">ii")
_V0_LENGTHS_AT: Final = 18
_V0_KEY_AT: Final = 22
_V1_KEY_AT: Final = 30
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_V0_OVERHEAD: Final = MESSAGE_OVERHEAD[0]
_V1_OVERHEAD: Final = MESSAGE_OVERHEAD[1]
_HIGHEST_CODEC: Final = int(max(Codec))
_LARGEST_INT64: Final = 2**63 - 1
_ASSIGN: Final = int(Offsets.ASSIGN)
_CONTIGUOUS: Final = int(Offsets.CONTIGUOUS)


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
) -> Walk:
    """Walk the entries of `buffer[start:end]`, shallow: a wrapper counts as one entry.

    The walk stops at `end` or at the first entry that is not good, and says which; no content
    makes it raise. `now_ms` >= 0 asks for latencies against that time. `interval_bytes` >= 0 asks
    for index marks: an entry gets one when more than that many bytes have gone by since the last,
    of which `since_bytes` before `start`. `magic` is that of the entry before `start`, if any.
    """
    view = memoryview(buffer)
    rule = int(offsets)
    position = start
    last_whole_head = end - _HEAD_BYTES
    expected = base_offset
    literal = True
    count = compressed = codecs = last_codec = append_time_bits = untimed = 0
    largest_size = attributes = timestamp = sum_ms = 0
    min_ms = _LARGEST_INT64
    max_ms = max_position = max_offset = -1
    marked_at = start - since_bytes
    mark_after = marked_at + interval_bytes if interval_bytes >= 0 else end
    marks: list[tuple[int, int, int, int]] = []
    magic_changes: list[tuple[int, int]] = []
    problem = Problem.NONE

    while position < end:
        if position <= last_whole_head:
            head = _HEAD.unpack_from(view, position)
        elif position + ENTRY_OVERHEAD <= end:
            head = _HEAD.unpack(bytes(view[position:end]).ljust(_HEAD_BYTES, b"\0"))
        else:
            problem = Problem.PARTIAL
            break
        offset, size, crc, entry_magic, entry_attributes, entry_ms, key_bytes, value_bytes = head
        stop = position + ENTRY_OVERHEAD + size
        if size < _V0_OVERHEAD:
            problem = Problem.SIZE
            break
        if stop > end:
            problem = Problem.PARTIAL
            break
        if entry_magic == 1:
            body_bytes = size - _V1_OVERHEAD
            key_at = position + _V1_KEY_AT
            if body_bytes < 0:
                problem = Problem.SIZE
                break
        elif entry_magic == 0:
            body_bytes = size - _V0_OVERHEAD
            key_at = position + _V0_KEY_AT
            key_bytes, value_bytes = _V0_LENGTHS.unpack_from(view, position + _V0_LENGTHS_AT)
            entry_ms = NO_TIMESTAMP
        else:
            problem = Problem.MAGIC
            break
        if check_crc and crc32(view[position + MAGIC_AT : stop]) != crc:
            problem = Problem.CRC
            break
        if key_bytes > 0:
            body_bytes -= key_bytes
            if body_bytes < 0:
                problem = Problem.LENGTHS
                break
            (value_bytes,) = _INT32.unpack_from(view, key_at + key_bytes)
        if value_bytes != body_bytes and (value_bytes >= 0 or body_bytes > 0):
            problem = Problem.LENGTHS
            break
        codec = entry_attributes & CODEC_MASK
        if codec > _HIGHEST_CODEC:
            problem = Problem.CODEC
            break
        if rule > _ASSIGN and (
            offset < expected or (rule == _CONTIGUOUS and codec == 0 and offset != expected)
        ):
            problem = Problem.OFFSET
            break
        if offset != count:
            literal = False
        if rule == _ASSIGN:
            offset = expected
            _INT64.pack_into(view, position, offset)
        expected = offset + 1

        attributes = entry_attributes
        timestamp = entry_ms
        if entry_magic != magic:
            magic = entry_magic
            magic_changes.append((position, magic))
        if attributes:
            if codec:
                compressed += 1
                codecs |= 1 << codec
                last_codec = codec
            if magic == 1 and attributes & LOG_APPEND_TIME_BIT:
                append_time_bits += 1
        if timestamp == NO_TIMESTAMP:
            untimed += 1
        else:
            sum_ms += timestamp
            if timestamp > max_ms or untimed == count:
                max_ms = timestamp
                max_position = position
                max_offset = offset
            if timestamp < min_ms:
                min_ms = timestamp
        if position > mark_after:
            marks.append((position, offset, expected, max(largest_ms, max_ms)))
            marked_at = position
            mark_after = position + interval_bytes
        if size > largest_size:
            largest_size = size
        count += 1
        position = stop

    if untimed == count:
        min_ms = NO_TIMESTAMP
    first_offset = first_ms = -1
    magics = 0
    if count:
        (first_offset,) = _INT64.unpack_from(view, start)
        if view[start + MAGIC_AT] == 1:
            (first_ms,) = _INT64.unpack_from(view, start + TIMESTAMP_AT)
        magics = 1 << view[start + MAGIC_AT]
        for _, changed in magic_changes:
            magics |= 1 << changed
        if compressed < count:
            codecs |= 1 << Codec.NONE
    walked = Walk(
        end=position,
        count=count,
        first_offset=first_offset,
        last_offset=expected - 1 if count else -1,
        magics=magics,
        codecs=codecs,
        last_codec=last_codec,
        literal=literal,
        min_timestamp_ms=min_ms,
        max_timestamp_ms=max_ms,
        max_position=max_position,
        max_offset=max_offset,
        first_timestamp_ms=first_ms,
        last_append_time_ms=timestamp if magic == 1 and attributes & LOG_APPEND_TIME_BIT else -1,
        append_time_bits=append_time_bits,
        untimed=untimed,
        largest_entry_bytes=largest_size + ENTRY_OVERHEAD if count else 0,
        problem=problem,
        problem_position=position,
        marks=marks,
        since_bytes=position - marked_at,
        largest_ms=max(largest_ms, max_ms),
        magic_changes=magic_changes,
        latency=None,
    )
    if now_ms >= 0:
        walked.latency = _latency(view, start, walked, now_ms, sum_ms)
    return walked


def _latency(
    view: memoryview, start: int, walked: Walk, now_ms: int, sum_timestamps_ms: int
) -> LatencyCounts:
    """Latencies of the walked entries; entry by entry only when they fall into several buckets."""
    timed = walked.count - walked.untimed
    latency = LatencyCounts(untimed=walked.untimed)
    if timed == 0:
        return latency
    slowest_ms = now_ms - walked.min_timestamp_ms
    quickest_ms = now_ms - walked.max_timestamp_ms
    latency.max_ms = max(slowest_ms, 0)
    bucket = latency_bucket(slowest_ms)
    if slowest_ms < 0 or (quickest_ms >= 0 and bucket == latency_bucket(quickest_ms)):
        latency.counts[bucket] = timed
        latency.skewed = timed if slowest_ms < 0 else 0
        latency.sum_ms = now_ms * timed - sum_timestamps_ms if slowest_ms >= 0 else 0
        return latency
    counts = latency.counts
    skewed = sum_ms = 0
    position = start
    while position < walked.end:
        _, size, _, entry_magic, _, timestamp = _TIMED_HEAD.unpack_from(view, position)
        if entry_magic == 1 and timestamp != NO_TIMESTAMP:
            latency_ms = now_ms - timestamp
            if latency_ms < 0:
                skewed += 1
                latency_ms = 0
            counts[latency_bucket(latency_ms)] += 1
            sum_ms += latency_ms
        position += ENTRY_OVERHEAD + size
    latency.skewed = skewed
    latency.sum_ms = sum_ms
    return latency
