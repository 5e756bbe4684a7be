"""Changes users, rules and quotas in the data directory of a stopped broker."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from ...storage.files import SystemFiles, make_directory_safely
from ...storage.metadata.local_metadata import LocalMetadata, offline_metadata
from ..errors import CommandFailed

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Data directory of a broker that is not running, instead of --server.",
    ),
]

T = TypeVar("T")

FILE_MODE: Final = 0o600
"""Mode of files with salted keys: only the broker's account may read them."""


class OfflineDirectory:
    """Users, rules and quotas in the data directory of a stopped broker. With `makes` a missing
    directory is made."""

    def __init__(self, path: Path, *, makes: bool = False) -> None:
        self._path = path
        self._makes = makes

    def use(self, work: Callable[[LocalMetadata], T]) -> T:
        """Apply `work` to the stored metadata while the lock of the directory is held. Raises
        `CommandFailed`."""
        files = SystemFiles(FILE_MODE)
        if not files.is_directory(self._path):
            if not self._makes:
                raise CommandFailed(f"--data-dir: {self._path} is not a directory")
            make_directory_safely(files, self._path)
        advice = "ask a running member with --server"
        with offline_metadata(files, self._path, _ignore, advice=advice) as metadata:
            return work(metadata)


def _ignore(event: str, /, **fields: object) -> None:
    """Drop an event: the next start of the broker reports it too."""
