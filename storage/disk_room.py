"""Who may take the room that becomes free on a full disk."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class DiskRoom:
    """The free room of one data directory: for everybody, or kept for the way out of a full disk.

    While an operation that makes room uses what the reserve gives up for it, producers would take
    that as soon as it is free. May be used from several threads.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.keepers = 0
        """How many operations keep the room for themselves now."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Refuse appends until the block ends."""
        with self._lock:
            self.keepers += 1
        try:
            yield
        finally:
            with self._lock:
                self.keepers -= 1

    def check_append(self) -> None:
        """Raise what a write to the full disk would raise, if the room is not for appends now."""
        if self.keepers:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
