"""Delayed removal of what is already out of use.

A deleted segment file or partition folder is first renamed to `.deleted`, which takes it out of
the log at once, and removed from the disk later: readers that are in the middle of it finish, and
the bytes can be rescued until then. Delays are measured on the monotonic clock, so that setting the
wall clock neither cuts them short nor keeps the disk full.

A large file goes in pieces where there is time for it. The system frees its blocks in one step of
the file system's journal, which every sync beside it waits for: 64 MiB took 12 ms.
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
"""How long a removal that failed waits; the reason (a full journal, a busy mount) may pass."""

PIECE_BYTES: Final = 16 << 20
"""How much of a large file goes at a time."""

PAUSE_SECONDS: Final = 0.02
"""Time between two pieces: syncs that come meanwhile free one of them at most."""

_Waiting = tuple[int, int, Path, bool]
"""When a path is due, a number that keeps the order of adding and two paths from being compared,
the path, and whether it is a folder whose content was queued before it."""


class DeletionQueue:
    """Renamed files and folders waiting to be removed. May be used from several threads."""

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
        """Remove `paths`, files or whole folders, when `delay_ms` are over."""
        due_ms = self._now_ms() + delay_ms
        with self._lock:
            for path in paths:
                self._push(due_ms, path)

    def _push(self, due_ms: int, path: Path, *, opened: bool = False) -> None:
        heapq.heappush(self._waiting, (due_ms, self._added, path, opened))
        self._added += 1

    def run_step(self) -> float | None:
        """Remove what is due, up to a piece of a large file: how long to wait before the next step,
        which is not at all if more is due than that file, or `None` if nothing is left to do.

        A path that is gone counts as removed. One that fails is observed as `deletion_failed` and
        tried again after a minute.
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
        """Take a piece off the end of a file that is larger and that nothing else refers to."""
        with suppress(OSError):  # it can still be removed at once
            size_bytes = self._files.sole_bytes(path)
            if size_bytes > PIECE_BYTES:
                with closing(self._files.open(path)) as file:
                    file.truncate(size_bytes - PIECE_BYTES)
                return True
        return False

    def _opens(self, due_ms: int, path: Path) -> bool:
        """Queue what is in a folder, and the folder behind it; false for what is none."""
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
    """Remove a file, or a folder with all that is in it; one that is gone is fine.

    A link is removed, never what it points to. Raises `OSError`.
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
