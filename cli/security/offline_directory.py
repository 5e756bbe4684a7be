"""The data directory of a broker that does not run, where users, rules and quotas are changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import typer

from ...server.security.documents import FILE_MODE
from ...storage.directory.lock import DirectoryLock
from ...storage.files import SystemFiles, make_directory_safely
from ..errors import CommandFailed

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The data directory of a broker that does not run, instead of --server.",
    ),
]

S = TypeVar("S")
T = TypeVar("T")


class OfflineDirectory(Generic[S]):
    """The data directory of a broker that does not run, and a store of changes in it. With `makes`
    the directory is made when it is missing."""

    def __init__(
        self, path: Path, store: Callable[[SystemFiles, Path], S], *, makes: bool = False
    ) -> None:
        self._path = path
        self._store = store
        self._makes = makes

    def use(self, work: Callable[[S], T]) -> T:
        """Do work on the store while the lock of the directory is held. Raises CommandFailed."""
        files = SystemFiles(FILE_MODE)
        if not files.is_directory(self._path):
            if not self._makes:
                raise CommandFailed(f"--data-dir: {self._path} is not a directory")
            make_directory_safely(files, self._path)
        lock = DirectoryLock(files, self._path, advice="stop that broker, or ask it with --server")
        try:
            return work(self._store(files, self._path))
        finally:
            lock.release()
