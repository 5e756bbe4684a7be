"""Reading by offset: from an offset to the stretch of a log file that answers it."""

from contextlib import suppress

from ...protocol.errors import StorageError
from ...protocol.records.kernel import walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import ENTRY_OVERHEAD, SIZE_AT
from ...values import value_class
from ..files import Buffer
from ..log.segment_list import SegmentList
from ..read.segment_reading import visible_end
from ..segment.segment import Segment
from .file_range import FileRange

_UNCHECKED_BYTES = 1 << 20


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
