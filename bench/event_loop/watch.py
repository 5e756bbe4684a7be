"""The longest time for which an event loop does not get round to anything else.

A timer of the loop fires every millisecond. What the loop's thread used of a processor from one
time to the next is the longest turn: nothing else was served meanwhile. It does not depend on what
else the machine does, as seconds on the wall do.

What the whole process used is measured too. It is more than the turn where a thread keeps Python's
lock, and where threads work beside the loop.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

TICK_SECONDS: Final = 0.001

Clock = Callable[[], float]
CallLater = Callable[[float, Callable[[], None]], object]


class Turn(NamedTuple):
    """Processor time between two ticks of a loop."""

    loop_seconds: float
    """Of the loop's thread."""
    process_seconds: float
    """Of all threads of the process."""


class TurnWatch:
    """Ticks in a loop from `start` on. Everything is called in the loop's thread."""

    def __init__(
        self,
        call_later: CallLater,
        *,
        thread_seconds: Clock = time.thread_time,
        process_seconds: Clock = time.process_time,
    ) -> None:
        self._call_later = call_later
        self._clocks = thread_seconds, process_seconds
        self._last = Turn(0.0, 0.0)
        self._longest = Turn(0.0, 0.0)

    def start(self) -> None:
        self._last = self._now()
        self._call_later(TICK_SECONDS, self._tick)

    def take(self) -> Turn:
        """The longest since this was called last, this turn included."""
        self._note()
        longest, self._longest = self._longest, Turn(0.0, 0.0)
        return longest

    def _tick(self) -> None:
        self._note()
        self._call_later(TICK_SECONDS, self._tick)

    def _note(self) -> None:
        now = self._now()
        passed = (now[0] - self._last[0], now[1] - self._last[1])
        self._longest = Turn(*map(max, self._longest, passed))
        self._last = now

    def _now(self) -> Turn:
        thread_seconds, process_seconds = self._clocks
        return Turn(thread_seconds(), process_seconds())
