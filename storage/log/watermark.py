"""The high watermark of a log: how far consumers see."""

from collections import deque


class Watermark:
    """Follows the log end, except past sets whose producer waits for a sync."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """First offset that consumers do not see."""
        self._waiting: deque[int] = deque()
        self._held_at: int | None = None

    def wait_for_sync(self, first_offset: int) -> None:
        """Do not pass `first_offset`, where a set begins, until it is synced."""
        self._waiting.append(first_offset)

    def synced(self, offset: int) -> None:
        """Everything below `offset` is on stable storage."""
        while self._waiting and self._waiting[0] < offset:
            self._waiting.popleft()

    def hold(self, offset: int | None) -> None:
        """Do not pass `offset`, and go back to it if it is passed; `None` lets it go."""
        self._held_at = offset
        if offset is not None:
            self.offset = min(self.offset, offset)

    def cut(self, offset: int) -> None:
        """The log ends at `offset` now. What comes instead is held back if that was."""
        self.offset = min(self.offset, offset)
        if self._held_at is not None:
            self._held_at = min(self._held_at, offset)
        self._waiting = deque(first for first in self._waiting if first < offset)

    def advance(self, log_end_offset: int) -> bool:
        """Move as far as may be; say whether it moved."""
        target = self._waiting[0] if self._waiting else log_end_offset
        if self._held_at is not None:
            target = min(target, self._held_at)
        if target <= self.offset:
            return False
        self.offset = target
        return True
