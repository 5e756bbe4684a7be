"""What the offset index and the time index share: fixed-size entries appended to a file.

Neither has a header or a checksum; entries follow each other from byte 0, integers are big-endian.
The entries are mirrored in memory as arrays of numbers, so that a lookup is a bisection that reads
nothing; those of a closed segment, unless they are few, are read where they lie, in chunks, as they
are looked at. The file only grows by whole entries (it is never preallocated), so a length that is
not a multiple of the entry size means a torn write. A reader without a broker takes entry by entry
and believes nothing.
"""

import bisect
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count as counted
from pathlib import Path
from struct import Struct
from typing import ClassVar, Final, Union, overload
from zlib import crc32

from ..entries.log_reader import CHUNK_BYTES
from ..files import NO_HANDLES, File, Files
from ..open_files import IndexCache, OpenFiles

CHUNK_ENTRIES: Final = 512
"""Number of entries read together: 4 or 6 KiB."""

_generations: Final = counted()
"""Numbers the states of index files: a changed file gets a new number, so cached chunks of it are
not used."""

OFFSET_ENTRY: Final = Struct(">ii")
"""Relative offset, position in the log."""

TIME_ENTRY: Final = Struct(">qi")
"""Timestamp in ms, relative offset."""

_KEPT_BYTES: Final = 512
"""Indexes up to this size stay in memory: there are many small segments."""


class StoredFile:
    """An index file with a number of entries of one size."""

    __slots__ = ("_cache", "_entry_bytes", "_generation", "_name", "_open_files", "count")

    def __init__(
        self, open_files: OpenFiles, cache: IndexCache, name: str, entry_bytes: int, count: int
    ) -> None:
        self._open_files = open_files
        self._cache = cache
        self._name = name
        self._entry_bytes = entry_bytes
        self._generation = next(_generations)
        self.count = count

    def chunk(self, number: int) -> bytes:
        """Return the bytes of one chunk of entries. Raises `OSError`."""
        key = "column", self._generation, number
        data = self._cache.get(key)
        if data is None:
            first = number * CHUNK_ENTRIES
            wanted = min(CHUNK_ENTRIES, self.count - first) * self._entry_bytes
            file = self._open_files.use(self._name)
            data = file.pread(wanted, first * self._entry_bytes)
            if len(data) < wanted:
                raise OSError(f"{self._name} is shorter than it was when it was looked at first")
            self._cache.put(key, data)
        return data

    def read(self, first: int) -> bytes:
        """Return the bytes of all entries from number `first` on. Raises `OSError`."""
        begin = first * self._entry_bytes
        wanted = self.count * self._entry_bytes - begin
        return self._open_files.use(self._name).pread(wanted, begin) if wanted > 0 else b""


class StoredColumn(Sequence[int]):
    """One number of each entry of a file, big-endian."""

    __slots__ = ("_at", "_entry_bytes", "_file", "_number")

    def __init__(self, file: StoredFile, entry_bytes: int, kind: str, at: int) -> None:
        """`kind` is the number's format character of the module `struct`, `at` its position in an
        entry."""
        self._file = file
        self._entry_bytes = entry_bytes
        self._number = Struct(">" + kind)
        self._at = at

    def __len__(self) -> int:
        return self._file.count

    @overload
    def __getitem__(self, number: int) -> int: ...

    @overload
    def __getitem__(self, number: slice) -> list[int]: ...

    def __getitem__(self, number: int | slice) -> int | list[int]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if number < 0:
            number += self._file.count
        if not 0 <= number < self._file.count:
            raise IndexError(number)
        chunk, entry = divmod(number, CHUNK_ENTRIES)
        data = self._file.chunk(chunk)
        found: int = self._number.unpack_from(data, entry * self._entry_bytes + self._at)[0]
        return found

    def search(self, value: int, *, right: bool) -> int:
        """Return where `value` belongs among rising numbers: before equal ones, or behind them with
        `right`. Raises `OSError`."""
        limit = value if right else value - 1
        at, number_at, chunk_of = self._at, self._number.unpack_from, self._file.chunk
        low, high = 0, -(-self._file.count // CHUNK_ENTRIES)
        while low < high:
            middle = (low + high) // 2
            if number_at(chunk_of(middle), at)[0] <= limit:
                low = middle + 1
            else:
                high = middle
        return (low - 1) * CHUNK_ENTRIES + self._search_chunk(low - 1, limit) if low else 0

    def _search_chunk(self, chunk: int, limit: int) -> int:
        """Return how many numbers at the start of a chunk are `limit` or less."""
        data, size, at = self._file.chunk(chunk), self._entry_bytes, self._at
        number_at = self._number.unpack_from
        low, high = 0, len(data) // size
        while low < high:
            middle = (low + high) // 2
            if number_at(data, middle * size + at)[0] <= limit:
                low = middle + 1
            else:
                high = middle
        return low


Column = Union[StoredColumn, "array[int]"]
"""Numbers of an index, in memory or in a file."""


def bisect_left(column: Column, value: int) -> int:
    """Like the standard library's function, which would read each number separately. Raises
    `OSError`."""
    if type(column) is StoredColumn:
        return column.search(value, right=False)
    return bisect.bisect_left(column, value)


def bisect_right(column: Column, value: int) -> int:
    """Like the standard library's function, which would read each number separately. Raises
    `OSError`."""
    if type(column) is StoredColumn:
        return column.search(value, right=True)
    return bisect.bisect_right(column, value)


def numbers_of(data: bytes) -> "array[int]":
    """Decode big-endian int32s, as in the files."""
    numbers = array("i", data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def bytes_of(numbers: "array[int]") -> bytes:
    """The inverse of `numbers_of`. `numbers` must not be used afterwards."""
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
    """Number of entries for which room is reserved."""

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
        """How many more entries fit."""
        self._open_files = open_files
        self._failed_from: int | None = None
        """First entry that a failed write may have left wrong in the file."""
        self._surplus = False
        """Whether the file may hold more than the entries."""
        self._cache = cache
        self._stored: StoredFile | None = None
        """The file with the entries, if they are not in memory."""

    def __len__(self) -> int:
        return self.count

    def _set_count(self, count: int) -> None:
        """Set the number of entries."""
        self.count = count
        self.room = self.max_entries - self.KEPT_ENTRIES - count

    @abstractmethod
    def encoded(self, first: int = 0) -> bytes:
        """Return the bytes of the entries from number `first` on."""

    @abstractmethod
    def load(self, data: bytes) -> None:
        """Load the complete entries in `data`."""

    @abstractmethod
    def _shorten(self, count: int) -> None:
        """Keep the first `count` entries of the mirror."""

    @abstractmethod
    def _read_from(self, stored: StoredFile) -> None:
        """Replace the mirror by columns read from a file."""

    def release(self) -> None:
        """Keep the entries of a closed segment out of memory from now on, if there are many.

        A change loads them again. Entries that the file lacks stay in memory.
        """
        complete = self._failed_from is None and not self._surplus and self._stored is None
        if complete and self._cache is not None and self.size_bytes > _KEPT_BYTES:
            stored = StoredFile(
                self._open_files, self._cache, self._name, self.ENTRY_BYTES, self.count
            )
            self._read_from(stored)
            self._stored = stored

    def _take_back(self) -> None:
        """Load the entries into memory, to change them. Raises `OSError`."""
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
        """Write the entries from number `first` on to the file, if there are any.

        Entries that an earlier write failed to write are written again. Returns whether the file
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

        If no handle is free for the file, the next write truncates it.
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
        """Make the file hold exactly the entries in memory. Writes nothing if it already does.

        Opens its own handle, so it may run in any thread. Raises `OSError`.
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


def entries_end(file: File, entry: Struct, size_bytes: int) -> int:
    """Return where the entries of an index end: before a torn entry, and before zeros up to the
    end.

    Kafka creates an index file at its full size. Slots that are still zero are not entries.
    """
    end = size_bytes - size_bytes % entry.size
    step = CHUNK_BYTES - CHUNK_BYTES % entry.size
    while end:
        start = max(0, end - step)
        data = file.pread(end - start, start).rstrip(b"\0")
        if data:
            return start + -(-len(data) // entry.size) * entry.size
        end = start
    return 0


def index_entries(file: File, entry: Struct, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield `(byte position, first number, second number)` of the entries before `end`."""
    step = CHUNK_BYTES - CHUNK_BYTES % entry.size
    for start in range(0, end, step):
        data = file.pread(min(step, end - start), start)
        data = data[: len(data) - len(data) % entry.size]
        for number, (first, second) in enumerate(entry.iter_unpack(data)):
            yield start + number * entry.size, first, second
