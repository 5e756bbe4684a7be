"""Read a whole log file, entry by entry, to learn what its indexes and its head should say."""

import struct
from dataclasses import dataclass, field

from ..protocol.records.kernel import Offsets, Problem, walk
from ..protocol.records.layout import ENTRY_OVERHEAD
from .files import File

_CHUNK_BYTES = 1 << 20
_MAGIC_AT = 16
_OLDEST_UNREADABLE_MAGIC = 2
_OFFSET_SIZE = struct.Struct(">qi")


@dataclass(slots=True)
class SegmentScan:
    """What a scan of one log file found, up to the first entry that is not good."""

    good_bytes: int = 0
    next_offset: int = 0
    count: int = 0
    first_timestamp_ms: int = -1
    largest_ms: int = -1
    largest_offset: int = -1
    last_append_time_ms: int = -1
    since_bytes: int = 0
    marks: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Places for index entries: `(position, offset, next offset, largest timestamp)`."""
    magic_changes: list[tuple[int, int]] = field(default_factory=list)
    problem: Problem = Problem.NONE


def scan_log_file(
    file: File,
    start: int,
    size_bytes: int,
    *,
    next_offset: int,
    interval_bytes: int = -1,
    gaps: bool,
    check_crc: bool,
) -> SegmentScan:
    """Walk the entries of `file` from `start` to `size_bytes`; the first may be `next_offset`.

    `gaps` allows offsets to jump (a log with bytes from elsewhere). The scan ends at the end or
    at the first bad entry; `problem` then says what is wrong at `good_bytes`. Places for index
    entries are noted when `interval_bytes` is given.
    """
    scan = SegmentScan(good_bytes=start, next_offset=next_offset)
    rule = Offsets.RISING if gaps else Offsets.CONTIGUOUS
    wanted = _CHUNK_BYTES
    while scan.good_bytes < size_bytes:
        data = file.pread(min(wanted, size_bytes - scan.good_bytes), scan.good_bytes)
        found = walk(
            data,
            0,
            len(data),
            offsets=rule,
            base_offset=scan.next_offset,
            check_crc=check_crc,
            interval_bytes=interval_bytes,
            since_bytes=scan.since_bytes,
            largest_ms=scan.largest_ms,
            magic=scan.magic_changes[-1][1] if scan.magic_changes else -1,
        )
        if found.count:
            if not scan.count:
                scan.first_timestamp_ms = found.first_timestamp_ms
            base = scan.good_bytes
            for at, offset, following, largest_ms in found.marks:
                scan.marks.append((base + at, offset, following, largest_ms))
            scan.magic_changes += [(base + at, magic) for at, magic in found.magic_changes]
            if found.max_timestamp_ms > scan.largest_ms:
                scan.largest_ms, scan.largest_offset = found.max_timestamp_ms, found.max_offset
            scan.last_append_time_ms = found.last_append_time_ms
            scan.since_bytes = found.since_bytes
            scan.next_offset = found.last_offset + 1
            scan.count += found.count
            scan.good_bytes += found.end
        if found.problem is Problem.NONE:
            wanted = _CHUNK_BYTES
            continue
        wanted = _entry_bytes(data, found.end)
        left = size_bytes - scan.good_bytes
        if found.problem is not Problem.PARTIAL or wanted > left or not data:
            scan.problem = found.problem
            break
        wanted = max(wanted, _CHUNK_BYTES)
    return scan


def _entry_bytes(data: bytes, position: int) -> int:
    """Bytes that the entry at `position` says it takes; of its header when that is cut off."""
    if position + ENTRY_OVERHEAD > len(data):
        return ENTRY_OVERHEAD
    size: int = _OFFSET_SIZE.unpack_from(data, position)[1]
    return ENTRY_OVERHEAD + size


def later_format_at_end(file: File, scan: SegmentScan, size_bytes: int) -> bool:
    """Whether the scan stopped at a whole entry of a later format, which is no torn write."""
    if scan.problem is not Problem.MAGIC:
        return False
    head = file.pread(_MAGIC_AT + 1, scan.good_bytes)
    offset = int.from_bytes(head[:8], "big", signed=True)
    whole = scan.good_bytes + _entry_bytes(head, 0) <= size_bytes
    return head[_MAGIC_AT] == _OLDEST_UNREADABLE_MAGIC and offset >= scan.next_offset and whole
