"""Delayed removal of what is already out of use.

A deleted segment file or partition folder is first renamed to `.deleted`, which takes it out of
the log at once, and removed from the disk later: readers that are in the middle of it finish, and
the bytes can be rescued until then. Delays are measured on the monotonic clock, so that setting the
wall clock neither cuts them short nor keeps the disk full.
"""

import heapq
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ...clock import Clock
from ..events import Observer
from ..files import Files

RETRY_DELAY_MS: Final = 60_000
"""How long a removal that failed waits; the reason (a full journal, a busy mount) may pass."""


class DeletionQueue:
    """Renamed files and folders waiting to be removed. May be used from several threads."""

    def __init__(self, files: Files, clock: Clock, observe: Observer) -> None:
        self._files = files
        self._clock = clock
        self._observe = observe
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, int, Path]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Remove `paths`, files or whole folders, when `delay_ms` are over."""
        due_ms = self._now_ms() + delay_ms
        with self._lock:
            for path in paths:
                # The running number keeps the order of adding and two paths from being compared.
                heapq.heappush(self._waiting, (due_ms, self._added, path))
                self._added += 1

    def run_due(self) -> int:
        """Remove what is due; returns how many paths were removed.

        A path that is gone counts as removed. One that fails is observed as `deletion_failed` and
        tried again after a minute.
        """
        return self._run(self._now_ms())

    def run_all(self) -> int:
        """Remove everything that waits, due or not; returns how many paths were removed."""
        with self._lock:
            last_due_ms = max((due_ms for due_ms, _, _ in self._waiting), default=0)
        return self._run(last_due_ms)

    def _run(self, until_ms: int) -> int:
        removed = 0
        failed: list[Path] = []
        while (path := self._pop(until_ms)) is not None:
            try:
                remove(self._files, path)
            except OSError as error:
                failed.append(path)
                self._observe("deletion_failed", path=str(path), reason=str(error))
            else:
                removed += 1
        self.add(failed, RETRY_DELAY_MS)
        return removed

    def _pop(self, until_ms: int) -> Path | None:
        with self._lock:
            if not self._waiting or self._waiting[0][0] > until_ms:
                return None
            return heapq.heappop(self._waiting)[2]

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
            if not files.is_directory(path):
                raise
            for name in files.names(path):
                remove(files, path / name)
            files.remove_directory(path)
    except FileNotFoundError:
        pass
