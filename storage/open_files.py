"""What a broker keeps of files between uses, by last use: a number of open handles, and a number of
bytes that were read of index files."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from .files import NO_HANDLES, File, Files

T = TypeVar("T")

INDEX_CACHE_BYTES: Final = 32 << 20


class OpenFiles:
    """Keeps files open between uses and closes the least recently used beyond `limit`.

    For one thread, because any call may close what an earlier one gave: another thread would read
    and write the file that got the number of the closed one. Only `forget` is for all.

    A file that holds bytes which are not synced yet does not belong here: closing it could
    lose the error of a later write-back.

    Where the process has no handle left, those that are kept here are its reserve.
    """

    def __init__(self, files: Files, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._open: OrderedDict[str, File] = OrderedDict()
        self._lent = 0

    def use(self, name: str, path: Path | None = None, *, read_only: bool = False) -> File:
        """The open file of that name, valid until the next call. `path` is the same as a path:
        to make one takes nearly as long as to open the file. A file that is opened `read_only` is
        opened like that in every call.

        Raises `OSError`.
        """
        file = self._open.get(name)
        if file is not None:
            self._open.move_to_end(name)
            return file
        opened = partial(self._files.open, path or Path(name), read_only=read_only)
        file = self.making_room(opened)
        self._open[name] = file
        self._close_surplus()
        return file

    def keep(self, name: str, file: File) -> None:
        """Have a file that was opened elsewhere, and is to be read only from now on, ready for the
        next `use`; it is as good as closed for who gives it."""
        if name in self._open:
            file.close()
            return
        self._open[name] = file
        self._close_surplus()

    def making_room(self, take: Callable[[], T], kept: int = 0) -> T:
        """What `take` gives, which needs a handle; files are closed for it while there is none.

        The `kept` used last stay open. Raises `OSError`.
        """
        while True:
            try:
                return take()
            except OSError as error:
                if error.errno not in NO_HANDLES or len(self._open) <= kept:
                    raise
            self._close_oldest()

    def _close_surplus(self) -> None:
        while len(self._open) > max(self._limit - self._lent, 1):
            self._close_oldest()

    def _close_oldest(self) -> None:
        _, oldest = self._open.popitem(last=False)
        oldest.close()

    def lend(self, file: File) -> File | None:
        """A second handle on `file` to be kept for longer, until `take_back`; one of the limit.

        `None` when a quarter of all handles is lent already. Raises `OSError`.
        """
        if self._lent >= self._limit // 4:
            return None
        lent = self.making_room(file.duplicate, kept=1)
        self._lent += 1
        return lent

    def take_back(self, lent: File) -> None:
        """Close a handle that was lent."""
        lent.close()
        self._lent -= 1

    def forget(self, name: str) -> None:
        """Close the file if it is open: it is about to be renamed or removed."""
        file = self._open.pop(name, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()


class IndexCache:
    """Bytes of index files that are not kept in memory, by keys that name their content; the bytes
    used last stay."""

    def __init__(self, limit_bytes: int = INDEX_CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[Hashable, bytes] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: Hashable) -> bytes | None:
        data = self._held.get(key)
        if data is not None:
            self._held.move_to_end(key)
        return data

    def put(self, key: Hashable, data: bytes) -> None:
        """Keep `data`, unless it is more than a quarter of all that is kept."""
        self.drop(key)
        if len(data) > self._limit_bytes // 4:
            return
        self._held[key] = data
        self.size_bytes += len(data)
        while self.size_bytes > self._limit_bytes:
            _, dropped = self._held.popitem(last=False)
            self.size_bytes -= len(dropped)

    def drop(self, key: Hashable) -> None:
        data = self._held.pop(key, None)
        if data is not None:
            self.size_bytes -= len(data)
