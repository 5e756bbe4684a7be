"""Index marks: the positions in a segment that get index entries, in arrays like those of the
indexes."""

from array import array
from bisect import bisect_right
from typing import Final

from .layout import NO_TIMESTAMP


class Marks:
    """The marks of consecutive entries of a segment.

    offsets: int32, the offset of an entry, relative to the segment's base offset.
    positions: int32, the position of that entry in the log file.
    timestamps_ms: int64, increasing: the largest timestamp of all entries below the offset at the
        same index of `next_offsets` (int32, relative like `offsets`), as known when an entry was
        marked. Only marks with a larger value than the mark before have one.
    """

    __slots__ = ("next_offsets", "offsets", "positions", "timestamps_ms")

    def __init__(
        self,
        offsets: bytes | bytearray = b"",
        positions: bytes | bytearray = b"",
        timestamps_ms: bytes | bytearray = b"",
        next_offsets: bytes | bytearray = b"",
    ) -> None:
        """Create from the bytes of the arrays."""
        self.offsets = array("i", offsets)
        self.positions = array("i", positions)
        self.timestamps_ms = array("q", timestamps_ms)
        self.next_offsets = array("i", next_offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def first(self, count: int) -> "Marks":
        """Return a copy of the first `count` marks."""
        marks = Marks()
        marks.extend(self)
        del marks.offsets[count:], marks.positions[count:]
        times = bisect_right(marks.next_offsets, marks.offsets[-1] + 1) if count else 0
        del marks.timestamps_ms[times:], marks.next_offsets[times:]
        return marks

    def extend(self, other: "Marks") -> None:
        """Append the marks of the following entries, whose walk started with this one's largest
        timestamp."""
        last_ms = self.timestamps_ms[-1] if self.timestamps_ms else NO_TIMESTAMP
        known = bisect_right(other.timestamps_ms, last_ms)
        self.offsets += other.offsets
        self.positions += other.positions
        self.timestamps_ms += other.timestamps_ms[known:]
        self.next_offsets += other.next_offsets[known:]


NO_MARKS: Final = Marks()
"""Marks of a walk that makes none; never changed."""
