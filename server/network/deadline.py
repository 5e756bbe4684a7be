"""Time limits for clients, with a grace period in case the broker itself was late."""

import asyncio
from collections.abc import Callable

LAST_CHANCE_SECONDS = 0.1
"""Grace period after a limit. If the process was stopped or its event loop blocked, data may be in
the socket, and a loop runs timers before it reads."""


class Deadline:
    """Calls `late` unless stopped within `seconds` of its start."""

    __slots__ = ("_late", "_loop", "_seconds", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, late: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._late = late
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start, unless it is running."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._grant_last_chance)

    def stop(self) -> None:
        """Stop the timer; `late` is not called."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _grant_last_chance(self) -> None:
        self._timer = self._loop.call_later(LAST_CHANCE_SECONDS, self._late)


class IdleLimit:
    """Calls `expired` when nothing has happened for `seconds`; None is no limit.

    `last_used` returns the time of the last event, or None while something is in progress. It is
    polled, so that the events themselves cost nothing.
    """

    __slots__ = ("_expired", "_last_used", "_loop", "_seconds", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float | None,
        last_used: Callable[[], float | None],
        expired: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._last_used = last_used
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._seconds is not None:
            self._timer = self._loop.call_later(self._seconds, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _left_seconds(self) -> float:
        assert self._seconds is not None
        last_used = self._last_used()
        if last_used is None:
            return self._seconds
        return last_used + self._seconds - self._loop.time()

    def _check(self) -> None:
        left = self._left_seconds()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check)
        else:
            self._timer = self._loop.call_later(LAST_CHANCE_SECONDS, self._look_again)

    def _look_again(self) -> None:
        if self._left_seconds() > 0:
            self._check()
        else:
            self._timer = None
            self._expired()
