"""The real files without syncs, for tests that kill a process and do not cut the power."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..storage.files import SystemFile, SystemFiles

_WATCHED: list["list[QuickFile]"] = []
"""Where files are noted as they are opened, for each `ending_process` that we are in."""


class QuickFile(SystemFile):
    """A file of the operating system whose `sync` does nothing."""

    __slots__ = ()

    def __init__(self, fd: int, path: Path) -> None:
        super().__init__(fd, path)
        for opened in _WATCHED:
            opened.append(self)

    def sync(self) -> None:
        pass

    def duplicate(self) -> "QuickFile":
        return QuickFile(os.dup(self.fileno()), self.path)


class QuickFiles(SystemFiles):
    """`SystemFiles` that never wait for the disk."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> QuickFile:
        file = super().open(path, create=create, read_only=read_only)
        return QuickFile(file.fileno(), path)

    def sync_directory(self, path: Path) -> None:
        pass


@contextmanager
def ending_process() -> Iterator[None]:
    """Close in the end what was opened meanwhile by any `QuickFiles` and is open still, as the
    operating system does for a process that was killed."""
    opened: list[QuickFile] = []
    _WATCHED.append(opened)
    try:
        yield
    finally:
        innermost = _WATCHED.pop()
        assert innermost is opened
        for file in opened:
            file.close()
