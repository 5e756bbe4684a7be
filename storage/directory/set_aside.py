"""Setting data aside to make room for other data: it is moved into a new folder, never deleted.

The folder lies in the data directory, because that may be a file system of its own, and is called
`set-aside-2026-11-25T13-14-00.000Z`. Before anything is moved the file `set-aside-unfinished` names
it, and is gone again when all is moved: a start that finds that file goes on with the move, since
half of the data is worth nothing. Users, rules and quotas go too: those of the cluster count.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ...protocol.errors import StorageError
from ..files import Files, replace_file
from .known_files import UNFINISHED_SETTING_ASIDE, is_set_aside
from .lock import LOCK_FILE, DirectoryLock
from .reserve import RESERVE_FILE

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
