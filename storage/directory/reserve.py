"""Disk space reserved for recovering from a full disk.

The file `disk-reserve` in the data directory holds blocks without meaning. If an operation that
frees room fails on a full disk, part of the reserve is given up and the operation is tried again. A
stop uses the reserve in the same way for what it has to write. Afterwards the reserve takes back
what is left of that space, and the rest once there is room.
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
"""The reserve is given up in this many pieces: a write in progress, or a position,
may use one up."""

_BLOCK_BYTES: Final = 128 << 10
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

T = TypeVar("T")


class Reserve:
    """The reserve of one data directory. Several threads may use it."""

    def __init__(
        self, files: Files, directory: Path, size_bytes: int, room: DiskRoom, observe: Observer
    ) -> None:
        """`size_bytes` is the target size; nothing is written before `fill`.

        `room` keeps appends from using the space given up until the operation has ended.
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
        """Whether a missing part of the reserve was reported."""
        self._check()

    def retrying(self, work: Callable[[], T]) -> T:
        """Do `work`. If the disk is full, give up part of the reserve and do it again.

        `work` has to be repeatable. Raises its last error.
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
        """Make room first if there is little, then do `work`, which copes with a full disk."""
        held = self._size
        try:
            while self._is_short() and self._give_up():
                pass
            return work()
        finally:
            self._take_back(held)

    def fill(self) -> None:
        """Bring the reserve to its size, unless that would use the last free room. Raises
        `OSError`."""
        with self._lock:
            self._check()
            missing = self._wanted_bytes - self._size
            if missing < 0:
                self._shorten(self._wanted_bytes)
            elif missing:
                if self._files.free_bytes(self._directory) >= missing + self._wanted_bytes:
                    self._grow(self._wanted_bytes)
                self._tell()

    def _check(self) -> None:
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
        """Free one piece. Return whether there was one."""
        with self._lock:
            self._check()
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
        # A file system that compresses, or stores zeros as holes, would reserve no room for zeros.
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
        """Report once that the reserve is incomplete, and once that it is complete again."""
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
    """Whether the error means that the disk is full."""
    while isinstance(error, StorageError):
        error = error.__cause__
    return isinstance(error, OSError) and error.errno in _FULL
