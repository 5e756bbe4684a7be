"""Reading by offset: from an offset to the stretch of a log file that answers it, whose bytes stay
in their file until they are sent; and how far a segment can be read."""

from contextlib import suppress
from typing import Final

from ...protocol.errors import StorageError
from ...protocol.records.kernel import walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import ENTRY_OVERHEAD, SIZE_AT
from ...values import value_class
from ..entries.entry_rules import walk_row
from ..entries.salvage import offsets_at
from ..entries.segment_scan import scan_log_file
from ..files import Buffer, File
from ..log.segment_list import SegmentList
from ..segment.segment import Segment

_CHECKED_BYTES: Final = 512 << 10
"""What is checked in front of an entry that a search found, at most: some 0.3 ms of work."""

_UNCHECKED_BYTES = 1 << 20


class FileRange:
    """A stretch of a log file, with a handle of its own: it can be read even when the segment is
    deleted or closed meanwhile. The handle goes when nothing holds the stretch any more.
    """

    __slots__ = ("_cuts", "_segment", "_size", "file", "position")

    def __init__(self, segment: Segment, lent: File, position: int, size: int) -> None:
        """`lent` is from the segment's open files."""
        self._segment = segment
        self._cuts = segment.cuts
        self._size = size
        self.file = lent
        self.position = position

    def __len__(self) -> int:
        return self._size

    @property
    def intact(self) -> bool:
        """False once the end of the segment was cut off: other bytes may have taken the place."""
        return self._segment.cuts == self._cuts

    def found_short(self) -> None:
        """The file ends before the stretch does: the segment remembers that as damage."""
        with suppress(OSError):  # The segment may be closed by now.
            ends = self.file.size()
            if self.intact and ends < min(self.position + self._size, self._segment.size_bytes):
                self._segment.damage(ends, self.file)

    def __del__(self) -> None:
        self._segment.open_files.take_back(self.file)


@value_class
class Slice:
    """A stretch of one log file, whole entries first, perhaps cut off at its end."""

    segment: Segment | None
    """`None` when there is nothing to read."""
    position: int
    size: int
    magic: int
    """The format of all entries; -1 when there is nothing to read."""
    high_watermark: int

    def check_there(self) -> None:
        """Raise `StorageError` where the log file ends before the slice does: it was cut short
        behind the broker's back. The segment remembers the damage. Raises `OSError`."""
        segment = self.segment
        if segment is not None and self.size:
            ends = segment.file.size()
            if ends < self.position + self.size:
                raise segment.damage(ends)

    def read(self) -> bytes:
        if self.segment is None or not self.size:
            return b""
        return self.segment.file.pread(self.size, self.position)

    def read_now(self) -> Buffer | None:
        """As `read`; `None` when that would wait for the disk."""
        if self.segment is None or not self.size:
            return b""
        return self.segment.file.pread_now(self.size, self.position)

    def stretch(self) -> FileRange | None:
        """The bytes where they are, for as long as it takes to send them; `None` when that cannot
        be because too many others are being sent."""
        if self.segment is None:
            return None
        with suppress(OSError):
            lent = self.segment.open_files.lend(self.segment.file)
            if lent is not None:
                return FileRange(self.segment, lent, self.position, self.size)
        return None


def read_slice(
    segments: SegmentList,
    offset: int,
    max_bytes: int,
    *,
    end_offset: int,
    high_watermark: int,
    whole_first: bool,
    far: bool,
) -> Slice:
    """The stored bytes from the entry that holds `offset` on and below `end_offset`, as
    `reader.read` describes."""
    segment: Segment | None = segments.holding(offset) if offset < end_offset else None
    while segment is not None:
        start, data = segment.locate_entry(offset, far=far)
        end = visible_end(segment, end_offset, far=far)
        if start < end:
            found = _slice(segment, data, start, end, max_bytes, high_watermark, whole_first)
            try:
                found.check_there()
            except StorageError:
                # What is in front of the damage can be read.
                end = visible_end(segment, end_offset, far=far)
                if start >= end:
                    raise
                found = _slice(segment, data, start, end, max_bytes, high_watermark, whole_first)
            return found
        segment = segments.after(segment)
    return Slice(None, 0, 0, -1, high_watermark)


def _slice(
    segment: Segment,
    data: bytes,
    start: int,
    end: int,
    max_bytes: int,
    high_watermark: int,
    whole_first: bool,
) -> Slice:
    """The bytes from the entry at `start` on, of which `data` has its head; below `end`."""
    magic, span_end = segment.magic_span(start)
    size = min(max_bytes, end - start, span_end - start)
    if whole_first and not 0 <= _size_of(data) <= size - ENTRY_OVERHEAD:
        size = max(size, _first_bytes(segment, data, start, end, size))
    return Slice(segment, start, max(size, 0), magic, high_watermark)


def _first_bytes(segment: Segment, data: bytes, start: int, end: int, enough: int) -> int:
    """How many bytes the entry at `start` takes, of which `data` has its head.

    Its CRC does not cover its size, so one that takes more than is `enough`, and much, is checked
    before it is believed.
    """
    entry_bytes = ENTRY_OVERHEAD + _size_of(data)
    if entry_bytes > end - start:
        raise segment.damage(start)
    if entry_bytes > max(enough, _UNCHECKED_BYTES):
        data = segment.file.pread(entry_bytes, start)
        if walk(data, 0, entry_bytes).problem is not Problem.NONE:
            raise segment.damage(start)
    return entry_bytes


def _size_of(data: bytes) -> int:
    """What the entry that begins there says of its size."""
    return int.from_bytes(data[SIZE_AT:ENTRY_OVERHEAD], "big", signed=True)


def readable_bytes(segments: SegmentList, offset: int, end_offset: int) -> int:
    """Stored bytes from the entry that holds `offset` to `end_offset`."""
    if offset >= end_offset:
        return 0
    first = segments.holding(offset)
    total = -first.locate(offset)
    for segment in reversed(segments.segments):
        if segment.base_offset < end_offset:
            total += visible_end(segment, end_offset)
        if segment is first:
            break
    return total


def visible_end(segment: Segment, high_watermark: int, *, far: bool = True) -> int:
    """Position after the last entry below `high_watermark` that can be read.

    Raises as `locate_entry`.
    """
    damaged = segment.damaged
    if damaged is None:
        if segment.next_offset <= high_watermark:
            return segment.size_bytes
    elif min(segment.next_offset, damaged.offset) <= high_watermark:
        return damaged.position
    return segment.locate_entry(high_watermark, far=far)[0]


def check_readable(segment: Segment, high_watermark: int) -> None:
    """Raise the damage that is in front of `high_watermark`, if there is any."""
    damaged = segment.damaged
    if damaged is not None and damaged.offset < high_watermark:
        raise damaged.error(segment.log_path)


def check_entries(segment: Segment, start: int, end: int, data: bytes, position: int) -> None:
    """Check the entries up to the one from `start` to `end`, from the last one before it that
    the index knows: CRCs, and offsets, which no CRC covers.

    `data` are bytes from `position` on that have been read already, up to `end` at least.
    Raises `StorageError` when an entry is not good.
    """
    offset, begin = segment.index_entry_before(start + 1)
    if end - begin > _CHECKED_BYTES:
        return
    if begin < position:
        data, position = segment.file.pread(end - begin, begin), begin
    if not segment.gaps and walk_row(data, begin - position, end - position, offset):
        return
    offsets = offsets_at(segment.file, begin, end)
    if offsets is None:
        raise segment.damage(begin)
    first, last = offsets
    in_place = first <= offset <= last
    if not begin:
        in_place = first >= offset if segment.gaps else first == offset
    scan = scan_log_file(
        segment.file, begin, end, next_offset=first, gaps=segment.gaps, check_crc=True
    )
    if not in_place:
        raise segment.damage(begin)
    if scan.problem is not Problem.NONE:
        raise segment.damage(scan.good_bytes)
