"""What the offset index and the time index share: fixed-size entries appended to a file.

Neither has a header or a checksum; entries follow each other from byte 0, integers are
big-endian. The entries are mirrored in memory as arrays of numbers, so that a lookup is a
bisection that reads nothing; those of a closed segment, unless they are few, are read where they
lie. The file only grows by whole entries (it is never preallocated),
so a length that is not a multiple of the entry size means a torn write.
"""

import sys
from abc import ABC, abstractmethod
from array import array
from contextlib import closing
from pathlib import Path
from typing import ClassVar, Final
from zlib import crc32

from ..files import NO_HANDLES, Files
from ..open_files import IndexCache, OpenFiles
from .stored_column import StoredFile

_KEPT_BYTES: Final = 512
"""So many bytes of an index stay in memory: small segments are many."""


def numbers_of(data: bytes) -> "array[int]":
    """The int32s that `data` is, big-endian as in the files."""
    numbers = array("i", data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def bytes_of(numbers: "array[int]") -> bytes:
    """The opposite of `numbers_of`; `numbers` are of no use after that."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


class IndexFile(ABC):
    """The entries of one index file and their mirror in memory."""

    __slots__ = (
        "_cache",
        "_failed_from",
        "_name",
        "_open_files",
        "_stored",
        "_surplus",
        "base_offset",
        "count",
        "max_entries",
        "path",
        "room",
    )

    ENTRY_BYTES: ClassVar[int]
    KEPT_ENTRIES: ClassVar[int] = 0
    """How many entries a place is kept for."""

    def __init__(
        self,
        path: Path,
        base_offset: int,
        max_bytes: int,
        open_files: OpenFiles,
        cache: IndexCache | None = None,
    ) -> None:
        self.path = path
        self._name = str(path)
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY_BYTES
        self.count = 0
        """Number of entries."""
        self.room = self.max_entries - self.KEPT_ENTRIES
        """How many entries more there may be."""
        self._open_files = open_files
        self._failed_from: int | None = None
        """First entry that a write that failed may have left wrong in the file."""
        self._surplus = False
        """Whether the file may hold more than the entries."""
        self._cache = cache
        self._stored: StoredFile | None = None
        """Where the entries are that are not in memory."""

    def __len__(self) -> int:
        return self.count

    def _set_count(self, count: int) -> None:
        """There are so many entries now."""
        self.count = count
        self.room = self.max_entries - self.KEPT_ENTRIES - count

    @abstractmethod
    def encoded(self, first: int = 0) -> bytes:
        """The bytes of the entries from number `first` on."""

    @abstractmethod
    def load(self, data: bytes) -> None:
        """Take the entries of `data`, whole ones only."""

    @abstractmethod
    def _shorten(self, count: int) -> None:
        """Keep the first `count` entries of the mirror."""

    @abstractmethod
    def _read_from(self, stored: StoredFile) -> None:
        """Give up the mirror for columns of a file."""

    def release(self) -> None:
        """Keep the entries of a closed segment out of memory from now on, if they are many.

        Whatever changes them takes them back. Those that the file lacks stay.
        """
        complete = self._failed_from is None and not self._surplus and self._stored is None
        if complete and self._cache is not None and self.size_bytes > _KEPT_BYTES:
            stored = StoredFile(
                self._open_files, self._cache, self._name, self.ENTRY_BYTES, self.count
            )
            self._read_from(stored)
            self._stored = stored

    def _take_back(self) -> None:
        """Have the entries in memory, to change them. Raises `OSError`."""
        if self._stored is not None:
            data = self._stored.read(0)
            self._stored = None
            self.load(data)

    @property
    def size_bytes(self) -> int:
        return self.count * self.ENTRY_BYTES

    def checksum(self) -> tuple[int, int]:
        """Length in bytes and CRC-32 of the entries."""
        data = self.encoded()
        return len(data), crc32(data)

    def write_from(self, first: int) -> bool:
        """Write the entries from number `first` on to their places in the file, if there are any.

        What an earlier write did not bring there is written again. Returns whether the file was
        changed.
        """
        if self._failed_from is not None:
            first = min(first, self._failed_from)
        cut = self._surplus
        if cut:
            self._open_files.use(self._name).truncate(min(first, self.count) * self.ENTRY_BYTES)
            self._surplus = False
        if first >= self.count:
            return cut
        self._failed_from = first
        self._open_files.use(self._name).pwrite(self.encoded(first), first * self.ENTRY_BYTES)
        self._failed_from = None
        return True

    def keep(self, count: int) -> None:
        """Drop all entries but the first `count`, in memory and in the file.

        Where there is no handle for the file, the next write takes them away.
        """
        self._take_back()
        self._shorten(count)
        try:
            self._open_files.use(self._name).truncate(count * self.ENTRY_BYTES)
        except OSError as error:
            if error.errno not in NO_HANDLES:
                raise
            self._surplus = True

    def replace(self, files: Files) -> None:
        """Make the file hold exactly the entries in memory; it is not written when it does.

        Uses no handle that others use, so it may run in any thread. Raises `OSError`.
        """
        data = self.encoded()
        self._failed_from = None
        self._surplus = False
        self._open_files.forget(self._name)
        there = files.exists(self.path) and files.size(self.path) == len(data)
        if there and files.read_bytes(self.path) == data:
            return
        with closing(files.open(self.path, create=True)) as file:
            file.truncate(0)
            file.pwrite(data, 0)
