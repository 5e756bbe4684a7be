"""Read a whole log file, entry by entry, to learn what its indexes and its head should say."""

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
"""Called with how many bytes more have been read."""


@dataclass(slots=True)
class SegmentScan:
    """What a scan of one log file found, up to the first entry that is not good."""

    good_bytes: int = 0
    next_offset: int = 0
    first_timestamp_ms: int = -1
    largest_ms: int = -1
    largest_offset: int = -1
    last_append_time_ms: int = -1
    since_bytes: int = 0
    marks: Marks = field(default_factory=Marks)
    """Places for index entries, counted from the first offset."""
    magic_changes: list[tuple[int, int]] = field(default_factory=list)
    problem: Problem = Problem.NONE
    rule: str = ""
    """What is wrong at `good_bytes`, in words."""
    overlap: bool = False
    """Whether all that is wrong is that offsets of the next segment come here."""
    later_format: bool = False
    """Whether what stopped it is a whole entry of a later format, and no damage."""

    def add(self, found: Walk) -> None:
        """Take in the walk over the bytes at `good_bytes`."""
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
        """Note what is wrong at `good_bytes`."""
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
    """Walk the entries of `file` from `start` to `size_bytes`; the first may be `next_offset`.

    `gaps` allows offsets to jump (a log with bytes from elsewhere). The scan ends at the end or
    at the first bad entry; `problem` then says what is wrong at `good_bytes`. Places for index
    entries are noted when `interval_bytes` is given, as of a segment whose base offset is
    `next_offset`, `since_bytes` behind the last one and with `largest_ms` before them. `check_crc`
    asks for everything to be checked: CRCs, what is in compressed entries, and every offset; those
    from `limit_offset` on belong to the next segment.
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
    """A scan that is followed piece by piece; `scan_log_file` says what of."""

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
        """Without `check` no CRC is looked at either."""
        self.found = SegmentScan(
            good_bytes=start,
            next_offset=next_offset,
            since_bytes=since_bytes,
            largest_ms=largest_ms,
        )
        """What was found so far."""
        self._file = file
        self._start = start
        self._size_bytes = size_bytes
        self._check = check
        self._first_offset = next_offset
        self._rule = Offsets.RISING if gaps else Offsets.CONTIGUOUS
        self._interval_bytes = interval_bytes

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        """Bytes of the file, and their position there: from there to `found.good_bytes` they are
        entries that were checked. A breach may still be found of the last of them."""
        file, size_bytes, check = self._file, self._size_bytes, self._check
        scan = self.found
        wanted = _CHUNK_BYTES
        while scan.good_bytes < size_bytes:
            position = scan.good_bytes
            asked = min(wanted, size_bytes - position)
            data = file.pread(asked, position)
            if not data:  # Another process has cut the file.
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
            ended = len(data) < asked  # Another process has cut the file.
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
        """The scan again, up to the entry that breaks a rule; all before it has been checked."""
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
    """Bytes that the entry at `position` says it takes; of its header when that is cut off."""
    if position + ENTRY_OVERHEAD > len(data):
        return ENTRY_OVERHEAD
    size: int = _OFFSET_SIZE.unpack_from(data, position)[1]
    return ENTRY_OVERHEAD + size


def _is_later_format(file: File, scan: SegmentScan, problem: Problem, size_bytes: int) -> bool:
    """Whether the scan stops at a whole entry of a later format, which is no torn write."""
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
            return False  # a message of an older format, with a changed bit in its magic
    if len(entry) < BATCH_OVERHEAD:
        return True
    batch_crc = int.from_bytes(entry[BATCH_CRC_AT:BATCH_ATTRIBUTES_AT], "big")
    return crc32c(entry, BATCH_ATTRIBUTES_AT, len(entry)) != batch_crc  # no batch either
