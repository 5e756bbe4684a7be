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
"""Maximum number of bytes checked before an entry that a search found: about 0.3 ms of work."""

_UNCHECKED_BYTES = 1 << 20


class FileRange:
    """A range of bytes in a log file, with its own handle, so that it can be read even if the
    segment is deleted or closed meanwhile. The handle is released when nothing refers to the range
    any more."""

    __slots__ = ("_cuts", "_segment", "_size", "file", "position")

    def __init__(self, segment: Segment, lent: File, position: int, size: int) -> None:
        """`lent` comes from the segment's open files."""
        self._segment = segment
        self._cuts = segment.cuts
        self._size = size
        self.file = lent
        self.position = position

    def __len__(self) -> int:
        return self._size

    @property
    def intact(self) -> bool:
        """Whether the bytes are unchanged: after a truncation others may have replaced them."""
        return self._segment.cuts == self._cuts

    def found_short(self) -> None:
        """Record as damage that the file ends before the range does."""
        with suppress(OSError):  # The segment may be closed by now.
            ends = self.file.size()
            if self.intact and ends < min(self.position + self._size, self._segment.size_bytes):
                self._segment.damage(ends, self.file)

    def __del__(self) -> None:
        self._segment.open_files.take_back(self.file)


@value_class
class Slice:
    """A range of bytes in one log file. It begins with a whole entry; the last entry may be cut
    off."""

    segment: Segment | None
    """The segment of the bytes; `None` if there is nothing to read."""
    position: int
    size: int
    magic: int
    """Message format of all entries; -1 if there is nothing to read."""
    high_watermark: int

    def check_there(self) -> None:
        """Raise `StorageError` if the log file ends before the slice does, because somebody else
        truncated it. The segment remembers the damage. Raises `OSError`."""
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
        """Like `read`; `None` if that would wait for the disk."""
        if self.segment is None or not self.size:
            return b""
        return self.segment.file.pread_now(self.size, self.position)

    def stretch(self) -> FileRange | None:
        """Return the bytes as a range of the file, to be read while they are sent. `None` if too
        many other ranges are being sent."""
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
    """Return the stored bytes from the entry that holds `offset` on, below `end_offset`, as
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
                # Entries before the damage can be read.
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
    """Return the bytes from the entry at `start` on, below `end`. `data` has the header of that
    entry."""
    magic, span_end = segment.magic_span(start)
    size = min(max_bytes, end - start, span_end - start)
    if whole_first and not 0 <= _size_of(data) <= size - ENTRY_OVERHEAD:
        size = max(size, _first_bytes(segment, data, start, end, size))
    return Slice(segment, start, max(size, 0), magic, high_watermark)


def _first_bytes(segment: Segment, data: bytes, start: int, end: int, enough: int) -> int:
    """Return the size of the entry at `start`, whose header is in `data`.

    Its CRC does not cover its size. So an entry larger than `enough` and than `_UNCHECKED_BYTES` is
    checked before its size is trusted.
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
    """Return the size field of the entry that begins `data`."""
    return int.from_bytes(data[SIZE_AT:ENTRY_OVERHEAD], "big", signed=True)


def readable_bytes(segments: SegmentList, offset: int, end_offset: int) -> int:
    """Return how many stored bytes there are from the entry that holds `offset` to `end_offset`."""
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
    """Return the position after the last entry below `high_watermark` that can be read.

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
    """Raise the damage of a segment if it begins below `high_watermark`."""
    damaged = segment.damaged
    if damaged is not None and damaged.offset < high_watermark:
        raise damaged.error(segment.log_path)


def check_entries(segment: Segment, start: int, end: int, data: bytes, position: int) -> None:
    """Check the entries from the last indexed one to the one at `start`, which ends at `end`: their
    CRCs, and their offsets, which no CRC covers.

    `data` are the bytes from `position` on, at least up to `end`, that were read already. Raises
    `StorageError` if an entry is not valid.
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
