"""Making a segment's time map from its log, in a separate thread."""

from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from ...protocol.errors import CorruptMessage, HorologError
from ...protocol.records.columns import Columns, read_columns
from ...protocol.records.kernel import entry_spans, time_blocks, time_spans, walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import ENTRY_OVERHEAD, SIZE_AT
from ..entries.damage import unopenable_batch
from ..files import File, Files
from .time_map import BLOCK_BYTES, ROW_NUMBERS

_READ_BYTES: Final = 1 << 20

_PIECE_BYTES: Final = 256 << 10
"""Bytes read at once for a map, so that they are still in the processor's cache when they are
examined."""


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
