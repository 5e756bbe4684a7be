"""The data directory of a broker that does not run, where users, rules and quotas are changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from ...server.security.documents import FILE_MODE, AccessDocuments
from ...storage.directory.lock import DirectoryLock
from ...storage.files import SystemFiles, make_directory_safely
from ...storage.names import METADATA_FOLDER
from ..errors import CommandFailed

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The data directory of a broker that does not run, instead of --server.",
    ),
]

T = TypeVar("T")


class OfflineDirectory:
    """The data directory of a broker that does not run: its users, rules and quotas. With `makes`
    the directory is made when it is missing."""

    def __init__(self, path: Path, *, makes: bool = False) -> None:
        self._path = path
        self._makes = makes

    def use(self, work: Callable[[AccessDocuments], T]) -> T:
        """Do work on what is stored while the lock of the directory is held. Raises
        `CommandFailed`."""
        files = SystemFiles(FILE_MODE)
        if not files.is_directory(self._path):
            if not self._makes:
                raise CommandFailed(f"--data-dir: {self._path} is not a directory")
            make_directory_safely(files, self._path)
        lock = DirectoryLock(files, self._path, advice="stop that broker, or ask it with --server")
        try:
            if files.exists(self._path / METADATA_FOLDER):
                raise CommandFailed(
                    f"--data-dir: {self._path} is of a cluster member, whose users, rules and "
                    "quotas are the cluster's: ask a running member with --server"
                )
            return work(AccessDocuments(files, self._path))
        finally:
            lock.release()
