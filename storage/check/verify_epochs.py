"""Checks of a partition's leader epochs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..files import Files
from ..replica.epoch_history import MalformedEpochs, decode_epochs
from .findings import Finding

_COPIED_ANEW: Final = (
    "nothing on a broker that is alone; as one of several it copies this partition anew"
)


def check_epochs(files: Files, path: Path) -> Iterator[Finding]:
    """Whether the file at `path` can be believed. It may name epochs that begin at the log end, or
    behind it, where a crash took their messages."""
    try:
        decode_epochs(files.read_bytes(path))
    except OSError as error:
        yield Finding(path, None, f"it cannot be read: {error}", "see the disk")
    except MalformedEpochs as error:
        yield Finding(path, None, str(error), _COPIED_ANEW, error=False)
