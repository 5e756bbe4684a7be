"""The numbers of an index file that stay where they are: read in chunks, as they are looked at."""

import bisect
from array import array
from collections.abc import Sequence
from itertools import count as counted
from struct import Struct
from typing import Final, Union, overload

from ..open_files import IndexCache, OpenFiles

CHUNK_ENTRIES: Final = 512
"""Entries that are read together: 4 or 6 KiB."""

_generations: Final = counted()
"""Whatever is read belongs to one of these: a file that changes is another one."""


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
        """The bytes of one chunk of entries. Raises `OSError`."""
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
        """The bytes of all entries from number `first` on. Raises `OSError`."""
        begin = first * self._entry_bytes
        wanted = self.count * self._entry_bytes - begin
        return self._open_files.use(self._name).pread(wanted, begin) if wanted > 0 else b""


class StoredColumn(Sequence[int]):
    """One number of each entry of a file, big-endian."""

    __slots__ = ("_at", "_entry_bytes", "_file", "_number")

    def __init__(self, file: StoredFile, entry_bytes: int, kind: str, at: int) -> None:
        """`kind` is the number's letter in the module `struct`, `at` where in an entry it is."""
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
        """Where `value` belongs among numbers that rise: in front of those that are equal, or, with
        `right`, behind them. Raises `OSError`."""
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
        """How many numbers at the start of a chunk are `limit` or less."""
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
"""Numbers of an index, wherever they are."""


def bisect_left(column: Column, value: int) -> int:
    """As the standard library's, which would look each number up by itself. Raises `OSError`."""
    if type(column) is StoredColumn:
        return column.search(value, right=False)
    return bisect.bisect_left(column, value)


def bisect_right(column: Column, value: int) -> int:
    """As the standard library's, which would look each number up by itself. Raises `OSError`."""
    if type(column) is StoredColumn:
        return column.search(value, right=True)
    return bisect.bisect_right(column, value)
