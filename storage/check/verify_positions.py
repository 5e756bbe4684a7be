"""Whether the file of positions holds whole records only."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from ..directory.position_records import HEADER, good_records
from ..directory.positions import POSITIONS_FILE
from ..files import File, Files
from .findings import NOTHING, Finding, cannot_read

_ADVICE: Final = "nothing: the next start sets these bytes aside as .broken and keeps the rest"


def check_positions(files: Files, directory: Path) -> Iterator[Finding]:
    """What is wrong with the positions of a data directory."""
    path = directory / POSITIONS_FILE
    if not files.exists(path):
        return
    try:
        with closing(files.open(path, read_only=True)) as file:
            yield from _check(file, path)
    except OSError as error:
        yield cannot_read(path, error)


def _check(file: File, path: Path) -> Iterator[Finding]:
    size = file.size()
    beginning = file.pread(len(HEADER), 0)
    if size <= len(HEADER) and HEADER.startswith(beginning):
        yield Finding(path, None, "nothing is in it yet", NOTHING, error=False)
        return
    if beginning != HEADER:
        yield Finding(path, 0, "it does not begin as a positions file does", _ADVICE)
        return
    end = len(HEADER)
    for position, after, _ in good_records(file.pread, size, end):
        if position > end:
            yield Finding(path, end, "a record's CRC does not fit", _ADVICE)
        end = after
    if end < size:
        yield Finding(path, end, "the last record is not whole", _ADVICE)
