"""Delayed removal of files that are no longer in use.

A deleted segment file or partition folder is first renamed to `.deleted`, which takes it out of the
log at once. It is removed from the disk later, so that running reads can finish, and the bytes can
be rescued until then. Delays are measured on the monotonic clock: a change of the wall clock
neither shortens them nor keeps the disk full.

A large file is removed in pieces if time permits. The file system frees its blocks in one step of
its journal, and every sync at that moment waits for it: for 64 MiB that took 12 ms.
"""

import heapq
import threading
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from ...clock import Clock
from ..events import Observer
from ..files import Files

RETRY_DELAY_MS: Final = 60_000
"""Delay before a failed removal is tried again. The reason (a full journal, a busy
mount) may pass."""

PIECE_BYTES: Final = 16 << 20
"""Number of bytes of a large file that are removed at a time."""

PAUSE_SECONDS: Final = 0.02
"""Time between two pieces, so that a sync in between waits for at most one."""

_Waiting = tuple[int, int, Path, bool]
"""Due time, a sequence number that keeps the order and prevents comparing paths, the path, and
whether it is a folder whose content was queued before it."""


class DeletionQueue:
    """Renamed files and folders that wait to be removed. Several threads may use it."""

    def __init__(self, files: Files, clock: Clock, observe: Observer) -> None:
        self._files = files
        self._clock = clock
        self._observe = observe
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Remove `paths`, files or whole folders, after `delay_ms`."""
        due_ms = self._now_ms() + delay_ms
        with self._lock:
            for path in paths:
                self._push(due_ms, path)

    def _push(self, due_ms: int, path: Path, *, opened: bool = False) -> None:
        heapq.heappush(self._waiting, (due_ms, self._added, path, opened))
        self._added += 1

    def run_step(self) -> float | None:
        """Remove what is due, up to a piece of a large file. Return the seconds to wait before the
        next step: 0 if more than that file is due, `None` if nothing is left to do now.

        A path that no longer exists counts as removed. A failed removal is reported as
        `deletion_failed` and tried again after a minute.
        """
        failed: list[Path] = []
        try:
            while (waiting := self._pop()) is not None:
                due_ms, _, path, opened = waiting
                if self._takes_piece(path):
                    with self._lock:
                        late = bool(self._waiting) and self._waiting[0][0] <= self._now_ms()
                        heapq.heappush(self._waiting, waiting)
                    return 0.0 if late else PAUSE_SECONDS
                if opened or not self._opens(due_ms, path):
                    self._remove(path, failed)
        finally:
            self.add(failed, RETRY_DELAY_MS)
        return None

    def _takes_piece(self, path: Path) -> bool:
        """Cut a piece off the end of a file that is larger than a piece and that nothing else
        refers to."""
        with suppress(OSError):  # The file can still be removed at once.
            size_bytes = self._files.sole_bytes(path)
            if size_bytes > PIECE_BYTES:
                with closing(self._files.open(path)) as file:
                    file.truncate(size_bytes - PIECE_BYTES)
                return True
        return False

    def _opens(self, due_ms: int, path: Path) -> bool:
        """Queue the content of a folder, and the folder after it. Return false for
        anything else."""
        try:
            names = self._files.names(path) if self._files.is_directory(path) else ()
        except OSError:
            return False
        if not names or self._files.is_link(path):
            return False
        with self._lock:
            for name in names:
                self._push(due_ms, path / name)
            self._push(due_ms, path, opened=True)
        return True

    def _remove(self, path: Path, failed: list[Path]) -> None:
        try:
            remove(self._files, path)
        except OSError as error:
            failed.append(path)
            self._observe("deletion_failed", path=str(path), reason=str(error))

    def _pop(self) -> _Waiting | None:
        with self._lock:
            if not self._waiting or self._waiting[0][0] > self._now_ms():
                return None
            return heapq.heappop(self._waiting)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)


def remove(files: Files, path: Path) -> None:
    """Remove a file, or a folder with its content. A path that does not exist is fine.

    For a link, the link is removed, never its target. Raises `OSError`.
    """
    try:
        try:
            files.unlink(path)
        except (IsADirectoryError, PermissionError):
            if files.is_link(path) or not files.is_directory(path):
                raise
            for name in files.names(path):
                remove(files, path / name)
            files.remove_directory(path)
    except FileNotFoundError:
        pass
