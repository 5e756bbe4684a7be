"""The id by which clients know a cluster: made once, then the data directory's for good."""

from pathlib import Path
from random import Random
from typing import Final

from ..files import Files, replace_file
from .random_ids import is_id, random_id

CLUSTER_ID_FILE: Final = "cluster-id"


def load_cluster_id(files: Files, directory: Path, random: Random) -> str:
    """The id in its file; a new one where there is none, or something else. Raises OSError."""
    path = directory / CLUSTER_ID_FILE
    if files.exists(path):
        stored = files.read_bytes(path).removesuffix(b"\n").decode(errors="replace")
        if is_id(stored):
            return stored
    made = random_id(random)
    store_cluster_id(files, directory, made)
    return made


def store_cluster_id(files: Files, directory: Path, cluster_id: str) -> None:
    """Keep an id. Raises OSError."""
    replace_file(files, directory / CLUSTER_ID_FILE, f"{cluster_id}\n".encode())
