"""The data directory of a broker that does not run, where users, rules and quotas are changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from ...storage.files import SystemFiles, make_directory_safely
from ...storage.metadata.local_metadata import LocalMetadata
from ...storage.metadata.offline_metadata import offline_metadata
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

FILE_MODE: Final = 0o600
"""Of files with salted keys: they are for the broker's account alone."""


class OfflineDirectory:
    """The data directory of a broker that does not run: its users, rules and quotas. With `makes`
    the directory is made when it is missing."""

    def __init__(self, path: Path, *, makes: bool = False) -> None:
        self._path = path
        self._makes = makes

    def use(self, work: Callable[[LocalMetadata], T]) -> T:
        """Do work on what is stored while the lock of the directory is held. Raises
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
    """What the next start of the broker tells too."""
