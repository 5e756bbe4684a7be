"""Where offsets are in one log file, as far as reading it showed, where its index has no entries.

An index can be sparse (`index.interval.bytes` is the user's), and a read of an offset far behind
its last entry has to go through everything between. The positions that it met are kept in memory,
so that each piece is gone through once.
"""

from array import array
from bisect import bisect_right


class KnownPositions:
    """Offsets and positions of some entries, both rising."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")

    def add(self, offset: int, position: int) -> None:
        """Add an entry: all before it have lower offsets, all behind it higher ones."""
        number = bisect_right(self._positions, position)
        if not number or self._positions[number - 1] != position:
            self._offsets.insert(number, offset)
            self._positions.insert(number, position)

    def around(self, offset: int) -> tuple[int, int | None]:
        """Position of the last place at or below `offset`, else 0, and of the one behind it."""
        number = bisect_right(self._offsets, offset)
        before = self._positions[number - 1] if number else 0
        return before, self._positions[number] if number < len(self._positions) else None
