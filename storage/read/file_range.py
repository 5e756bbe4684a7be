"""Stored bytes that stay in their file until they are sent."""

from contextlib import suppress

from ..files import File
from ..segment.segment import Segment


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
