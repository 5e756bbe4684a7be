"""The time index (`.timeindex`): from which offset on to search for a timestamp.

An entry has 12 bytes: timestamp in ms (int64), offset relative to the segment's base (int32). An
entry `(T, n)` says that every message of this segment with an offset below `n` has a timestamp <=
T; `n` is the next offset at the time of writing. Timestamps and offsets both increase. The last
entry of a rolled or closed segment has its largest timestamp and the base offset of the next
segment. A segment without timestamps has no entry.

Kafka stores the offset of the message with the maximum instead. `start_for` and `truncate` are
correct for both meanings.
"""

import sys
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

_LOW, _HIGH = (0, 1) if sys.byteorder == "little" else (1, 0)
"""Positions of the halves of an int64 in memory."""


class TimeIndex(IndexFile):
    """Sparse map from the largest timestamp so far to the next offset at that time."""

    __slots__ = ("_offsets", "_timestamps")

    ENTRY_BYTES = 12
    KEPT_ENTRIES = 1
    """The closing entry."""

    def __init__(
        self,
        path: Path,
        base_offset: int,
        max_bytes: int,
        open_files: OpenFiles,
        cache: IndexCache | None = None,
    ) -> None:
        super().__init__(path, base_offset, max_bytes, open_files, cache)
        self._timestamps = array("q")
        self._offsets = array("i")

    @property
    def last_timestamp_ms(self) -> int:
        """Timestamp of the last entry, -1 if there is none."""
        return self._timestamps[-1] if self._timestamps else -1

    def add(self, timestamp_ms: int, offset: int) -> bool:
        """Add an entry in memory if `timestamp_ms` is above the last one. Return whether it was
        added."""
        self._take_back()
        if timestamp_ms <= self.last_timestamp_ms:
            return False
        assert not self._offsets or offset - self.base_offset > self._offsets[-1]
        self._timestamps.append(timestamp_ms)
        self._offsets.append(offset - self.base_offset)
        self._set_count(len(self._timestamps))
        return True

    def add_all(self, timestamps_ms: "array[int]", offsets: "array[int]") -> None:
        """Like `add` for several entries. There must be room for all of them.

        The timestamps (int64) rise. `offsets` (int32) are relative to the base offset.
        """
        if not timestamps_ms:
            return
        if self._stored is not None:
            self._take_back()
        known = bisect_right(timestamps_ms, self.last_timestamp_ms)
        if known:
            timestamps_ms, offsets = timestamps_ms[known:], offsets[known:]
        self._timestamps.extend(timestamps_ms)
        self._offsets.extend(offsets)
        self.count += len(offsets)
        self.room -= len(offsets)

    @property
    def open_form(self) -> tuple[int, int]:
        """What `reopen` needs: the number of entries, and the last one's offset relative to the
        base offset."""
        return len(self._offsets), self._offsets[-1] if self._offsets else 0

    def reopen(self, entries: int, last_offset: int) -> None:
        """Restore in memory the state before `finish`. The next write brings it to the file.

        `entries` and `last_offset` are the `open_form` of that state.
        """
        self._take_back()
        if not self.count - 1 <= entries <= self.count:
            return  # The values belong to another index.
        self._shorten(entries)
        if entries and last_offset <= self._offsets[-1]:
            self._offsets[-1] = last_offset
        self._failed_from = max(entries - 1, 0)
        self._surplus = True

    def finish(self, timestamp_ms: int, next_offset: int) -> int:
        """Make the last entry `(timestamp_ms, next_offset)`, in memory.

        If an entry has that timestamp already, it is moved up to `next_offset`, which is correct
        for it too. If `next_offset` is further from the base than an entry can hold, as in a
        segment that Kafka let grow too long, the entry gets the largest possible offset, which is
        correct as well. Returns the number of the first changed entry (the number of entries if
        none changed).
        """
        self._take_back()
        next_offset = min(next_offset, self.base_offset + RELATIVE_OFFSET_MAX)
        if self._offsets and self._offsets[-1] == RELATIVE_OFFSET_MAX:
            return self._raise_last(timestamp_ms)
        if timestamp_ms < 0 or self.add(timestamp_ms, next_offset):
            return self.count - (timestamp_ms >= 0)
        relative = next_offset - self.base_offset
        if timestamp_ms == self._timestamps[-1] and relative > self._offsets[-1]:
            self._offsets[-1] = relative
            return self.count - 1
        return self.count

    def _raise_last(self, timestamp_ms: int) -> int:
        """Raise the last entry, which can have none behind it, to `timestamp_ms` if that is larger.
        Returns as `finish`."""
        if timestamp_ms <= self._timestamps[-1]:
            return self.count
        self._timestamps[-1] = timestamp_ms
        return self.count - 1

    def entry(self, number: int) -> tuple[int, int]:
        """Return `(timestamp_ms, offset)` of an entry, by its number from 0."""
        return self._timestamps[number], self.base_offset + self._offsets[number]

    def start_for(self, target_ms: int) -> int:
        """Return the offset to start searching for the first timestamp >= `target_ms`.

        That is the offset of the last entry whose timestamp is strictly below the target, else the
        base offset.
        """
        number = bisect_left(self._timestamps, target_ms) - 1
        return self.base_offset + (self._offsets[number] if number >= 0 else 0)

    def known_before(self, offset: int) -> tuple[int, int]:
        """Return `(timestamp_ms, known)`: the largest timestamp below offset `known`, the largest
        such offset up to `offset`. `(-1, base offset)` if no entry has it."""
        count = self.count_below(offset)
        return self.entry(count - 1) if count else (-1, self.base_offset)

    def truncate(self, offset: int) -> None:
        """Drop the entries at `offset` and above, as `keep` does. Raises `OSError`."""
        self.keep(self.count_below(offset))

    def count_below(self, offset: int) -> int:
        """Return the number of entries whose offset is below `offset`."""
        return bisect_left(self._offsets, offset - self.base_offset)

    def encoded(self, first: int = 0) -> bytes:
        if self._stored is not None:
            return self._stored.read(first)
        halves = array("i", self._timestamps[first:].tobytes())
        numbers = array("i", bytes(self.ENTRY_BYTES * (self.count - first)))
        numbers[0::3] = halves[_HIGH::2]
        numbers[1::3] = halves[_LOW::2]
        numbers[2::3] = self._offsets[first:]
        return bytes_of(numbers)

    def _read_from(self, stored: StoredFile) -> None:
        entry_bytes = self.ENTRY_BYTES
        self._timestamps = StoredColumn(stored, entry_bytes, "q", 0)  # type: ignore[assignment]
        self._offsets = StoredColumn(stored, entry_bytes, "i", 8)  # type: ignore[assignment]

    def load(self, data: bytes) -> None:
        self._stored = None
        numbers = numbers_of(data[: len(data) // self.ENTRY_BYTES * self.ENTRY_BYTES])
        halves = array("i", bytes(8 * (len(numbers) // 3)))
        halves[_HIGH::2] = numbers[0::3]
        halves[_LOW::2] = numbers[1::3]
        self._timestamps = array("q", halves.tobytes())
        self._offsets = numbers[2::3]
        self._set_count(len(self._timestamps))

    def _shorten(self, count: int) -> None:
        del self._timestamps[count:]
        del self._offsets[count:]
        self._set_count(len(self._timestamps))
