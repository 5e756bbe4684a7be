"""Making a segment's time map from its log, for a thread of its own."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from ...protocol.errors import CorruptMessage, HorologError
from ...protocol.records.columns import Columns, read_columns
from ...protocol.records.kernel import time_block, walk
from ...protocol.records.kernel.terms import Problem
from ..files import Files
from .time_map import BLOCK_BYTES

_READ_BYTES: Final = 1 << 20


class Unreadable(Exception):
    """There are no good entries at a position of a log."""

    def __init__(self, position: int) -> None:
        super().__init__(f"no good entry at byte {position}")
        self.position = position


class StoredTimes:
    """Reads whole entries of a log file, in pieces that are small enough to be opened at once."""

    def __init__(self, files: Files, path: Path, max_decompressed_bytes: int) -> None:
        self._files = files
        self._path = path
        self._max_decompressed_bytes = max_decompressed_bytes

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """The entries from one position to another, with the position of the first of each piece.

        Raises `OSError` and `Unreadable`.
        """
        with closing(self._files.open(self._path, read_only=True)) as file:
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
                raise Unreadable(position)

    def columns(self, data: memoryview, position: int) -> Iterator[Columns]:
        """Offsets and times of the messages of entries, which lie at `position`.

        Raises `Unreadable` for entries that are not good.
        """
        try:
            yield from read_columns(
                data, max_decompressed_bytes=self._max_decompressed_bytes, content=()
            )
        except CorruptMessage as error:
            raise Unreadable(position) from error


class TimeMapping:
    """What is missing of a time map, and making it."""

    def __init__(
        self, stored: StoredTimes, start: int, end: int, next_offset: int, *, closed: bool
    ) -> None:
        """The map ends at `start`, before `next_offset`; the log at `end`, for good if it is
        `closed`."""
        self._stored = stored
        self._end = end
        self._closed = closed
        self.start = start
        self.log_bytes = start
        self.next_offset = next_offset
        self.blocks = bytearray()
        self.unreadable_at: int | None = None
        """Where the log cannot be read on, if there is such a place."""
        self.error: Exception | None = None
        """Why the map ends before the log, if that is another reason."""

    def run(self) -> None:
        """Make the blocks. What keeps it from getting to the end is noted, not raised."""
        try:
            for position, data in self._stored.pieces(self.start, self._end):
                self._map(position, data)
        except Unreadable as error:
            self.unreadable_at = error.position
        except (OSError, HorologError, MemoryError) as error:
            self.error = error

    def _map(self, position: int, data: memoryview) -> None:
        found = walk(data, 0, len(data), check_crc=False, interval_bytes=BLOCK_BYTES)
        begins = [0, *found.marks.positions]
        ends = [*found.marks.positions, len(data)]
        for begin, end in zip(begins, ends, strict=True):
            block = data[begin:end]
            last = position + end == self._end
            if last and not self._closed and len(block) < BLOCK_BYTES:
                return
            times = b"".join(
                columns.timestamps for columns in self._stored.columns(block, position + begin)
            )
            next_offset = walk(block, 0, len(block), check_crc=False).last_offset + 1
            if next_offset <= self.next_offset:
                raise Unreadable(position + begin)
            self.blocks += time_block(
                times, log_bytes=len(block), offsets=next_offset - self.next_offset
            )
            self.log_bytes, self.next_offset = position + end, next_offset
