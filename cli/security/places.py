"""The data directory of a broker that does not run, where users, rules and quotas are changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from ...server.security.documents import FILE_MODE
from ...storage.directory.lock import DirectoryLock
from ...storage.files import SystemFiles, make_directory_safely

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The data directory of a broker that does not run, instead of --server.",
    ),
]

T = TypeVar("T")


def in_directory(path: Path, work: Callable[[SystemFiles], T]) -> T:
    """Do work on the files of a data directory while its lock is held. The directory is made when
    it is missing."""
    files = SystemFiles(FILE_MODE)
    if not files.is_directory(path):
        make_directory_safely(files, path)
    lock = DirectoryLock(files, path, advice="stop that broker, or ask it with --server")
    try:
        return work(files)
    finally:
        lock.release()
