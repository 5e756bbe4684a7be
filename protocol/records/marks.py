"""Index marks: the positions in a segment that get index entries, in arrays like the indexes."""

from array import array
from bisect import bisect_right
from typing import Final

from .layout import NO_TIMESTAMP


class Marks:
    """Marks of consecutive entries of a segment.

    offsets: int32, of an entry, counted from the segment's base offset.
    positions: int32, where in the log file that entry begins.
    timestamps_ms: int64, rising: the largest timestamp of all entries below the offset that
        `next_offsets` (int32, counted as `offsets`) has in the same place, known when an entry
        was marked. There is one for each mark that has a larger one than the mark before.
    """

    __slots__ = ("next_offsets", "offsets", "positions", "timestamps_ms")

    def __init__(
        self,
        offsets: bytes | bytearray = b"",
        positions: bytes | bytearray = b"",
        timestamps_ms: bytes | bytearray = b"",
        next_offsets: bytes | bytearray = b"",
    ) -> None:
        """From the memory of the arrays."""
        self.offsets = array("i", offsets)
        self.positions = array("i", positions)
        self.timestamps_ms = array("q", timestamps_ms)
        self.next_offsets = array("i", next_offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def first(self, count: int) -> "Marks":
        """A copy of the first `count` marks."""
        marks = Marks()
        marks.extend(self)
        del marks.offsets[count:], marks.positions[count:]
        times = bisect_right(marks.next_offsets, marks.offsets[-1] + 1) if count else 0
        del marks.timestamps_ms[times:], marks.next_offsets[times:]
        return marks

    def extend(self, other: "Marks") -> None:
        """Add the marks of the entries that follow; their walk started with the largest time."""
        last_ms = self.timestamps_ms[-1] if self.timestamps_ms else NO_TIMESTAMP
        known = bisect_right(other.timestamps_ms, last_ms)
        self.offsets += other.offsets
        self.positions += other.positions
        self.timestamps_ms += other.timestamps_ms[known:]
        self.next_offsets += other.next_offsets[known:]


NO_MARKS: Final = Marks()
"""The marks of a walk without marks; never changed."""
