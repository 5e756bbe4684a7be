"""A time limit for what a client does, fair to it when the broker itself was late."""

import asyncio
from collections.abc import Callable

LAST_CHANCE_SECONDS = 0.1
"""After a limit, for what lies in the socket already: the process may have been stopped or its loop
blocked, and then a loop calls its timers before it reads."""


class Deadline:
    """Calls `late` when it has not been stopped `seconds` after its start."""

    __slots__ = ("_late", "_loop", "_seconds", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, late: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._late = late
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to count, unless that has begun already."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._is_over)

    def stop(self) -> None:
        """There is no hurry any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_over(self) -> None:
        self._timer = self._loop.call_later(LAST_CHANCE_SECONDS, self._late)
