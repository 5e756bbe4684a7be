"""The append times of a segment (`.appendtime`): when each message set was appended.

An entry has 12 bytes: offset relative to the segment's base (int32), time in ms since the epoch
(int64), both big-endian. Entries follow each other from byte 0. An entry `(n, T)` says that the
messages from offset `n` up to the next entry's offset were appended at T. T = -1 means unknown;
messages before the first entry are unknown too. Offsets rise. Times may fall, as clocks do.

No other file has these times, so a lost time stays unknown, and a wrong one would never be noticed.
Entries are therefore trusted only where they are certain:

- For a segment that a roll or a clean stop closed: the entries are trusted if the file matches the
  segment's line in `index-checksums`. Its length is checked at once, its CRC-32 before the first
  use.
- Without such a line, after an unclean stop: the entries below the recovery point are trusted,
  because it is checkpointed only after the append times below it were synced. Above the recovery
  point, the page cache still has every entry after a mere kill. But a power cut may have kept a
  message set and lost its entry. Its messages would then appear to be part of the set before, and
  the files do not show the difference. The times there are unknown.

A missing or invalid file makes the times of its segment unknown. This is not an error.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from ...protocol.records.kernel import append_entries
from ...protocol.records.layout import NO_TIMESTAMP
from ...times import INT64_MAX
from ..files import NO_HANDLES, File
from ..names import RELATIVE_OFFSET_MAX
from ..seams import Seams
from .index_checksums import AppendTimesChecksum

ENTRY: Final = struct.Struct(">iq")
"""Relative offset, append time in ms."""

BLOCK_ENTRIES: Final = 512

STEP_ENTRIES: Final = 8 * BLOCK_ENTRIES
"""Number of entries read at a time when a whole file is read."""


Span = tuple[int, int]
"""An offset, and the append time of the messages from there up to the next span's offset; -1 means
unknown."""


class Blocks:
    """The blocks of the first `count` entries of a file, which were read one by one."""

    __slots__ = ("_last_relative", "_max_ms", "_min_ms", "_offsets", "count", "crc")

    def __init__(self) -> None:
        self.count = 0
        self.crc = 0
        self._last_relative = -1
        self._offsets = array("i")
        self._max_ms = array("q")
        self._min_ms = array("q")

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._offsets)

    @property
    def largest_ms(self) -> int:
        """The largest append time, -1 if none is known."""
        return self._max_ms[-1] if self._max_ms else NO_TIMESTAMP

    @property
    def smallest_ms(self) -> int:
        """The smallest known append time; `INT64_MAX` if none is known."""
        return min(self._min_ms, default=INT64_MAX)

    def take(self, data: bytes, limit: int) -> bool:
        """Add the entries in `data`.

        Returns `False` if there are none, or at an entry that is invalid or whose relative offset
        is `limit` or more. That entry and those behind it are not added.
        """
        last_relative, largest_ms, count = self._last_relative, self.largest_ms, self.count
        whole = len(data) - len(data) % ENTRY.size
        for relative, append_time_ms in ENTRY.iter_unpack(memoryview(data)[:whole]):
            if not last_relative < relative < limit or append_time_ms < NO_TIMESTAMP:
                break
            last_relative = relative
            if append_time_ms > largest_ms:
                largest_ms = append_time_ms
            known_ms = append_time_ms if append_time_ms >= 0 else INT64_MAX
            if count % BLOCK_ENTRIES:
                self._max_ms[-1] = largest_ms
                if known_ms < self._min_ms[-1]:
                    self._min_ms[-1] = known_ms
            else:
                self._offsets.append(relative)
                self._max_ms.append(largest_ms)
                self._min_ms.append(known_ms)
            count += 1
        taken_bytes = (count - self.count) * ENTRY.size
        self.crc = crc32(memoryview(data)[:taken_bytes], self.crc)
        self._last_relative, self.count = last_relative, count
        return 0 < taken_bytes == len(data)

    def add(self, offsets: Sequence[int], base_offset: int, append_time_ms: int, crc: int) -> None:
        """Add valid entries with the same time. `crc` is that of all entries including these."""
        count, first_begun = len(offsets), -self.count % BLOCK_ENTRIES
        known_ms = append_time_ms if append_time_ms >= 0 else INT64_MAX
        if first_begun:
            if append_time_ms > self._max_ms[-1]:
                self._max_ms[-1] = append_time_ms
            if known_ms < self._min_ms[-1]:
                self._min_ms[-1] = known_ms
        if first_begun < count:
            for begun in range(first_begun, count, BLOCK_ENTRIES):
                self._max_ms.append(max(self.largest_ms, append_time_ms))
                self._min_ms.append(known_ms)
                self._offsets.append(offsets[begun] - base_offset)
        self.count += count
        self.crc, self._last_relative = crc, offsets[-1] - base_offset

    def start(self, block: int) -> int:
        """Return the relative offset at which a block begins."""
        return self._offsets[block]

    def holding(self, relative: int) -> int:
        """Return the last block that begins at or below a relative offset; -1 if there is none."""
        return bisect_right(self._offsets, relative) - 1

    def first_reaching(self, target_ms: int) -> int:
        """Return the first block with a time of `target_ms` or later; the number of blocks if there
        is none."""
        return bisect_left(self._max_ms, target_ms)

    def first_below(self, block: int, limit_ms: int) -> int:
        """Return the first block, from `block` on, with a known time of `limit_ms` or earlier; the
        number of blocks if there is none."""
        for number in range(block, len(self._min_ms)):
            if self._min_ms[number] <= limit_ms:
                return number
        return len(self._min_ms)


class AppendTimes:
    """The append times of one segment, known from its file up to, but not including,
    `end_offset`."""

    __slots__ = (
        "_count",
        "_crc",
        "_last_ms",
        "_name",
        "_run_offset",
        "_seams",
        "_surplus",
        "_unsynced",
        "base_offset",
        "blocks",
        "changes",
        "end_offset",
        "largest_ms",
        "settled",
        "sync_failed",
    )

    def __init__(self, path: Path, base_offset: int, seams: Seams) -> None:
        """Nothing is known until the file is adopted or recovered. The first write empties it."""
        self._name = str(path)
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.largest_ms = NO_TIMESTAMP
        """Upper bound of the times of all entries. -1 if no entry has a time."""
        self.changes = 0
        """How often entries were removed. Results found before a removal are not valid after it."""
        self.settled = False
        """Whether it was decided which entries of the file to trust."""
        self._seams = seams
        self._count = 0
        self._crc = 0
        self._last_ms: int | None = NO_TIMESTAMP
        """Time of the last entry, -1 if there is none; `None` if it was not read yet."""
        self._run_offset: int | None = None
        """First offset of the last run of messages with the time of the last entry; `None` if not
        known."""
        self._surplus = True
        """Whether the file may hold more than the entries."""
        self._unsynced = False
        self.sync_failed = False
        """Whether a sync of the file failed. It is never tried again then."""
        self.blocks = Blocks()
        """Blocks of the entries read so far. All were read once their count equals that of the
        entries."""

    @property
    def path(self) -> Path:
        """Created on request: a path takes more memory than its name."""
        return Path(self._name)

    def __len__(self) -> int:
        """Number of entries."""
        return self._count

    @property
    def size_bytes(self) -> int:
        return self._count * ENTRY.size

    def checksums(self) -> AppendTimesChecksum:
        """Return the line of checksums with which the file can be trusted later."""
        return AppendTimesChecksum(self.size_bytes, self._crc, self.largest_ms, self.end_offset)

    def adopt(self, checksum: AppendTimesChecksum | None) -> None:
        """Use the entries that were there when the segment was closed.

        Reads only the file's size; `load` checks the rest. Raises `OSError`.
        """
        self.settled = True
        self._clear()
        size_bytes = self._size_of_file()
        if checksum is None:
            if size_bytes:
                self._drop("no checksum")
            return
        self.end_offset = max(checksum.end_offset, self.base_offset)
        if checksum.size_bytes > size_bytes or checksum.size_bytes % ENTRY.size:
            self._drop("shorter than it was" if size_bytes else "missing")
            return
        self._count = checksum.size_bytes // ENTRY.size
        self._crc = checksum.crc
        self._last_ms = None if self._count else NO_TIMESTAMP
        self.largest_ms = checksum.largest_ms

    def recover(
        self, checksum: AppendTimesChecksum | None, certain_offset: int, next_offset: int
    ) -> None:
        """After an unclean stop, keep the entries below `certain_offset`.

        `checksum` is from when the segment was closed, if nothing was synced since: then the
        entries of that time are kept. The segment ends at `next_offset`. From the certain offset
        on, times are unknown. Raises `OSError`.
        """
        self.settled = True
        size_bytes = self._size_of_file()
        if checksum is not None:
            self.adopt(checksum)
            while not self.load():
                pass
            certain_offset = min(certain_offset, self.end_offset)
        certain_offset = min(max(certain_offset, self.base_offset), next_offset)
        self._retake(certain_offset, None if checksum is None else self._count)
        if size_bytes and certain_offset < next_offset:
            self._seams.observe(
                "append_times_unknown",
                path=self._name,
                first_offset=certain_offset,
                next_offset=next_offset,
            )
        self.cut_back()
        self.end_at(next_offset)

    def end_at(self, next_offset: int) -> None:
        """Record that the segment ends at `next_offset`, whatever the entries say. Raises
        `OSError`."""
        if next_offset < self.end_offset:
            self.truncate(next_offset, next_offset)
        elif next_offset > self.end_offset:
            self.add(self.end_offset, next_offset, NO_TIMESTAMP)

    @property
    def loaded(self) -> bool:
        """Whether all entries were read."""
        return self.blocks.count == self._count

    def load(self) -> bool:
        """Read the next entries that were not read yet. Return `True` once all were.

        Entries that do not match their checksum are dropped. Raises `OSError`.
        """
        blocks = self.blocks
        if blocks.count < self._count:
            wanted = min(self._count - blocks.count, STEP_ENTRIES)
            data = self._read(blocks.count, wanted)
            if len(data) < wanted * ENTRY.size:
                self._drop("shorter than it was")
            elif not blocks.take(data, self.end_offset - self.base_offset):
                self._drop("damaged")
            elif blocks.count == self._count:
                self.largest_ms = blocks.largest_ms
                if blocks.crc != self._crc:
                    self._drop("checksum does not fit")
        return self.loaded

    def add(self, first_offset: int, next_offset: int, append_time_ms: int) -> None:
        """Record that the messages between the two offsets were appended together.

        `append_time_ms` is -1 if unknown. If this raises, nothing is recorded, and `take_back` has
        to remove what may have been written. Raises `OSError`.
        """
        self.add_sets((first_offset,), next_offset, append_time_ms)

    def add_sets(self, first_offsets: Sequence[int], next_offset: int, append_time_ms: int) -> None:
        """Like `add`, for consecutive sets that were appended at the same time.

        Each set begins at one of `first_offsets`. The last one ends before `next_offset`.
        """
        if first_offsets[0] != self.end_offset:
            self.end_at(first_offsets[0])
        if append_time_ms < 0:
            append_time_ms = NO_TIMESTAMP
            if self._tail_ms() < 0:
                self.end_offset = next_offset
                return
            first_offsets = first_offsets[:1]
        if self._surplus:
            self.cut_back()
        blocks, count = self.blocks, self._count
        base_offset = self.base_offset
        data = append_entries(first_offsets, base_offset, append_time_ms)
        crc = crc32(data, self._crc)
        self._write(data)
        if blocks.count == count:
            blocks.add(first_offsets, base_offset, append_time_ms, crc)
        self._crc, self._count = crc, count + len(first_offsets)
        if append_time_ms != self._last_ms:
            self._last_ms, self._run_offset = append_time_ms, first_offsets[0]
        if append_time_ms > self.largest_ms:
            self.largest_ms = append_time_ms
        self.end_offset = next_offset
        self._surplus = False

    def add_spans(self, spans: Sequence[Span], next_offset: int) -> None:
        """Like `add` for each span. A span ends at the next one's offset, the last at
        `next_offset`.

        `spans` come from another log with the same messages; their offsets rise. A span with the
        same time as the one before gets no entry of its own. From `RELATIVE_OFFSET_MAX` behind the
        base offset on, no entry can hold the offset, and all times are unknown.
        """
        if spans[0][0] != self.end_offset:
            self.end_at(spans[0][0])
        tail_ms = self._tail_ms()
        entries = bytearray()
        run_offset = self._run_offset
        end_of_entries = self.base_offset + RELATIVE_OFFSET_MAX
        if spans[-1][0] >= end_of_entries:
            near = [span for span in spans if span[0] < end_of_entries]
            spans = [*near, (end_of_entries, NO_TIMESTAMP)]
        for offset, append_time_ms in spans:
            if append_time_ms != tail_ms:
                entries += ENTRY.pack(offset - self.base_offset, append_time_ms)
                tail_ms, run_offset = append_time_ms, offset
        if entries:
            if self._surplus:
                self.cut_back()
            self._write(entries)
            count, blocks = self._count, self.blocks
            self._count = count + len(entries) // ENTRY.size
            self._crc = crc32(entries, self._crc)
            if blocks.count == count:
                if len(spans) == 1:
                    blocks.add((spans[0][0],), self.base_offset, tail_ms, self._crc)
                else:
                    blocks.take(bytes(entries), next_offset - self.base_offset)
            self._last_ms, self._run_offset = tail_ms, run_offset
            self.largest_ms = max(self.largest_ms, *[ms for _, ms in spans])
            self._surplus = False
        self.end_offset = next_offset

    def _write(self, entries: bytes | bytearray) -> None:
        """Write entries behind the existing ones. They are surplus until the caller counts them."""
        self._surplus = True
        try:
            file = self._seams.open_files.use(self._name)
        except FileNotFoundError:
            self._seams.files.open(self.path, create=True).close()
            file = self._file()
        file.pwrite(entries, self._count * ENTRY.size)
        self._unsynced = True

    def truncate(self, end_offset: int, next_offset: int) -> None:
        """Drop the times of offsets from `end_offset` on, where the messages now end.

        The segment now ends at `next_offset`. Raises `OSError`.
        """
        while not self.load():
            pass
        told_offset = self.end_offset
        self._retake(end_offset, self._count)
        self.end_offset = min(told_offset, next_offset)
        self.cut_back()

    def take_back(self) -> None:
        """Remove what an `add` that raised may have left. Raises `OSError`.

        If no handle is free for the file, the next `add` removes it.
        """
        if self._surplus:
            self.blocks = Blocks()
            try:
                self.cut_back()
            except OSError as error:
                if error.errno not in NO_HANDLES:
                    raise

    def cut_back(self) -> None:
        """Remove whatever the file holds beyond the entries. Raises `OSError`."""
        if self._surplus and self._size_of_file() > self.size_bytes:
            self._file().truncate(self.size_bytes)
            self._unsynced = True
        self._surplus = False

    def sync(self) -> bool:
        """Sync what was written before this call.

        May run in another thread than the writes. Raises `OSError`. A failed sync is not tried
        again: from then on the result is false.
        """
        if self._unsynced and not self.sync_failed:
            self._unsynced = False
            try:
                file = self._seams.files.open(self.path)
            except FileNotFoundError:
                return True  # The segment was dropped.
            except OSError:
                self._unsynced = True
                raise
            try:
                file.sync()
            except OSError:
                self.sync_failed = True
                raise
            finally:
                file.close()
        return not self.sync_failed

    def read_block(self, number: int, skipped: int = 0) -> bytes:
        """Return the entries of a block without the first `skipped`; empty if another process
        truncated the file."""
        first = number * BLOCK_ENTRIES
        wanted = min(self._count - first, BLOCK_ENTRIES) - skipped
        data = self._read(first + skipped, wanted)
        if len(data) < wanted * ENTRY.size:
            self._drop("shorter than it was")
            return b""
        return data

    def only_since(self, offset: int) -> int | None:
        """Return the time at which all messages from `offset` on were appended, if it is the same
        for all and known without reading the file."""
        run_offset = self._run_offset
        if run_offset is None or not (run_offset <= offset < self.end_offset and self.loaded):
            return None
        return self._last_ms

    def _clear(self) -> None:
        """Drop all entries, and assume that the file may still hold some."""
        self.changes += 1
        self.end_offset = self.base_offset
        self.largest_ms = NO_TIMESTAMP
        self._count = self._crc = 0
        self._last_ms, self._run_offset = NO_TIMESTAMP, None
        self._surplus = True
        self.blocks = Blocks()

    def _drop(self, reason: str) -> None:
        """Drop everything known from the file."""
        end_offset = self.end_offset
        self._clear()
        self.end_offset = end_offset
        self._seams.observe("append_times_dropped", path=self._name, reason=reason)

    def _retake(self, limit_offset: int, count_max: int | None = None) -> None:
        """Read the file's first entries again, up to the first one that is invalid or at
        `limit_offset` or beyond."""
        self._clear()
        blocks = self.blocks
        wanted = STEP_ENTRIES if count_max is None else min(STEP_ENTRIES, count_max)
        limit = limit_offset - self.base_offset
        while wanted and blocks.take(self._read(blocks.count, wanted), limit):
            if count_max is not None:
                wanted = min(STEP_ENTRIES, count_max - blocks.count)
        self._count, self._crc = blocks.count, blocks.crc
        self._last_ms = None if self._count else NO_TIMESTAMP
        self.largest_ms = blocks.largest_ms
        self.end_offset = limit_offset

    def _tail_ms(self) -> int:
        """Return the time of the last entry; -1 if there is none."""
        if self._last_ms is None:
            data = self._read(self._count - 1, 1)
            if len(data) < ENTRY.size:
                self._drop("shorter than it was")
                return NO_TIMESTAMP
            self._last_ms = ENTRY.unpack(data)[1]
        return self._last_ms

    def _read(self, first: int, count: int) -> bytes:
        try:
            return self._file().pread(count * ENTRY.size, first * ENTRY.size)
        except FileNotFoundError:
            return b""

    def _file(self) -> File:
        return self._seams.open_files.use(self._name)

    def _size_of_file(self) -> int:
        try:
            return self._seams.files.size(self.path)
        except FileNotFoundError:
            return 0
