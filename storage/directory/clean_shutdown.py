"""The marker of a clean stop, `.kafka_cleanshutdown`.

Kafka's own marker is empty. Horolog's has a line `topic partition` for each log that could not be
opened or closed, so that one broken log does not cause recovery of all others.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from ..files import Files, replace_file
from .known_files import CLEAN_SHUTDOWN

_LINE = re.compile(r"(\S{1,249}) ([0-9]{1,10})")


def read_marker(files: Files, directory: Path) -> frozenset[tuple[str, int]] | None:
    """Return the partitions in the marker: those that were not closed cleanly.

    Returns `None` if there is no marker, or an invalid one.
    """
    path = directory / CLEAN_SHUTDOWN
    if not files.exists(path):
        return None
    try:
        lines = files.read_bytes(path).decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    matches = [_LINE.fullmatch(line) for line in lines]
    unclean = frozenset((match[1], int(match[2])) for match in matches if match is not None)
    return None if None in matches else unclean


def take_marker(files: Files, directory: Path) -> frozenset[tuple[str, int]] | None:
    """Remove the marker durably, and return its content as `read_marker` does. Raises `OSError`."""
    path = directory / CLEAN_SHUTDOWN
    unclean = read_marker(files, directory)
    if files.exists(path):
        files.unlink(path)
        files.sync_directory(directory)
    return unclean


def leave_marker(files: Files, directory: Path, unclean: Iterable[tuple[str, int]]) -> None:
    """Write the marker durably: the last step before the lock is released. Raises `OSError`."""
    content = "".join(f"{topic} {partition}\n" for topic, partition in sorted(unclean))
    replace_file(files, directory / CLEAN_SHUTDOWN, content.encode())
