"""The files that belong in a data directory, beside the partitions' folders; and setting data aside
to make room for other data: it is moved into a new folder, never deleted.

That folder lies in the data directory, because that may be a file system of its own, and is called
`set-aside-2026-11-25T13-14-00.000Z`. Before anything is moved the file `set-aside-unfinished` names
it, and is gone again when all is moved: a start that finds that file goes on with the move, since
half of the data is worth nothing. Users, rules and quotas go too: those of the cluster count.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ...protocol.errors import StorageError
from ..files import Files, replace_file
from ..names import METADATA_FOLDER, parse_folder_name, parse_segment_file
from ..producers.producer_ids import PRODUCER_IDS_FILE
from .checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from .lock import LOCK_FILE, DirectoryLock
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

_STAYS: Final = frozenset({LOCK_FILE, RESERVE_FILE, UNFINISHED_SETTING_ASIDE})


def set_aside(files: Files, directory: Path, now_ms: int) -> Path:
    """Move all data into a new folder, and return that folder.

    Raises `StorageError` if another process uses the directory, and `OSError`. Whatever interrupts
    it, the next `finish_setting_aside` completes it.
    """
    lock = DirectoryLock(files, directory)
    try:
        name = _free_name(files, directory, now_ms)
        files.make_directory(directory / name)
        files.sync_directory(directory)
        replace_file(files, directory / UNFINISHED_SETTING_ASIDE, f"{name}\n".encode())
        return _move(files, directory, name)
    finally:
        lock.release()


def finish_setting_aside(files: Files, directory: Path) -> Path | None:
    """Finish an interrupted move. Return the folder, or `None` if there is nothing to finish.

    Raises as `set_aside`.
    """
    marker = directory / UNFINISHED_SETTING_ASIDE
    if not files.exists(marker):
        return None
    name = files.read_bytes(marker).decode("ascii", "replace").strip()
    if not is_set_aside(name):
        stays = ", ".join(sorted(_STAYS - {UNFINISHED_SETTING_ASIDE}))
        raise StorageError(
            f"{marker} names no folder that data is moved to, but {name[:100]!r}: move all but "
            f"{stays} out of {directory} by hand, and remove that file"
        )
    lock = DirectoryLock(files, directory)
    try:
        return _move(files, directory, name)
    finally:
        lock.release()


def _free_name(files: Files, directory: Path, now_ms: int) -> str:
    at = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    name = f"set-aside-{at.replace(':', '-').replace('+00-00', 'Z')}"
    found, number = name, 1
    while files.exists(directory / found):
        number += 1
        found = f"{name}.{number}"
    return found


def _move(files: Files, directory: Path, name: str) -> Path:
    target = directory / name
    for each in sorted(files.names(directory)):
        if each not in _STAYS and not is_set_aside(each):
            files.rename(directory / each, target / each)
    # The new names first: a file in neither folder would be lost.
    files.sync_directory(target)
    files.sync_directory(directory)
    files.unlink(directory / UNFINISHED_SETTING_ASIDE)
    files.sync_directory(directory)
    return target


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
