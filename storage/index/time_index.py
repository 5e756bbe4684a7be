"""The time index (`.timeindex`): from which offset on to look for a time.

Entry, 12 bytes: timestamp in ms (int64), offset relative to the segment's base (int32). An
entry `(T, n)` says: every message of this segment with an offset below `n` has a timestamp
<= T, and `n` is the next offset when the entry is written. Timestamps and offsets both
increase. The last entry of a rolled or closed segment is its largest timestamp and the base
offset of the next segment; a segment without timestamps has no entry.

Kafka stores the offset of the message that has the maximum instead. `start_for` and `truncate`
are right for both meanings.
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
"""Where the halves of an int64 lie in memory."""


class TimeIndex(IndexFile):
    """Sparse map from the largest timestamp so far to the offset where it was known."""

    __slots__ = ("_offsets", "_timestamps")

    ENTRY_BYTES = 12
    KEPT_ENTRIES = 1
    """The closing one."""

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
        """Timestamp of the last entry, -1 when there is none."""
        return self._timestamps[-1] if self._timestamps else -1

    def add(self, timestamp_ms: int, offset: int) -> bool:
        """Add an entry in memory when `timestamp_ms` is above the last one; say whether it was."""
        self._take_back()
        if timestamp_ms <= self.last_timestamp_ms:
            return False
        assert not self._offsets or offset - self.base_offset > self._offsets[-1]
        self._timestamps.append(timestamp_ms)
        self._offsets.append(offset - self.base_offset)
        self._set_count(len(self._timestamps))
        return True

    def add_all(self, timestamps_ms: "array[int]", offsets: "array[int]") -> None:
        """As `add` for each; there must be room for all of them.

        The timestamps (int64) rise. `offsets` (int32) are counted from the base offset.
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
        """What `reopen` needs: how many entries there are, and the last one's offset, counted from
        the base offset."""
        return len(self._offsets), self._offsets[-1] if self._offsets else 0

    def reopen(self, entries: int, last_offset: int) -> None:
        """Be again as before `finish`, in memory; the next write brings it to the file.

        `entries` and `last_offset` are the `open_form` of then.
        """
        self._take_back()
        if not self.count - 1 <= entries <= self.count:
            return  # of another index
        self._shorten(entries)
        if entries and last_offset <= self._offsets[-1]:
            self._offsets[-1] = last_offset
        self._failed_from = max(entries - 1, 0)
        self._surplus = True

    def finish(self, timestamp_ms: int, next_offset: int) -> int:
        """Make the last entry `(timestamp_ms, next_offset)`, in memory.

        An entry that already has the timestamp is moved up to `next_offset`, which is true of it
        too. Where that is further from the base than an entry can say, as in a segment that Kafka
        let grow too long, the entry is for the furthest offset that it can say, which is true as
        well. Returns the number of the first entry that changed (their number when none did).
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
        """Make `timestamp_ms` that of the last entry, behind which there can be none, if it is
        above it; as `finish`."""
        if timestamp_ms <= self._timestamps[-1]:
            return self.count
        self._timestamps[-1] = timestamp_ms
        return self.count - 1

    def entry(self, number: int) -> tuple[int, int]:
        """`(timestamp_ms, offset)` of an entry, by its number from 0."""
        return self._timestamps[number], self.base_offset + self._offsets[number]

    def start_for(self, target_ms: int) -> int:
        """Offset to start looking for the first timestamp >= `target_ms`.

        The offset of the last entry whose timestamp is strictly below the target, else the base
        offset.
        """
        number = bisect_left(self._timestamps, target_ms) - 1
        return self.base_offset + (self._offsets[number] if number >= 0 else 0)

    def known_before(self, offset: int) -> tuple[int, int]:
        """`(timestamp_ms, known)`: the largest timestamp below offset `known`, which is no larger
        than `offset`; `(-1, base offset)` when no entry tells."""
        count = self.count_below(offset)
        return self.entry(count - 1) if count else (-1, self.base_offset)

    def truncate(self, offset: int) -> None:
        """Drop the entries at `offset` and above, as `keep` does. Raises `OSError`."""
        self.keep(self.count_below(offset))

    def count_below(self, offset: int) -> int:
        """Number of entries whose offset is below `offset`."""
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
