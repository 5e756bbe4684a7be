"""The time that retention uses: the wall clock, unless it has just been set.

Messages expire by the wall clock, and one wrong step of it forward makes all of them look expired.
So the wall clock is compared with *trusted time*: a believed time that advances with the monotonic
clock. The time of retention is never more than `clock.step.max.ms` ahead of trusted time. A wall
clock that has kept pace for `clock.settle.ms` after a step is believed again, whatever it shows: a
correct step costs a delay, and a wrong step that is taken back before that costs nothing.

A broker that starts goes on from the time at which its data directory was last in use. It cannot
know whether it was stopped for a day or the clock was set forward by a day, so it treats both as a
step of the clock.
"""

from datetime import timedelta
from typing import Final

from ..clock import Clock
from ..storage.events import Observer
from ..times import format_time

WHILE_STOPPED: Final = "_while_stopped"
"""Suffix of the reported direction of a step that was found at the start."""


class TrustedTime:
    """Watches the wall clock: `look` compares the clocks, and reports every step once."""

    def __init__(
        self,
        clock: Clock,
        observe: Observer,
        *,
        last_seen_ms: int | None,
        step_max_ms: int,
        settle_ms: int,
    ) -> None:
        """`last_seen_ms` is the trusted time at which the data was last in use, if that is known.

        `step_max_ms` is how far the two clocks may differ, `settle_ms` how long the wall clock has
        to keep pace before it is believed after a step.
        """
        self._clock = clock
        self._observe = observe
        self._step_max_ms = step_max_ms
        self._settle_ms = settle_ms
        self._since = clock.monotonic()
        """When trusted time was last set."""
        self._trusted_ms = clock.now_ms() if last_seen_ms is None else last_seen_ms
        """The value to which trusted time was last set, in ms."""
        self._steady_since = self._since
        self._noted_ahead_ms = 0
        """How far the wall clock was ahead when it last stepped."""
        self._note_step(clock.now_ms() - self._trusted_ms, WHILE_STOPPED)

    @property
    def trusted_ms(self) -> int:
        """Trusted time now."""
        return self._trusted_ms + self._ms_since(self._since)

    @property
    def ahead_ms(self) -> int:
        """How far the wall clock is ahead of trusted time, in ms; negative if it is behind."""
        return self._clock.now_ms() - self.trusted_ms

    def look(self) -> None:
        """Compare the clocks: record a step, and believe the wall clock once it is steady."""
        self._note_step(self.ahead_ms, "")
        if self._ms_since(self._steady_since) >= self._settle_ms:
            if abs(self._noted_ahead_ms) > self._step_max_ms:
                self._observe("clock_believed", ahead=_span(self._noted_ahead_ms))
            self.believe()

    def believe(self) -> None:
        """Take the wall clock's present time as trusted time."""
        self._since = self._steady_since = self._clock.monotonic()
        self._trusted_ms = self._clock.now_ms()
        self._noted_ahead_ms = 0

    def now_ms(self) -> int:
        """Return the time by which messages expire: never ahead of the wall clock."""
        self.look()
        return self._careful_ms()

    def caution(self) -> str | None:
        """Return a sentence on why `now_ms` differs from the wall clock; `None` if it does not."""
        now_ms = self.now_ms()
        if self.ahead_ms <= self._step_max_ms:
            return None
        left_ms = self._settle_ms - self._ms_since(self._steady_since)
        return (
            f"The clock is {_span(self.ahead_ms)} ahead of the time that the broker counted "
            f"itself, so retention by time is at {format_time(now_ms)}; a clock that keeps steady "
            f"for another {_span(left_ms)} is believed (clock.settle.ms)."
        )

    def _careful_ms(self) -> int:
        return min(self._clock.now_ms(), self.trusted_ms + self._step_max_ms)

    def _note_step(self, ahead_ms: int, when: str) -> None:
        step_ms = ahead_ms - self._noted_ahead_ms
        if abs(step_ms) <= self._step_max_ms:
            return
        self._noted_ahead_ms = ahead_ms
        self._steady_since = self._clock.monotonic()
        # A clock ahead at the start may not have stepped: how long the broker was stopped is not
        # known.
        self._observe(
            "clock_ahead_of_last_use" if when and step_ms > 0 else "clock_stepped",
            direction=("forward" if step_ms > 0 else "back") + when,
            step=_span(step_ms),
            ahead=_span(ahead_ms),
            retention_at=format_time(self._careful_ms()),
        )

    def _ms_since(self, monotonic: float) -> int:
        return round((self._clock.monotonic() - monotonic) * 1000)


def _span(ms: int) -> str:
    """Format a length of time: `-1:00:00`, `3 days, 2:00:00`."""
    try:
        text = str(timedelta(seconds=round(abs(ms) / 1000)))
    except OverflowError:
        return f"{ms} ms"
    return f"-{text}" if ms < 0 else text
