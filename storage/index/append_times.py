"""The append times of a segment (`.appendtime`): when each of its sets was appended.

Entry, 12 bytes: offset relative to the segment's base (int32), time in ms since the epoch (int64),
both big-endian, one behind the other from byte 0. An entry `(n, T)` says that the messages from
offset `n` on, up to the next entry's offset, were appended at T; T = -1 says that it is not known
when, which is also so of messages before the first entry. Offsets rise. Times may fall, as clocks
do.

Nothing else tells these times, so what is lost stays unknown, and a wrong one would never be
noticed. Entries are therefore believed only where they are certain:

- Those of a segment that a roll or a clean stop closed, if the file fits the line that the segment
  got in `index-checksums` then: its length at once, its CRC-32 before the first look.
- Without such a line after a stop that was not clean, those below the recovery point: it is
  checkpointed only once the append times below it are synced. Above it, the page cache has every
  entry after a mere kill; but a power cut may have kept a set and lost its entry, so that its
  messages would pass for a part of the set before, and nothing in the files tells the one from the
  other. There the times are unknown.

A file that is missing, or not as it should be, makes the times of its segment unknown and is no
error.
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
"""How many entries are read at a time where a whole file is."""


Span = tuple[int, int]
"""An offset, and the append time of the messages from there on up to the next span's offset; -1 is
unknown."""


class Blocks:
    """The blocks of the first `count` entries of a file, which were looked at one by one."""

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
        """The largest time of all, -1 when none is known."""
        return self._max_ms[-1] if self._max_ms else NO_TIMESTAMP

    @property
    def smallest_ms(self) -> int:
        """The smallest time that is known, behind all times when none is."""
        return min(self._min_ms, default=INT64_MAX)

    def take(self, data: bytes, limit: int) -> bool:
        """Go on through the entries in `data`.

        `False` if there are none, or when one makes no sense or its relative offset is `limit` or
        more: it and those behind it are not taken.
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
        """Go on with entries of one time that are right; `crc` is that of all entries then."""
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
        """The relative offset that a block begins with."""
        return self._offsets[block]

    def holding(self, relative: int) -> int:
        """The last block that begins at or below a relative offset; -1 when there is none."""
        return bisect_right(self._offsets, relative) - 1

    def first_reaching(self, target_ms: int) -> int:
        """The first block with a time of `target_ms` or later; their number when there is none."""
        return bisect_left(self._max_ms, target_ms)

    def first_below(self, block: int, limit_ms: int) -> int:
        """The first block from this one on with a known time of `limit_ms` or earlier; their number
        when there is none."""
        for number in range(block, len(self._min_ms)):
            if self._min_ms[number] <= limit_ms:
                return number
        return len(self._min_ms)


class AppendTimes:
    """The append times of one segment, known from its file up to, without, `end_offset`."""

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
        """Nothing is known until the file is adopted or recovered; the first write empties it."""
        self._name = str(path)
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.largest_ms = NO_TIMESTAMP
        """No entry has a larger time. -1 when none has any."""
        self.changes = 0
        """How often entries were taken away: what was found before that means nothing after."""
        self.settled = False
        """Whether it is decided what of the file is believed."""
        self._seams = seams
        self._count = 0
        self._crc = 0
        self._last_ms: int | None = NO_TIMESTAMP
        """Time of the last entry, -1 without one; `None` when it was not read yet."""
        self._run_offset: int | None = None
        """From here to the end all were appended at the time of the last entry; `None` where that
        is not known."""
        self._surplus = True
        """Whether the file may hold more than the entries."""
        self._unsynced = False
        self.sync_failed = False
        """Whether a sync of the file failed, so that none is ever tried again."""
        self.blocks = Blocks()
        """Of the entries that were looked at. All were when there are as many as entries."""

    @property
    def path(self) -> Path:
        """Made when it is asked for: a path takes more memory than its name."""
        return Path(self._name)

    def __len__(self) -> int:
        """Number of entries."""
        return self._count

    @property
    def size_bytes(self) -> int:
        return self._count * ENTRY.size

    def checksums(self) -> AppendTimesChecksum:
        """What makes the file believable later."""
        return AppendTimesChecksum(self.size_bytes, self._crc, self.largest_ms, self.end_offset)

    def adopt(self, checksum: AppendTimesChecksum | None) -> None:
        """Take the entries that were there when the segment was closed.

        Reads nothing but the file's size: the rest is checked by `load`. Raises `OSError`.
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
        """Keep, after a stop that was not clean, the entries below `certain_offset`.

        `checksum` is of when the segment was closed, if it was and nothing was synced since: then
        the entries of that time are kept. The segment ends at `next_offset`; from the certain
        offset on, times are unknown. Raises `OSError`.
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
        """The segment ends at `next_offset`, whatever the entries say. Raises `OSError`."""
        if next_offset < self.end_offset:
            self.truncate(next_offset, next_offset)
        elif next_offset > self.end_offset:
            self.add(self.end_offset, next_offset, NO_TIMESTAMP)

    @property
    def loaded(self) -> bool:
        """Whether all entries were looked at."""
        return self.blocks.count == self._count

    def load(self) -> bool:
        """Look at the next entries that were not looked at yet; `True` when all are.

        Entries that do not fit their checksum are dropped. Raises `OSError`.
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
        """Note that the messages between the two offsets were appended, all at once.

        `append_time_ms` is -1 when it is not known. When this raises nothing is noted, and
        `take_back` has to remove what may have been written. Raises `OSError`.
        """
        self.add_sets((first_offset,), next_offset, append_time_ms)

    def add_sets(self, first_offsets: Sequence[int], next_offset: int, append_time_ms: int) -> None:
        """As `add`, for sets that were appended at the same time, one behind the other.

        Each begins at one of `first_offsets`; the last one ends in front of `next_offset`.
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
        """As `add` for each span, up to the next one's offset and the last up to `next_offset`.

        `spans`, whose offsets rise, are what another log tells of the same messages. Those that
        only go on as before get no entry of their own. From `RELATIVE_OFFSET_MAX` behind the base
        offset on no entry can tell a time, and all are unknown.
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
        """Write entries behind those that are there; until they are taken in they are surplus."""
        self._surplus = True
        try:
            file = self._seams.open_files.use(self._name)
        except FileNotFoundError:
            self._seams.files.open(self.path, create=True).close()
            file = self._file()
        file.pwrite(entries, self._count * ENTRY.size)
        self._unsynced = True

    def truncate(self, end_offset: int, next_offset: int) -> None:
        """Forget what is known of offsets from `end_offset` on, where the messages end now.

        The segment ends, and goes on, at `next_offset`. Raises `OSError`.
        """
        while not self.load():
            pass
        told_offset = self.end_offset
        self._retake(end_offset, self._count)
        self.end_offset = min(told_offset, next_offset)
        self.cut_back()

    def take_back(self) -> None:
        """Remove what an `add` that raised may have left. Raises `OSError`.

        Where there is no handle for the file, the next `add` does.
        """
        if self._surplus:
            self.blocks = Blocks()
            try:
                self.cut_back()
            except OSError as error:
                if error.errno not in NO_HANDLES:
                    raise

    def cut_back(self) -> None:
        """Take away whatever the file holds beyond the entries. Raises `OSError`."""
        if self._surplus and self._size_of_file() > self.size_bytes:
            self._file().truncate(self.size_bytes)
            self._unsynced = True
        self._surplus = False

    def sync(self) -> bool:
        """Bring to stable storage what was written before this is called.

        May be called in another thread than the one that writes. Raises `OSError`. A sync that
        failed is not tried again: from then on the answer is false.
        """
        if self._unsynced and not self.sync_failed:
            self._unsynced = False
            try:
                file = self._seams.files.open(self.path)
            except FileNotFoundError:
                return True  # the segment was dropped
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
        """The entries of a block but the first ones; none if another process cut the file."""
        first = number * BLOCK_ENTRIES
        wanted = min(self._count - first, BLOCK_ENTRIES) - skipped
        data = self._read(first + skipped, wanted)
        if len(data) < wanted * ENTRY.size:
            self._drop("shorter than it was")
            return b""
        return data

    def only_since(self, offset: int) -> int | None:
        """The time at which all messages from `offset` on were appended, if that is one and it is
        known without a look at the file."""
        run_offset = self._run_offset
        if run_offset is None or not (run_offset <= offset < self.end_offset and self.loaded):
            return None
        return self._last_ms

    def _clear(self) -> None:
        """Believe in no entry, and not that the file has none."""
        self.changes += 1
        self.end_offset = self.base_offset
        self.largest_ms = NO_TIMESTAMP
        self._count = self._crc = 0
        self._last_ms, self._run_offset = NO_TIMESTAMP, None
        self._surplus = True
        self.blocks = Blocks()

    def _drop(self, reason: str) -> None:
        """Believe in nothing that the file tells so far."""
        end_offset = self.end_offset
        self._clear()
        self.end_offset = end_offset
        self._seams.observe("append_times_dropped", path=self._name, reason=reason)

    def _retake(self, limit_offset: int, count_max: int | None = None) -> None:
        """Take the file's first entries anew, up to the first one that makes no sense or is of
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
        """The time of the last entry; -1 without one."""
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
