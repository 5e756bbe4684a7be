"""The files that belong in a data directory, beside the partitions' folders."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ...protocol.errors import StorageError
from ..files import Files
from ..names import METADATA_FOLDER, parse_folder_name, parse_segment_file
from ..producers.producer_ids import PRODUCER_IDS_FILE
from .checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from .lock import LOCK_FILE
from .reserve import RESERVE_FILE
from .topics import TOPICS_FILE
from .truncations import TRUNCATIONS_FILE

EARLIER_FILES: Final = frozenset({"positions", "users.json", "acls.json", "quotas.json"})
"""Files of earlier builds, of which none was released; what they held is in the metadata log."""

CLUSTER_ID_FILE: Final = "cluster-id"
"""The id by which clients identify a cluster."""

IDENTITY_FILE: Final = "replication-identity"
"""A cluster member's identity and replication state, read and written by the server."""

EPOCH_OWNERS_FILE: Final = "leader-epoch-owners"
"""Which broker led in which epoch, read and written by the server."""

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
"""The marker of a clean stop. It has Kafka's name, so that either broker accepts the other's
marker."""

UNFINISHED_SETTING_ASIDE: Final = "set-aside-unfinished"
"""Names the folder that all data is being moved to; see `set_aside`."""

KNOWN_FILES: Final = frozenset(
    {CLEAN_SHUTDOWN, LOCK_FILE, LOG_START_OFFSETS, PRODUCER_IDS_FILE}
    | {CLUSTER_ID_FILE, HIGH_WATERMARKS, RECOVERY_POINTS, RESERVE_FILE, TOPICS_FILE}
    | {EPOCH_OWNERS_FILE, IDENTITY_FILE, METADATA_FOLDER, TRUNCATIONS_FILE}
    | EARLIER_FILES
    # Kafka's own files, not used here.
    | {"meta.properties", "cleaner-offset-checkpoint"}
)

_OURS: Final = KNOWN_FILES - {LOCK_FILE}
"""The files by which a data directory is recognised. Other programs have lock files of that name
too."""

_LOOKED_AT: Final = 1000
"""Names in another folder among which a data directory is looked for."""

_SET_ASIDE: Final = re.compile(r"set-aside-[0-9T.-]{1,40}Z(\.[0-9]{1,9})?", re.ASCII)


def is_of_partition(files: Files, directory: Path) -> bool:
    """Whether a folder belongs to one partition; false for a data directory.

    Raises `ValueError` if it is neither, `OSError` if it cannot be listed.
    """
    names = files.names(directory)
    is_named = parse_folder_name(directory.resolve().name) is not None
    if _has_segment_file(names) or (is_named and not names):
        return True
    if _OURS.isdisjoint(names) and not any(_holds_log(files, directory, name) for name in names):
        raise ValueError(
            f"{directory} is neither a data directory nor the folder of a partition: "
            f"{_advice(files, directory, names)}"
        )
    return False


def _advice(files: Files, directory: Path, names: Sequence[str]) -> str:
    """Return which folder to name instead of one that is no data directory."""
    for name in names[:_LOOKED_AT]:
        path = directory / name
        if files.is_directory(path) and any(files.exists(path / each) for each in _OURS):
            return f"its folder {name} is a data directory: give {path}"
    return "give the folder that data.dir names (./horolog-data by default)"


def _holds_log(files: Files, directory: Path, name: str) -> bool:
    """Whether a name in a directory is a partition's folder that has a log or is empty. Folders of
    other programs have such names too, such as /etc/dbus-1."""
    path = directory / name
    if parse_folder_name(name) is None or not files.is_directory(path):
        return False
    found = files.names(path)
    return not found or _has_segment_file(found)


def _has_segment_file(names: Iterable[str]) -> bool:
    return any(parse_segment_file(name) for name in names)


def is_set_aside(name: str) -> bool:
    """Whether a name in a data directory is a folder of data that was set aside."""
    return name.startswith("set-aside-") and _SET_ASIDE.fullmatch(name) is not None


def check_format(files: Files, path: Path) -> None:
    """Refuse, with `StorageError`, what an earlier build kept beside the metadata log."""
    found = sorted(name for name in EARLIER_FILES if files.exists(path / name))
    if found:
        raise StorageError(
            f"the data directory {path} is of an earlier build of Horolog, which kept positions, "
            f"users, access rules or quotas in files ({', '.join(found)}): this one keeps them in "
            f"{METADATA_FOLDER} and does not convert; start that build again, or move these files "
            "elsewhere and commit positions, add users, rules and quotas anew"
        )
