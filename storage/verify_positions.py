"""Whether the file of positions holds whole records only."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .files import Files
from .findings import NOTHING, Finding
from .position_records import HEADER, good_records
from .positions import POSITIONS_FILE

_ADVICE: Final = "nothing: the next start sets these bytes aside as .broken and keeps the rest"


def check_positions(files: Files, directory: Path) -> Iterator[Finding]:
    """What is wrong with the positions of a data directory."""
    path = directory / POSITIONS_FILE
    if not files.exists(path):
        return
    try:
        content = files.read_bytes(path)
    except OSError as error:
        yield Finding(path, None, f"it cannot be read: {error}", "see the disk")
        return
    if HEADER.startswith(content):
        yield Finding(path, None, "nothing is in it yet", NOTHING, error=False)
        return
    if not content.startswith(HEADER):
        yield Finding(path, 0, "it does not begin as a positions file does", _ADVICE)
        return
    end = len(HEADER)
    for position, after, _ in good_records(content, end):
        if position > end:
            yield Finding(path, end, "a record's CRC does not fit", _ADVICE)
        end = after
    if end < len(content):
        yield Finding(path, end, "the last record is not whole", _ADVICE)
