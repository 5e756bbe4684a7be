"""The lock of a data directory: one process at a time.

`.lock` is held with `flock` and has the process id of its holder as text, so that a refused broker
can name the holder. The system releases the lock when the holder dies, so a leftover file does
no harm. The file's modification time tells when the directory was last in use.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...protocol.errors import StorageError
from ..files import File, Files

LOCK_FILE: Final = ".lock"

_ADVICE: Final = "stop that broker, or start this one with another data.dir (--data-dir)"


class DirectoryLock:
    """Holds the lock of `directory` from construction to `release`.

    Raises `StorageError` if another process holds it (the text says which) and `OSError` if the
    lock file cannot be created.
    """

    def __init__(self, files: Files, directory: Path, *, advice: str = _ADVICE) -> None:
        """`advice` says what to do if another process holds the lock."""
        path = directory / LOCK_FILE
        self._files = files
        self._path = path
        self.last_seen_ms = _modified_ms(files, path)
        """The last time passed to `seen` before this start; `None` if not known."""
        try:
            self._file: File = files.lock(path)
        except BlockingIOError:
            raise StorageError(
                f"the data directory {directory} is in use by {_holder(files, path)}; {advice}"
            ) from None
        # The lock is held already. A full disk can only prevent writing the process id.
        with suppress(OSError):
            self._file.truncate(0)
            self._file.pwrite(f"{os.getpid()}\n".encode(), 0)
            if self.last_seen_ms is not None:
                files.set_modified_ms(path, self.last_seen_ms)

    def seen(self, at_ms: int) -> None:
        """Record that the directory is in use at `at_ms`. Raises `OSError`."""
        self._files.set_modified_ms(self._path, at_ms)

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        self._file.close()


def _modified_ms(files: Files, path: Path) -> int | None:
    try:
        return files.modified_ms(path)
    except OSError:
        return None


def _holder(files: Files, path: Path) -> str:
    """Return text that names the holder of the lock."""
    try:
        pid = files.read_bytes(path)[:20].decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        pid = ""
    return f"process {pid}" if pid.isdigit() else "another process (its id is not in the lock file)"
