"""Clocks for tests: one that a test moves by hand, and one that goes on by itself and that a test
steps, freezes and sets back."""

from collections.abc import Callable
from typing import NamedTuple

from ..clock import Clock, SystemClock


class _Shown(NamedTuple):
    """What the clock showed at one time. Replaced as a whole, as other threads read it."""

    wall_ms: float
    passed_seconds: float
    since: float | None
    """When that was, on the real clock; None while it stands still."""


class MovingClock:
    """The clock of a broker in a test. Implements `horolog.clock.Clock`; any thread may read it.

    It begins with the machine's time and goes on with it, until it is frozen or moved.
    """

    def __init__(self, real: Clock | None = None) -> None:
        self._real = real or SystemClock()
        now = self._real.monotonic()
        self._shown = _Shown(self._real.now_ms(), now, now)
        self.on_passed: Callable[[float], None] = lambda seconds: None
        """Called with the seconds that `step` let pass. A running broker sets it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._look().wall_ms)

    def monotonic(self) -> float:
        """Seconds; these never go back."""
        return self._look().passed_seconds

    def step(self, seconds: float) -> None:
        """Let time pass: both clocks, the wall's and the monotonic one, go forward at once.

        Returns when every background task of the broker that became due has run once. Negative
        `seconds` are `jump`: no time passes, so nothing becomes due.
        """
        if seconds < 0:
            self.jump(seconds)
            return
        wall_ms, passed, since = self._look()
        self._shown = _Shown(wall_ms + 1000 * seconds, passed + seconds, since)
        self.on_passed(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back when negative, without time passing."""
        wall_ms, passed, since = self._look()
        self._shown = _Shown(wall_ms + 1000 * seconds, passed, since)

    def freeze(self) -> None:
        """Stand still from now on; `step` and `jump` go on working."""
        self._shown = self._look()._replace(since=None)

    def unfreeze(self) -> None:
        """Go on from the time that it shows."""
        self._shown = self._look()._replace(since=self._real.monotonic())

    def _look(self) -> _Shown:
        wall_ms, passed, since = self._shown
        if since is None:
            return self._shown
        now = self._real.monotonic()
        return _Shown(wall_ms + 1000 * (now - since), passed + (now - since), now)


class ManualClock:
    """Implements `horolog.clock.Clock`; stands still until it is moved."""

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
        """Set the wall clock forward (or back, when negative) without time passing."""
        self._now_ms += ms
