"""Positions of offsets in one log file, learned by reading where the index has no entries.

An index can be sparse (`index.interval.bytes` is set by the user). A read of an offset far behind
the last index entry has to scan everything in between. The positions that the scan met are kept in
memory, so that each part of the file is scanned once.
"""

from array import array
from bisect import bisect_right


class KnownPositions:
    """Offsets and positions of some entries, both in rising order."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")

    def add(self, offset: int, position: int) -> None:
        """Add an entry. All entries before it have lower offsets, all behind it higher ones."""
        number = bisect_right(self._positions, position)
        if not number or self._positions[number - 1] != position:
            self._offsets.insert(number, offset)
            self._positions.insert(number, position)

    def around(self, offset: int) -> tuple[int, int | None]:
        """Return the position of the last known entry at or below `offset` (0 if none), and that of
        the next known entry."""
        number = bisect_right(self._offsets, offset)
        before = self._positions[number - 1] if number else 0
        return before, self._positions[number] if number < len(self._positions) else None
