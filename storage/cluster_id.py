"""The id by which Kafka's clients know a cluster: made once, then the data directory's for good."""

import base64
import re
from pathlib import Path
from random import Random
from typing import Final

from .files import Files, replace_file

CLUSTER_ID_FILE: Final = "cluster-id"

_ID: Final = re.compile(rb"[\w-]{22}\n?", re.ASCII)


def load_cluster_id(files: Files, directory: Path, random: Random) -> str:
    """The id in its file; a new one where there is none, or something else.

    22 characters like Kafka's: 128 random bits in base64. Raises OSError.
    """
    path = directory / CLUSTER_ID_FILE
    if files.exists(path):
        content = files.read_bytes(path)
        if _ID.fullmatch(content):
            return content.decode().strip()
    bits = random.getrandbits(128).to_bytes(16, "big")
    made = base64.urlsafe_b64encode(bits).rstrip(b"=").decode()
    replace_file(files, path, f"{made}\n".encode())
    return made
