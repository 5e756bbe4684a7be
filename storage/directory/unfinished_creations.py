"""Folders that a creation left which a stop cut off: it makes folders before the topics file names
them, and no client had an answer yet."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ..files import Files
from ..names import folder_name
from .topics import TOPICS_FILE, TopicEntry

UNFINISHED: Final = (
    f"it is empty, and {TOPICS_FILE} does not have this partition: a creation that is under way, "
    "or was cut off, made it; the next start removes it unless the creation ends"
)


def unnamed_folders(
    folders: Iterable[tuple[str, int]], topics: Mapping[str, TopicEntry]
) -> set[tuple[str, int]]:
    """Those of the partition folders that the topics file does not name."""
    return {
        (name, partition)
        for name, partition in folders
        if name not in topics or partition >= topics[name].partitions
    }


def unfinished_creations(
    files: Files, directory: Path, unnamed: Iterable[tuple[str, int]], *, has_file: bool
) -> set[tuple[str, int]]:
    """Those of the unnamed folders that are empty because their creation was cut off.

    For a topics file that can be read, or a directory that has none, as `has_file` says. Where it
    is missing beside folders with files it is lost, and an empty folder may be a partition without
    messages. Raises `OSError`.
    """
    unnamed = set(unnamed)
    empty = {key for key in unnamed if not files.names(directory / folder_name(*key))}
    lost = empty != unnamed and not has_file
    return set() if lost else empty
