"""The id by which clients know a cluster: made once, then the data directory's for good."""

from pathlib import Path
from random import Random

from ...protocol.errors import StorageError
from ..files import Files, replace_file
from .known_files import CLUSTER_ID_FILE, IDENTITY_FILE
from .random_ids import is_id, random_id


def load_cluster_id(files: Files, directory: Path, random: Random) -> str:
    """The id in its file; a new one where there is none, or something else.

    Raises OSError, and StorageError where something else is in the file of a cluster member:
    with another id the others would take it for one of another cluster.
    """
    path = directory / CLUSTER_ID_FILE
    if files.exists(path):
        stored = files.read_bytes(path).removesuffix(b"\n").decode(errors="replace")
        if is_id(stored):
            return stored
        if files.exists(directory / IDENTITY_FILE):
            raise StorageError(
                f"{path} holds no cluster id, but {stored[:60]!r}, and this broker is one of "
                "several: copy the file from the data directory of another one"
            )
    made = random_id(random)
    store_cluster_id(files, directory, made)
    return made


def store_cluster_id(files: Files, directory: Path, cluster_id: str) -> None:
    """Keep an id. Raises OSError."""
    replace_file(files, directory / CLUSTER_ID_FILE, f"{cluster_id}\n".encode())
