"""The time map of a segment (`.timemap`): which timestamps occur in which blocks of its log.

The file is a row of blocks, in the format of `protocol/records/kernel/reference/times.py`. A block
covers whole entries of the log: `BLOCK_BYTES` or a little more, or what was appended at once.
Blocks follow each other from the start of the log. Each block lists the time spans of its messages
and how many messages are in each span, so a few early or late messages do not make a block look as
if it covered days.

The map is derived data and may end before the log does; the rest of the log is read where needed.
Appends extend the map. Timestamps of one append that are close together become one span at no cost;
others are examined one by one. The map ends before data that would have to be decompressed for
that. The first search then completes it from the log (`time_mapping`), as for logs that were
written without a map. A map is trusted if its length and CRC-32 match the segment's line in
`index-checksums`, or if this process made it.
"""

from array import array
from collections.abc import Iterable
from contextlib import suppress
from itertools import count as counted
from pathlib import Path
from typing import Final
from zlib import crc32

from ...protocol.records.kernel import entry_spans, time_blocks, time_map_extent
from ...protocol.records.layout import NO_TIMESTAMP
from ..files import Buffer
from ..seams import Seams
from .index_checksums import TimeMapChecksum

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
