"""A file system around another one, for those that change what some operations do."""

from pathlib import Path

from ..storage.files import Files


class WrappedFiles:
    """Asks `files` whatever only reads, and for permissions, which no content depends on."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def read_bytes(self, path: Path) -> bytes:
        return self._files.read_bytes(path)

    def exists(self, path: Path) -> bool:
        return self._files.exists(path)

    def is_directory(self, path: Path) -> bool:
        return self._files.is_directory(path)

    def is_link(self, path: Path) -> bool:
        return self._files.is_link(path)

    def names(self, directory: Path) -> list[str]:
        return self._files.names(directory)

    def size(self, path: Path) -> int:
        return self._files.size(path)

    def sole_bytes(self, path: Path) -> int:
        return self._files.sole_bytes(path)

    def inode(self, path: Path) -> tuple[int, int]:
        return self._files.inode(path)

    def modified_ms(self, path: Path) -> int:
        return self._files.modified_ms(path)

    def free_bytes(self, directory: Path) -> int:
        return self._files.free_bytes(directory)

    def restrict(self, path: Path, *, private: bool = False) -> None:
        self._files.restrict(path, private=private)
