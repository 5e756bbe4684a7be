"""The metadata log: its folder and its stored state."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from ..files import Files
from ..metadata.folder import METADATA_PARTITION, STATE_FILE
from ..metadata.snapshot import MalformedState, decode_state
from ..metadata.state_copy import pieces_of
from ..names import METADATA_FOLDER, folder_name
from .findings import Finding, cannot_read

STATE_LOST: Final = (
    "the next start takes the topics from topics.json; a cluster member is in doubt until it has "
    "copied the metadata from its leader, a single broker goes on without users and rules"
)


def is_metadata_folder(files: Files, directory: Path) -> bool:
    """Whether a folder is the `metadata-log` of a data directory."""
    if directory.resolve().name != METADATA_FOLDER:
        return False
    owned = (STATE_FILE, folder_name(*METADATA_PARTITION))
    return any(files.exists(directory / name) for name in owned)


def check_state(files: Files, path: Path) -> Iterator[Finding]:
    """Whether the stored state at `path` is whole. One that is missing costs what one that cannot
    be read does, but there is nothing left to put right."""
    if not files.exists(path):
        rule = "the stored state is missing"
        yield Finding(path, None, rule, f"nothing: {STATE_LOST}", error=False)
        return
    try:
        with closing(files.open(path, read_only=True)) as file:
            decode_state(pieces_of(file))
    except OSError as error:
        yield cannot_read(path, error)
    except MalformedState as error:
        rule = f"the stored state cannot be read: {error}"
        yield Finding(path, None, rule, f"nothing: {STATE_LOST}")
