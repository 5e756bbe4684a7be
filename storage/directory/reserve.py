"""Room on the disk that is kept for the way out of a full one.

The file `disk-reserve` in the data directory holds blocks that mean nothing. Where an operation
that makes room finds none itself, or a stop what it has to write, some of it is given up and the
operation tried again. What is left of that is taken back afterwards, and the rest when there is
room.
"""

import errno
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from ...protocol.errors import StorageError
from ..events import Observer
from ..files import Files
from ..seams import DiskRoom

RESERVE_FILE: Final = "disk-reserve"

PIECES: Final = 8
"""It is given up in so many pieces: a write that has begun already, or a position, may take one."""

_BLOCK_BYTES: Final = 128 << 10
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

T = TypeVar("T")


class Reserve:
    """The reserve of one data directory. May be used from several threads."""

    def __init__(
        self, files: Files, directory: Path, size_bytes: int, room: DiskRoom, observe: Observer
    ) -> None:
        """`size_bytes` is how large it shall be; nothing is written before `fill`.

        What is given up of it `room` keeps from appends until the operation has ended.
        """
        self._files = files
        self._room = room
        self._directory = directory
        self._path = directory / RESERVE_FILE
        self._wanted_bytes = size_bytes
        self._observe = observe
        self._lock = threading.Lock()
        self._size: int
        self._told = False
        """Whether it was reported that some of it is missing."""
        self._look()

    def retrying(self, work: Callable[[], T]) -> T:
        """Do `work`; where it finds no room do it again with some of the reserve given up.

        `work` leaves things such that it can be done again. Raises what it raises at last.
        """
        try:
            return work()
        except (OSError, StorageError) as error:
            if not _is_full(error):
                raise
            failure = error
        with self._room.kept():
            held = self._size
            try:
                while self._give_up():
                    try:
                        return work()
                    except (OSError, StorageError) as error:
                        if not _is_full(error):
                            raise
                        failure = error
                raise failure
            finally:
                self._take_back(held)

    def stopping(self, work: Callable[[], T]) -> T:
        """Do `work`, which makes do without room where there is none; so make some before."""
        held = self._size
        try:
            while self._is_short() and self._give_up():
                pass
            return work()
        finally:
            self._take_back(held)

    def fill(self) -> None:
        """Bring it to its size, unless that would take the last room. Raises `OSError`."""
        with self._lock:
            self._look()
            missing = self._wanted_bytes - self._size
            if missing < 0:
                self._shorten(self._wanted_bytes)
            elif missing:
                if self._files.free_bytes(self._directory) >= missing + self._wanted_bytes:
                    self._grow(self._wanted_bytes)
                self._tell()

    def _look(self) -> None:
        try:
            self._size = self._files.size(self._path)
        except OSError:
            self._size = 0

    def _is_short(self) -> bool:
        try:
            return self._files.free_bytes(self._directory) < self._wanted_bytes
        except OSError:
            return False

    def _give_up(self) -> bool:
        """Make room of a piece; whether there was one."""
        with self._lock:
            self._look()
            if not self._size:
                return False
            try:
                self._shorten(max(self._size - max(self._wanted_bytes // PIECES, 1), 0))
            except OSError as error:
                self._observe("disk_reserve_failed", path=str(self._path), error=error)
                return False
            return True

    def _shorten(self, size_bytes: int) -> None:
        if size_bytes:
            with closing(self._files.open(self._path)) as file:
                file.truncate(size_bytes)
        else:
            self._files.unlink(self._path)
        self._size = size_bytes

    def _take_back(self, size_bytes: int) -> None:
        """Grow to `size_bytes` again, as far as there is room."""
        with self._lock:
            if self._size < size_bytes:
                try:
                    self._grow(size_bytes)
                except OSError as error:
                    self._observe("disk_reserve_failed", path=str(self._path), error=error)
                self._tell()

    def _grow(self, size_bytes: int) -> None:
        # A file system that compresses, or leaves zeros out, would keep no room for zeros.
        block = Random().randbytes(min(_BLOCK_BYTES, max(self._wanted_bytes // PIECES, 1)))
        with closing(self._files.open(self._path, create=True)) as file:
            while self._size < size_bytes:
                added = min(len(block), size_bytes - self._size)
                try:
                    file.pwrite(block[:added], self._size)
                except OSError as error:
                    file.truncate(self._size)
                    if not _is_full(error):
                        raise
                    return
                self._size += added

    def _tell(self) -> None:
        """Say once that it is not whole, and once that it is again."""
        missing = self._size < self._wanted_bytes
        if missing != self._told:
            self._told = missing
            self._observe(
                "disk_reserve_short" if missing else "disk_reserve_whole",
                path=str(self._path),
                size_bytes=self._size,
                wanted_bytes=self._wanted_bytes,
            )


def _is_full(error: BaseException | None) -> bool:
    """Whether there was no room on the disk."""
    while isinstance(error, StorageError):
        error = error.__cause__
    return isinstance(error, OSError) and error.errno in _FULL
