"""The real files without syncs, for tests that kill a process and do not cut the power."""

from pathlib import Path

from ..storage.files import SystemFile, SystemFiles


class QuickFile(SystemFile):
    """A file of the operating system whose `sync` does nothing."""

    __slots__ = ()

    def sync(self) -> None:
        pass


class QuickFiles(SystemFiles):
    """`SystemFiles` that never wait for the disk."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> QuickFile:
        file = super().open(path, create=create, read_only=read_only)
        return QuickFile(file.fileno(), path)

    def sync_directory(self, path: Path) -> None:
        pass
