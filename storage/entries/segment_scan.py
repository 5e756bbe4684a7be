"""Reading a whole log file, entry by entry, to find the contents of its indexes."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...protocol.records.kernel import Walk, crc32, crc32c, walk
from ...protocol.records.kernel.terms import Offsets, Problem
from ...protocol.records.layout import (
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_OVERHEAD,
    CRC_AT,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    MESSAGE_OVERHEAD,
)
from ...protocol.records.marks import Marks
from ..files import File
from .entry_check import Breach, EntryCheck
from .entry_rules import RULES, ZEROS_RULE
from .log_reader import is_zero

_CHUNK_BYTES = 1 << 20
_OLDEST_UNREADABLE_MAGIC = 3
_OFFSET_SIZE = struct.Struct(">qi")

Progress = Callable[[int], None]
"""Called with the number of bytes read since the last call."""


@dataclass(slots=True)
class SegmentScan:
    """Result of a scan of one log file, up to the first invalid entry."""

    good_bytes: int = 0
    next_offset: int = 0
    first_timestamp_ms: int = -1
    largest_ms: int = -1
    largest_offset: int = -1
    last_append_time_ms: int = -1
    since_bytes: int = 0
    marks: Marks = field(default_factory=Marks)
    """Positions for index entries, relative to the first offset."""
    magic_changes: list[tuple[int, int]] = field(default_factory=list)
    problem: Problem = Problem.NONE
    rule: str = ""
    """What is wrong at `good_bytes`, in words."""
    overlap: bool = False
    """Whether the only problem is that offsets of the next segment follow."""
    later_format: bool = False
    """Whether the scan stopped at a complete entry of a later format, not at damage."""

    def add(self, found: Walk) -> None:
        """Add the walk over the bytes at `good_bytes`."""
        if not found.end:
            return
        if not self.magic_changes:  # The first entry.
            self.first_timestamp_ms = found.first_timestamp_ms
        base = self.good_bytes
        self.marks.extend(found.marks)
        self.magic_changes += [(base + at, magic) for at, magic in found.magic_changes]
        if found.max_timestamp_ms > self.largest_ms:
            self.largest_ms, self.largest_offset = found.max_timestamp_ms, found.max_offset
        self.last_append_time_ms = found.last_append_time_ms
        self.since_bytes = found.since_bytes
        self.next_offset = found.last_offset + 1
        self.good_bytes += found.end

    def stop(self, problem: Problem, rule: str, *, overlap: bool = False) -> "SegmentScan":
        """Record what is wrong at `good_bytes`."""
        self.problem, self.rule, self.overlap = problem, rule, overlap
        return self


def scan_log_file(
    file: File,
    start: int,
    size_bytes: int,
    *,
    next_offset: int,
    interval_bytes: int = -1,
    since_bytes: int = 0,
    largest_ms: int = -1,
    gaps: bool,
    check_crc: bool,
    limit_offset: int | None = None,
    progress: Progress | None = None,
) -> SegmentScan:
    """Walk over the entries of `file` from `start` to `size_bytes`. The first may have
    `next_offset`.

    `gaps` allows offsets to jump, for a log with bytes from elsewhere. The scan ends at the end or
    at the first bad entry; then `problem` says what is wrong at `good_bytes`. With
    `interval_bytes`, positions for index entries are recorded for a segment with base offset
    `next_offset`, `since_bytes` behind its last index entry, with `largest_ms` before them. With
    `check_crc`, everything is checked: CRCs, contents of compressed entries, and every offset;
    offsets from `limit_offset` on belong to the next segment.
    """
    check = EntryCheck(next_offset, gaps=gaps, limit_offset=limit_offset) if check_crc else None
    scan = LogScan(
        file,
        start,
        size_bytes,
        check,
        next_offset=next_offset,
        gaps=gaps,
        interval_bytes=interval_bytes,
        since_bytes=since_bytes,
        largest_ms=largest_ms,
    )
    for _, position in scan.pieces():
        if progress is not None:
            progress(scan.found.good_bytes - position)
    return scan.found


class LogScan:
    """A scan that returns its pieces; see `scan_log_file`."""

    def __init__(
        self,
        file: File,
        start: int,
        size_bytes: int,
        check: EntryCheck | None,
        *,
        next_offset: int,
        gaps: bool,
        interval_bytes: int = -1,
        since_bytes: int = 0,
        largest_ms: int = -1,
    ) -> None:
        """Without `check`, checksums are not verified."""
        self.found = SegmentScan(
            good_bytes=start,
            next_offset=next_offset,
            since_bytes=since_bytes,
            largest_ms=largest_ms,
        )
        """Result so far."""
        self._file = file
        self._start = start
        self._size_bytes = size_bytes
        self._check = check
        self._first_offset = next_offset
        self._rule = Offsets.RISING if gaps else Offsets.CONTIGUOUS
        self._interval_bytes = interval_bytes

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        """Yield bytes of the file with their position. From there to `found.good_bytes` they are
        checked entries; the last of them may still turn out to be wrong."""
        file, size_bytes, check = self._file, self._size_bytes, self._check
        scan = self.found
        wanted = _CHUNK_BYTES
        while scan.good_bytes < size_bytes:
            position = scan.good_bytes
            asked = min(wanted, size_bytes - position)
            data = file.pread(asked, position)
            if not data:  # Another process truncated the file.
                scan.stop(Problem.PARTIAL, RULES[Problem.PARTIAL])
                return
            found = self._walk(data)
            breach = check.check(data, found, position) if check is not None else None
            if breach is not None:
                self.found = self._before(breach)
                if breach.position > position:
                    yield data, position
                return
            scan.add(found)
            yield data, position
            if found.problem is Problem.NONE:
                wanted = _CHUNK_BYTES
                continue
            wanted = _entry_bytes(data, found.end)
            left = size_bytes - scan.good_bytes
            ended = len(data) < asked  # Another process truncated the file.
            if found.problem is not Problem.PARTIAL or wanted > left or ended:
                zeros = found.problem in (Problem.SIZE, Problem.PARTIAL) and is_zero(
                    file, scan.good_bytes, size_bytes
                )
                scan.later_format = _is_later_format(file, scan, found.problem, size_bytes)
                scan.stop(found.problem, ZEROS_RULE if zeros else RULES[found.problem])
                return
            wanted = max(wanted, _CHUNK_BYTES)

    def _walk(self, data: bytes) -> Walk:
        scan = self.found
        return walk(
            data,
            0,
            len(data),
            offsets=self._rule,
            base_offset=scan.next_offset,
            check_crc=self._check is not None,
            interval_bytes=self._interval_bytes,
            since_bytes=scan.since_bytes,
            largest_ms=scan.largest_ms,
            magic=scan.magic_changes[-1][1] if scan.magic_changes else -1,
            segment_offset=self._first_offset,
            segment_position=scan.good_bytes,
        )

    def _before(self, breach: Breach) -> SegmentScan:
        """Scan again, up to the entry that violates a rule. All entries before it were checked."""
        scan = scan_log_file(
            self._file,
            self._start,
            breach.position,
            next_offset=self._first_offset,
            interval_bytes=self._interval_bytes,
            gaps=True,
            check_crc=False,
        )
        return scan.stop(breach.problem, breach.rule, overlap=breach.overlap)


def _entry_bytes(data: bytes, position: int) -> int:
    """Return the size of the entry at `position` according to its header; that of the header if it
    is cut off."""
    if position + ENTRY_OVERHEAD > len(data):
        return ENTRY_OVERHEAD
    size: int = _OFFSET_SIZE.unpack_from(data, position)[1]
    return ENTRY_OVERHEAD + size


def _is_later_format(file: File, scan: SegmentScan, problem: Problem, size_bytes: int) -> bool:
    """Whether the scan stops at a complete entry of a later format, which is not a torn write."""
    if problem is not Problem.MAGIC:
        return False
    head = file.pread(MAGIC_AT + 1, scan.good_bytes)
    entry_bytes = _entry_bytes(head, 0)
    offset = int.from_bytes(head[:8], "big", signed=True)
    whole = scan.good_bytes + entry_bytes <= size_bytes
    if head[MAGIC_AT] != _OLDEST_UNREADABLE_MAGIC or offset < scan.next_offset or not whole:
        return False
    entry = bytearray(file.pread(entry_bytes, scan.good_bytes))
    crc = int.from_bytes(entry[CRC_AT:MAGIC_AT], "big")
    for magic in MESSAGE_OVERHEAD:
        entry[MAGIC_AT] = magic
        if crc32(memoryview(entry)[MAGIC_AT:]) == crc:
            return False  # A message of an older format, with a changed bit in its magic.
    if len(entry) < BATCH_OVERHEAD:
        return True
    batch_crc = int.from_bytes(entry[BATCH_CRC_AT:BATCH_ATTRIBUTES_AT], "big")
    return crc32c(entry, BATCH_ATTRIBUTES_AT, len(entry)) != batch_crc  # Not a batch either.
