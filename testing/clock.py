"""Clocks for tests: one that a test moves by hand, and one that goes on by itself and that a test
steps, freezes and sets back."""

from collections.abc import Callable
from typing import NamedTuple

from ..clock import Clock, SystemClock


class _Shown(NamedTuple):
    """The clock's reading at one time. Replaced as a whole, because other threads read it."""

    wall_ms: float
    passed_seconds: float
    since: float | None
    """Time of the reading, on the real clock; `None` while the clock is frozen."""


class MovingClock:
    """The clock of a broker in a test. Implements `horolog.clock.Clock`; any thread may read it.

    It starts at the machine's time and runs with it, until it is frozen or moved.
    """

    def __init__(self, real: Clock | None = None) -> None:
        self._real = real or SystemClock()
        now = self._real.monotonic()
        self._shown = _Shown(self._real.now_ms(), now, now)
        self.on_passed: Callable[[float], None] = lambda seconds: None
        """Called with the seconds that passed in `step`. A running broker sets it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._look().wall_ms)

    def monotonic(self) -> float:
        """Seconds, which never go back."""
        return self._look().passed_seconds

    def step(self, seconds: float) -> None:
        """Let time pass: the wall clock and the monotonic clock go forward at once.

        Returns when every background task of the broker that became due has run once. Negative
        `seconds` act like `jump`: no time passes, so nothing becomes due.
        """
        if seconds < 0:
            self.jump(seconds)
            return
        wall_ms, passed, since = self._look()
        self._shown = _Shown(wall_ms + 1000 * seconds, passed + seconds, since)
        self.on_passed(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back if negative, without time passing."""
        wall_ms, passed, since = self._look()
        self._shown = _Shown(wall_ms + 1000 * seconds, passed, since)

    def freeze(self) -> None:
        """Stop the clock; `step` and `jump` still move it."""
        self._shown = self._look()._replace(since=None)

    def unfreeze(self) -> None:
        """Let the clock run again, from the time that it shows."""
        self._shown = self._look()._replace(since=self._real.monotonic())

    def _look(self) -> _Shown:
        wall_ms, passed, since = self._shown
        if since is None:
            return self._shown
        now = self._real.monotonic()
        return _Shown(wall_ms + 1000 * (now - since), passed + (now - since), now)


class ManualClock:
    """A clock that stands still until it is moved; implements `horolog.clock.Clock`."""

    def __init__(self, now_ms: int = 1_479_144_272_509, monotonic: float = 1_000.0) -> None:
        self._now_ms = now_ms
        self._monotonic = monotonic

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass on both clocks."""
        self._now_ms += ms
        self._monotonic += ms / 1000

    def step(self, ms: int) -> None:
        """Set the wall clock forward, or back if negative, without time passing."""
        self._now_ms += ms
