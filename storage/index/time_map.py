"""The time map of a segment (`.timemap`): which timestamps occur in which blocks of its log.

The file is a row of blocks, in the format of `protocol/records/kernel/reference/times.py`. A block
covers whole entries of the log: `BLOCK_BYTES` or a little more, or what was appended at once.
Blocks follow each other from the start of the log. Each block lists the time spans of its messages
and how many messages are in each span, so a few early or late messages do not make a block look as
if it covered days.

The map is derived data and may end before the log does; the rest of the log is read where needed.
Appends extend the map. Timestamps of one append that are close together become one span at no cost;
others are examined one by one. The map ends before data that would have to be decompressed for
that. The first search then completes it from the log in a thread (`TimeMapping`), as for logs that
were written without a map. A map is trusted if its length and CRC-32 match the segment's line in
`index-checksums`, or if this process made it.
"""

from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import count as counted
from pathlib import Path
from typing import Final
from zlib import crc32

from ...protocol.errors import CorruptMessage, HorologError
from ...protocol.records.columns import Columns, read_columns
from ...protocol.records.kernel import entry_spans, time_blocks, time_map_extent, time_spans, walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import ENTRY_OVERHEAD, NO_TIMESTAMP, SIZE_AT
from ..entries.damage import unopenable_batch
from ..files import Buffer, File, Files
from ..seams import Seams
from .index_checksums import TimeMapChecksum

_READ_BYTES: Final = 1 << 20

_PIECE_BYTES: Final = 256 << 10
"""Bytes read at once for a map, so that they are still in the processor's cache when they are
examined."""

BLOCK_BYTES: Final = 64 << 10
"""A window reads at most one unneeded block at either end. A block takes 20 to 250
bytes of a map."""

CLOSE_MS: Final = 1_000
"""Timestamps of one append within this range become one span."""

SetTimes = tuple[int, int, int]
"""The smallest and the largest timestamp of messages that all have one, or -1 twice if none has;
and their number."""

SetSpans = tuple[bytes, int, int, int]
"""Rows of messages (`time_blocks`), their first offset, the number of bytes before them in the
block in which they begin, and the bytes of the unfinished block in which they end."""

_generations: Final = counted()

_WRITTEN_BYTES: Final = 8 << 10
"""Blocks are written once they have this many bytes."""

_ROWS_NOTED: Final = 256
"""Number of rows that are turned into blocks together. A search does so earlier."""

ROW_NUMBERS: Final = 6
"""Numbers in one row of `time_blocks`."""


class UnreadableTimes(Exception):
    """There are no valid entries at a position of a log."""

    def __init__(self, position: int) -> None:
        super().__init__(f"no good entry at byte {position}")
        self.position = position


class StoredTimes:
    """Reads whole entries of a log file, in pieces small enough to be decompressed at once."""

    def __init__(self, files: Files, path: Path, max_decompressed_bytes: int) -> None:
        self._files = files
        self._path = path
        self._max_decompressed_bytes = max_decompressed_bytes

    def open(self) -> File:
        """Open the log file. Raises `OSError`."""
        return self._files.open(self._path, read_only=True)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """Yield the entries between two positions in pieces, each with the position of its first
        entry.

        Raises `OSError` and `UnreadableTimes`.
        """
        with closing(self.open()) as file:
            position, wanted = start, _READ_BYTES
            while position < end:
                data = file.pread(min(wanted, end - position), position)
                found = walk(data, 0, len(data), check_crc=False)
                if found.end:
                    yield position, memoryview(data)[: found.end]
                    position, wanted = position + found.end, _READ_BYTES
                    if found.problem in (Problem.NONE, Problem.PARTIAL):
                        continue
                elif found.problem is Problem.PARTIAL and len(data) == wanted < end - position:
                    wanted *= 2
                    continue
                raise UnreadableTimes(position)

    def columns(self, data: memoryview, position: int) -> Iterator[Columns]:
        """Yield offsets and timestamps of the messages in the entries at `position`.

        Raises `UnreadableTimes` for invalid entries, and `CorruptMessage` for batches that were
        written in a way that they cannot be opened.
        """
        try:
            yield from read_columns(
                data, max_decompressed_bytes=self._max_decompressed_bytes, content=()
            )
        except CorruptMessage as error:
            written = unopenable_batch(self._path, position, data, error)
            raise written or UnreadableTimes(position) from error

    def rows(self, entry: memoryview, position: int, offsets: int) -> bytes:
        """Return rows (`time_spans`) of the messages in the entry at `position`, which takes up
        `offsets` offsets. Raises as `columns`."""
        times = b"".join(columns.timestamps for columns in self.columns(entry, position))
        try:
            return time_spans(times, log_bytes=len(entry), offsets=offsets)
        except ValueError as error:
            lie = CorruptMessage("it holds more messages than it has offsets")
            written = None if offsets <= 0 else unopenable_batch(self._path, position, entry, lie)
            raise written or UnreadableTimes(position) from error


class TimeMapping:
    """The work that completes a time map."""

    def __init__(
        self, stored: StoredTimes, start: int, end: int, next_offset: int, *, closed: bool
    ) -> None:
        """The map ends at `start`, before `next_offset`. The log ends at `end`; with `closed`, it
        will not grow."""
        self._stored = stored
        self._end = end
        self._closed = closed
        self._rows = array("q")
        """Rows that fill no block yet, as `time_blocks` takes them."""
        self._read_bytes, self._read_offset = start, next_offset
        self._since_bytes = 0
        self.start = start
        self.log_bytes = start
        self.next_offset = next_offset
        self.blocks = bytearray()
        self.unreadable_at: int | None = None
        """Position from which the log cannot be read, if there is one."""
        self.error: Exception | None = None
        """Another reason why the map ends before the log, if there is one."""

    def run(self) -> None:
        """Make the blocks. An error that stops the work is recorded, not raised."""
        try:
            with closing(self._stored.open()) as file:
                self._map(file)
        except UnreadableTimes as error:
            self.unreadable_at = error.position
        except (OSError, HorologError, MemoryError) as error:
            self.error = error
        # Entries before the error are in the map, as far as they fill blocks.
        self._end_blocks(whole=self._closed and self._read_bytes == self._end)

    def _map(self, file: File) -> None:
        wanted = _PIECE_BYTES
        while self._read_bytes < self._end:
            position = self._read_bytes
            data = file.pread(min(wanted, self._end - position), position)
            self._take(data, position)
            self._end_blocks()
            if self._read_bytes > position:
                wanted = _PIECE_BYTES
            elif len(data) == wanted < self._end - position:
                wanted *= 2
            else:
                raise UnreadableTimes(position)

    def _take(self, data: bytes, position: int) -> None:
        """Record the times of the whole entries in `data`, read from `position` of the log."""
        taken = 0
        while taken < len(data):
            rows, taken, self._read_offset, self._since_bytes = entry_spans(
                data,
                taken,
                block_bytes=BLOCK_BYTES,
                since_bytes=self._since_bytes,
                next_offset=self._read_offset,
                check_crc=True,
            )
            self._rows.frombytes(rows)
            self._read_bytes = position + taken
            stop = _entry_end(data, taken)
            if stop > len(data):
                return
            self._take_entry(memoryview(data)[taken:stop])
            taken = stop

    def _take_entry(self, entry: memoryview) -> None:
        """Record the times of an entry that has to be decompressed, or is invalid."""
        position = self._read_bytes
        next_offset = walk(entry, 0, len(entry), check_crc=False).last_offset + 1
        rows = self._stored.rows(entry, position, next_offset - self._read_offset)
        self._rows.frombytes(rows)
        self._read_bytes, self._read_offset = position + len(entry), next_offset
        self._since_bytes += len(entry)
        if self._since_bytes >= BLOCK_BYTES:
            self._since_bytes = 0

    def _end_blocks(self, *, whole: bool = False) -> None:
        blocks, ended, _ = time_blocks(self._rows, block_bytes=BLOCK_BYTES, whole=whole)
        self.blocks += blocks
        del self._rows[: ended * ROW_NUMBERS]
        self.log_bytes = self._read_bytes - sum(self._rows[0::ROW_NUMBERS])
        self.next_offset = self._read_offset - sum(self._rows[1::ROW_NUMBERS])


def _entry_end(data: bytes, position: int) -> int:
    """Return the end of the entry at a position, according to its header; behind `data` if the
    header is incomplete."""
    if len(data) - position < ENTRY_OVERHEAD:
        return len(data) + 1
    return (
        position
        + ENTRY_OVERHEAD
        + max(
            int.from_bytes(
                data[position + SIZE_AT : position + ENTRY_OVERHEAD], "big", signed=True
            ),
            0,
        )
    )


class TimeMap:
    """The map of one segment's log, up to, but not including, byte `log_bytes` and
    `next_offset`."""

    __slots__ = (
        "_checked",
        "_crc",
        "_generation",
        "_in_memory",
        "_name",
        "_noted",
        "_noted_bytes",
        "_noted_offset",
        "_seams",
        "_size_bytes",
        "_surplus",
        "_unended",
        "_unwritten",
        "base_offset",
        "first_ms",
        "last_ms",
        "log_bytes",
        "makes",
        "next_offset",
        "since_bytes",
        "summary_bytes",
        "untimed",
    )

    def __init__(self, path: Path, base_offset: int, seams: Seams) -> None:
        self._name = str(path)
        self.base_offset = base_offset
        self._seams = seams
        self.makes = False
        """Whether appends extend the map."""
        self._in_memory = False
        """Whether the file cannot be read: otherwise it would be made again and again without being
        used."""
        self.forget()

    @property
    def path(self) -> Path:
        """Created on request: a path takes more memory than its name."""
        return Path(self._name)

    def forget(self) -> None:
        """Drop everything known, and trust nothing in the file."""
        self.makes = False
        self.log_bytes = 0
        self.summary_bytes = 0
        """Number of bytes of the log that `first_ms`, `last_ms` and `untimed` cover."""
        self.next_offset = self.base_offset
        self.first_ms = self.last_ms = NO_TIMESTAMP
        self.untimed = 0
        self._size_bytes = self._crc = 0
        self._generation = next(_generations)
        self._unwritten = bytearray()
        self._checked = True
        self._surplus = True
        self._begin_noting()

    def discard(self) -> None:
        """`forget`, and remove the file, which would describe another log. Removal may fail: the
        file is not trusted."""
        self.forget()
        self._seams.open_files.forget(self._name)
        with suppress(OSError):
            if self._seams.files.exists(self.path):
                self._seams.files.unlink(self.path)

    def _begin_noting(self) -> None:
        self._noted = array("q")
        """Rows of appends behind the blocks, as `time_blocks` takes them."""
        self.since_bytes = 0
        """Bytes of these rows behind the last whole block."""
        self._unended = 0
        """How many of these numbers are known to fill no block."""
        self._noted_bytes, self._noted_offset = self.log_bytes, self.next_offset
        """End of the last of these rows."""

    def begin(self) -> None:
        """Begin to extend the map with appends, from the start of an empty log."""
        self.discard()
        self.makes = True

    @property
    def size_bytes(self) -> int:
        """Length of the map in bytes."""
        self._end_blocks()
        return self._size_bytes + len(self._unwritten)

    @property
    def version(self) -> tuple[int, int]:
        """Identifies the content: no other map, and no other state of this map, has
        the same value."""
        return self._generation, self.size_bytes

    def add(
        self,
        position: int,
        data: Buffer,
        next_offset: int,
        times: SetTimes | SetSpans | bytes | None,
    ) -> None:
        """Extend the map by `data`, which was appended at `position`. The times may be known, or be
        rows already (those of `time_spans` alone, or `SetSpans`). The map ends before data that
        would have to be decompressed to get its times."""
        size_bytes = len(data)
        if position != self._noted_bytes:
            self._end_early()
            return
        if (
            isinstance(times, tuple)
            and len(times) == 4
            and times[1] == self._noted_offset
            and times[2] == self.since_bytes
        ):
            self._noted.frombytes(times[0])
            self.since_bytes = times[3]
        elif isinstance(times, tuple) and len(times) == 3 and times[1] - times[0] <= CLOSE_MS:
            self._record_row(size_bytes, next_offset, times)
        elif isinstance(times, bytes):
            self._record_rows(times, next_offset)
        elif not self._record_entries(data):
            self._end_early()
            return
        self._noted_bytes, self._noted_offset = position + size_bytes, next_offset
        # To find that no block is full, each row has to be examined. For small appends that would
        # cost more than the append itself.
        if (
            len(self._noted) >= _ROWS_NOTED * ROW_NUMBERS
            and self._noted_bytes - self.log_bytes > self.since_bytes
        ):
            self._end_blocks()

    def _record_row(self, size_bytes: int, next_offset: int, times: SetTimes) -> None:
        self._noted.extend((size_bytes, next_offset - self._noted_offset, *times, 1))
        self._pass((size_bytes,))

    def _record_entries(self, data: Buffer) -> bool:
        """Add the times of the messages in `data`. Return whether all were available without
        decompression."""
        rows, end, _, self.since_bytes = entry_spans(
            data,
            0,
            block_bytes=BLOCK_BYTES,
            since_bytes=self.since_bytes,
            next_offset=self._noted_offset,
            check_crc=False,
        )
        if end < len(data):
            return False
        self._noted.frombytes(rows)
        return True

    def _record_rows(self, data: bytes, next_offset: int) -> None:
        rows = array("q", data)
        # Offsets that are missing before an append belong to its first piece.
        first = next(at for at in range(1, len(rows), ROW_NUMBERS) if rows[at])
        rows[first] += next_offset - self._noted_offset - sum(rows[1::ROW_NUMBERS])
        self._noted += rows
        self._pass(rows[0::ROW_NUMBERS])

    def _pass(self, sizes: Iterable[int]) -> None:
        """Advance over pieces of these sizes, each of which may end a block."""
        for size_bytes in sizes:
            self.since_bytes += size_bytes
            if self.since_bytes >= BLOCK_BYTES:
                self.since_bytes = 0

    def _end_early(self) -> None:
        self._end_blocks()
        self.makes = False

    def take_back(self, log_bytes: int) -> None:
        """Undo appends: the log was truncated to `log_bytes`, the start of an append that may be
        recorded in part."""
        noted = self._noted
        self._unended = 0
        while noted and (self._noted_bytes > log_bytes or not noted[-ROW_NUMBERS]):
            self._noted_bytes -= noted[-ROW_NUMBERS]
            self._noted_offset -= noted[1 - ROW_NUMBERS]
            del noted[-ROW_NUMBERS:]
        self.since_bytes = 0
        self._pass(noted[0::ROW_NUMBERS])
        if self._noted_bytes > log_bytes:
            self.discard()

    def _end_blocks(self, *, whole: bool = False) -> None:
        """Turn the recorded appends into blocks, as far as they fill any. `whole` includes the
        last, unfinished block."""
        if not (self._noted and self.makes) or (len(self._noted) == self._unended and not whole):
            return
        blocks, ended, extent = time_blocks(self._noted, block_bytes=BLOCK_BYTES, whole=whole)
        self._unended = len(self._noted)
        if not ended:
            return
        _, log_bytes, offsets, *times = extent
        self._take(blocks, self.log_bytes + log_bytes, self.next_offset + offsets, *times)
        del self._noted[: ended * ROW_NUMBERS]
        self._unended = len(self._noted)
        if len(self._unwritten) >= _WRITTEN_BYTES:
            self._write()

    def _take(
        self,
        blocks: bytes,
        log_bytes: int,
        next_offset: int,
        untimed: int,
        first_ms: int,
        last_ms: int,
    ) -> None:
        self._unwritten += blocks
        self.log_bytes, self.next_offset = log_bytes, next_offset
        self.summary_bytes = log_bytes
        self.untimed += untimed
        if last_ms >= 0:
            if first_ms < self.first_ms or self.last_ms < 0:
                self.first_ms = first_ms
            if last_ms > self.last_ms:
                self.last_ms = last_ms

    def _write(self) -> None:
        """Write the blocks that are not in the file. On failure they stay in memory."""
        if self._in_memory:
            return
        open_files = self._seams.open_files
        try:
            try:
                file = open_files.use(self._name)
            except FileNotFoundError:
                self._seams.files.open(self.path, create=True).close()
                file = open_files.use(self._name)
            if self._surplus:
                file.truncate(self._size_bytes)
                self._surplus = False
            self._surplus = True
            file.pwrite(self._unwritten, self._size_bytes)
            self._surplus = False
        except OSError:
            return
        self._size_bytes += len(self._unwritten)
        self._crc = crc32(self._unwritten, self._crc)
        self._unwritten.clear()

    def end(self, log_bytes: int) -> None:
        """Finish the map at the end of the log: add the last block and write what is not written.

        A log shorter than a block has no file.
        """
        if self._noted_bytes == log_bytes:
            self._end_blocks(whole=True)
        self.makes = False
        if self._unwritten and self.log_bytes >= BLOCK_BYTES:
            self._write()

    def checksum(self, log_bytes: int) -> TimeMapChecksum | None:
        """Return the checksum with which the map can be trusted later, if it covers
        the whole log."""
        if self.summary_bytes != log_bytes:
            return None
        size_bytes, crc = self._size_bytes, self._crc
        if self._unwritten or self.log_bytes != log_bytes:
            if log_bytes >= BLOCK_BYTES:
                return None
            size_bytes = crc = 0
        return TimeMapChecksum(size_bytes, crc, self.first_ms, self.last_ms, self.untimed)

    def adopt(self, checksum: TimeMapChecksum | None, log_bytes: int) -> None:
        """Use the map that a line in `index-checksums` describes. The file is read, and
        `next_offset` known, on first use."""
        self.forget()
        if checksum is None:
            return
        self.first_ms, self.last_ms = checksum.first_ms, checksum.last_ms
        self.untimed, self.summary_bytes = checksum.untimed, log_bytes
        if checksum.size_bytes:
            self.log_bytes = log_bytes
            self._size_bytes, self._crc = checksum.size_bytes, checksum.crc
            self._checked = False

    def data(self) -> bytes:
        """Return the whole map. If the file does not match, the map is forgotten, and empty."""
        self._end_blocks()
        if not self._size_bytes:
            return bytes(self._unwritten)
        cache, key = self._seams.index_cache, ("map", self._generation, self._size_bytes)
        written = cache.get(key)
        if written is None:
            written = self._read()
            if written is None:
                self.forget()
                return b""
            cache.put(key, written)
        return written + self._unwritten if self._unwritten else written

    def _read(self) -> bytes | None:
        try:
            data = self._seams.open_files.use(self._name).pread(self._size_bytes, 0)
            self._check(data)
        except (OSError, ValueError) as error:
            self._in_memory = not isinstance(error, ValueError | FileNotFoundError)
            self._seams.observe("time_map_dropped", path=self._name, reason=str(error))
            return None
        return data

    def _check(self, data: bytes) -> None:
        """Raise `ValueError` unless `data` is the map. The content is checked once."""
        if len(data) != self._size_bytes:
            raise ValueError("shorter than it was")
        if self._checked:
            return
        if crc32(data) != self._crc:
            raise ValueError("checksum does not fit")
        log_bytes, offsets = time_map_extent(data)[1:3]
        if log_bytes != self.log_bytes:
            raise ValueError("it is of another log")
        # Offsets without a message may follow, up to the next segment.
        self.next_offset = self.base_offset + offsets
        self._begin_noting()
        self._checked = True

    def take(self, from_bytes: int, blocks: bytes, log_bytes: int, next_offset: int) -> None:
        """Add blocks that were made from the log, for the part behind `from_bytes`."""
        if from_bytes != self.log_bytes or log_bytes <= from_bytes or self.makes:
            return
        _, _, _, untimed, first_ms, last_ms = time_map_extent(blocks)
        if not from_bytes:
            # The summary of the whole log, known from a line without a map, is computed again.
            self.forget()
        self._take(blocks, log_bytes, next_offset, untimed, first_ms, last_ms)
        self._begin_noting()
        if self.log_bytes >= BLOCK_BYTES:
            self._write()
