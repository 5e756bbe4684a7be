"""The offset index (`.index`): from which position in the log file to search for an offset; and the
positions that were learned by reading where the index has no entries.

An entry has 8 bytes: offset relative to the segment's base (int32), position in the log file
(int32). Offsets and positions both increase. The offset is that of the entry in the log; for a
wrapper message it is the offset of the last message inside.

An index can be sparse (`index.interval.bytes` is set by the user). A read of an offset far behind
the last index entry has to scan everything in between. The positions that the scan met are kept in
memory, so that each part of the file is scanned once.
"""

import bisect
from array import array
from pathlib import Path

from ..names import RELATIVE_OFFSET_MAX
from ..open_files import IndexCache, OpenFiles
from .index_file import (
    IndexFile,
    StoredColumn,
    StoredFile,
    bisect_left,
    bisect_right,
    bytes_of,
    numbers_of,
)


class KnownPositions:
    """Offsets and positions of some entries, both in rising order."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")

    def add(self, offset: int, position: int) -> None:
        """Add an entry. All entries before it have lower offsets, all behind it higher ones."""
        number = bisect.bisect_right(self._positions, position)
        if not number or self._positions[number - 1] != position:
            self._offsets.insert(number, offset)
            self._positions.insert(number, position)

    def around(self, offset: int) -> tuple[int, int | None]:
        """Return the position of the last known entry at or below `offset` (0 if none), and that of
        the next known entry."""
        number = bisect.bisect_right(self._offsets, offset)
        before = self._positions[number - 1] if number else 0
        return before, self._positions[number] if number < len(self._positions) else None


class OffsetIndex(IndexFile):
    """Sparse map from offset to position."""

    __slots__ = ("_offsets", "_positions")

    ENTRY_BYTES = 8

    def __init__(
        self,
        path: Path,
        base_offset: int,
        max_bytes: int,
        open_files: OpenFiles,
        cache: IndexCache | None = None,
    ) -> None:
        super().__init__(path, base_offset, max_bytes, open_files, cache)
        self._offsets = array("i")
        self._positions = array("i")

    def add(self, offset: int, position: int) -> None:
        """Add an entry in memory. Its offset must be above that of the last entry."""
        self._take_back()
        assert not self._offsets or offset - self.base_offset > self._offsets[-1]
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)
        self._set_count(len(self._offsets))

    def add_all(self, offsets: "array[int]", positions: "array[int]") -> None:
        """Like `add` for several entries. `offsets` are relative to the base offset; both arrays
        are int32.

        There must be room for all entries.
        """
        if self._stored is not None:
            self._take_back()
        assert not self._offsets or not offsets or offsets[0] > self._offsets[-1]
        self._offsets.extend(offsets)
        self._positions.extend(positions)
        self.count += len(offsets)
        self.room -= len(offsets)

    def entry(self, number: int) -> tuple[int, int]:
        """Return `(offset, position)` of an entry, by its number from 0."""
        return self.base_offset + self._offsets[number], self._positions[number]

    def lookup(self, offset: int) -> int:
        """Return the position to start searching for `offset`: that of the last entry at or below
        it, else 0."""
        number = bisect_right(self._offsets, offset - self.base_offset) - 1
        return self._positions[number] if number >= 0 else 0

    def around(self, offset: int) -> tuple[int, int, int]:
        """Return `(offset, position)` of the last entry at or below `offset`, or of the start, and
        the position of the next entry, or one beyond all."""
        number = bisect_right(self._offsets, offset - self.base_offset)
        after = self._positions[number] if number < len(self._positions) else RELATIVE_OFFSET_MAX
        if not number:
            return self.base_offset, 0, after
        return self.base_offset + self._offsets[number - 1], self._positions[number - 1], after

    def truncate(self, offset: int, position: int) -> None:
        """Drop the entries at `offset` and above, and those at or behind byte `position` of the
        log, as `keep` does. Raises `OSError`."""
        self.keep(min(self.count_below(offset), self.count_before(position)))

    def count_below(self, offset: int) -> int:
        """Return the number of entries whose offset is below `offset`."""
        return bisect_left(self._offsets, offset - self.base_offset)

    def count_before(self, position: int) -> int:
        """Return the number of entries whose position is below `position`."""
        return bisect_left(self._positions, position)

    def encoded(self, first: int = 0) -> bytes:
        if self._stored is not None:
            return self._stored.read(first)
        pairs = array("i", bytes(8 * (self.count - first)))
        pairs[0::2] = self._offsets[first:]
        pairs[1::2] = self._positions[first:]
        return bytes_of(pairs)

    def _read_from(self, stored: StoredFile) -> None:
        self._offsets = StoredColumn(stored, self.ENTRY_BYTES, "i", 0)  # type: ignore[assignment]
        self._positions = StoredColumn(stored, self.ENTRY_BYTES, "i", 4)  # type: ignore[assignment]

    def load(self, data: bytes) -> None:
        self._stored = None
        numbers = numbers_of(data[: len(data) // self.ENTRY_BYTES * self.ENTRY_BYTES])
        self._offsets = numbers[0::2]
        self._positions = numbers[1::2]
        self._set_count(len(self._offsets))

    def _shorten(self, count: int) -> None:
        del self._offsets[count:]
        del self._positions[count:]
        self._set_count(len(self._offsets))
