"""Quarantine of invalid bytes: they are kept beside the file as `.broken`, never deleted.

Bytes removed from `<name>` are in `<name>.<position>.broken`, a whole file is in `<name>.broken`.
If that name exists already, it gets a number (`<name>.2.broken`).
"""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

from .files import File, Files, replacing
from .names import BROKEN_SUFFIX

_CHUNK_BYTES = 1 << 20


def quarantine_file(files: Files, path: Path) -> Path:
    """Rename the file or folder at `path` to a quarantine name, and return the new path.

    The directory is not synced. Raises `OSError`.
    """
    for target in _names(path.name):
        kept = path.with_name(target)
        if not files.exists(kept):
            files.rename(path, kept)
            return kept
    raise AssertionError("there is always another name")


def quarantine_bytes(files: Files, path: Path, start: int, end: int) -> Path:
    """Copy bytes `start` to `end` of the file at `path` to a file beside it, and return its path.

    The copy is on stable storage. Repeating the call makes no second copy. Raises `OSError`.
    """
    with closing(files.open(path, read_only=True)) as source:
        for target in _names(f"{path.name}.{start}"):
            kept = path.with_name(target)
            if not files.exists(kept):
                _copy(files, source, start, end, kept)
                return kept
            if _is_copy(files, source, start, end, kept):
                return kept
    raise AssertionError("there is always another name")


def _names(stem: str) -> Iterator[str]:
    yield stem + BROKEN_SUFFIX
    for number in count(2):
        yield f"{stem}.{number}{BROKEN_SUFFIX}"


def _copy(files: Files, source: File, start: int, end: int, kept: Path) -> None:
    # A crash must not leave half a copy.
    with replacing(files, kept) as copy:
        for position in range(start, end, _CHUNK_BYTES):
            data = source.pread(min(_CHUNK_BYTES, end - position), position)
            if data.strip(b"\0"):  # Zeros need no room on the disk.
                copy.pwrite(data, position - start)
        copy.truncate(end - start)


def _is_copy(files: Files, source: File, start: int, end: int, kept: Path) -> bool:
    if files.is_directory(kept) or files.size(kept) != end - start:
        return False
    with closing(files.open(kept, read_only=True)) as copy:
        return all(
            copy.pread(_CHUNK_BYTES, position - start)
            == source.pread(min(_CHUNK_BYTES, end - position), position)
            for position in range(start, end, _CHUNK_BYTES)
        )
