"""Clocks for tests: one that a test moves by hand, and one that goes on by itself and that a test
steps, freezes, sets and speeds up."""

import math
from datetime import datetime, timedelta
from numbers import Real
from typing import Final, NamedTuple

from ..clock import Clock, SystemClock
from ..times import check_unit, parse_time

SPEED_MAX: Final = 1_000_000
"""Highest speed of a clock: eleven days pass in a second."""

MAX_CLOCK_MS: Final = 10**14
"""Latest time of a clock, in epoch milliseconds: the largest that is read as such."""

_READINGS_MAX: Final = 100
_READ_TOGETHER_SECONDS: Final = 0.001

Instant = datetime | int | str
"""A time: a datetime with a zone, epoch milliseconds, or text such as `2016-11-14T17:24:32Z` and
`@-1h`, which counts from the clock's time."""


def check_number(name: str, value: float) -> None:
    """Raise `TypeError` for an argument that is no number; a `timedelta` is none."""
    if not isinstance(value, Real):
        hint = "; a timedelta has total_seconds()" if isinstance(value, timedelta) else ""
        raise TypeError(f"{name} {value!r}: it must be a number{hint}")


def _check_moved(wall_ms: float, seconds: float) -> None:
    """Raise `ValueError` for a move beyond the times of messages."""
    check_number("seconds", seconds)
    moved_ms = wall_ms + 1000 * seconds
    if not 0 <= moved_ms <= MAX_CLOCK_MS:  # false for nan, too
        raise ValueError(
            f"{seconds} seconds: the clock shows {wall_ms:.0f} ms, and may be moved to times from "
            f"0 to {MAX_CLOCK_MS} ms since 1970"
        )


class _Shown(NamedTuple):
    """The clock's reading at one time. Replaced as a whole, because other threads read it."""

    wall_ms: float
    passed_seconds: float
    since: float | None
    """Time of the reading, on the real clock; `None` while the clock is frozen."""
    speed: float = 1.0
    """Seconds of the clock in a second of the real clock."""


class ClockOffset(NamedTuple):
    """How a clock differs from the machine's, to be given back to it by `MovingClock.take`."""

    ahead_ms: float
    """How far the clock is ahead of the machine's, for a clock that runs."""
    frozen_at_ms: float | None
    """The time at which the clock stands still; `None` for a clock that runs."""
    speed: float


class ClockWatcher:
    """Is told when a test moves a clock: a broker, whose tasks follow the clock."""

    def time_passed(self, seconds: float) -> None:
        """Have every task run that became due because `seconds` passed at once."""

    def was_set(self) -> None:
        """Take the clock's time as true, although it went back."""

    def speed_changed(self, speed: float) -> None:
        """Follow a clock that runs at `speed` from now on; 0 for one that stands still."""


class MovingClock:
    """The clock of a broker in a test. Implements `horolog.clock.Clock`; any thread may read it.

    It starts at the machine's time and runs with it, until it is frozen, moved or sped up.
    """

    def __init__(self, real: Clock | None = None) -> None:
        self._real = real or SystemClock()
        real_ms, now = self._read_real()
        self._shown = _Shown(real_ms, now, now)
        self.watchers: list[ClockWatcher] = []
        """The running brokers that follow this clock."""
        self.error_ms = 0.0
        """By how much `jump` has set the clock wrong, in all."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._look().wall_ms)

    def monotonic(self) -> float:
        """Seconds, which never go back."""
        return self._look().passed_seconds

    @property
    def speed(self) -> float:
        """Seconds of this clock in a second of the real clock; 0 while it is frozen."""
        shown = self._shown
        return 0.0 if shown.since is None else shown.speed

    def step(self, seconds: float) -> None:
        """Let time pass: the wall clock and the monotonic clock go forward at once.

        Returns when every background task of the broker that became due has run once; retention and
        the expiry of groups are checked in any case. Negative `seconds` act like `jump`: no time
        passes, so nothing becomes due. Raises `ValueError` beyond the times of messages.
        """
        check_number("seconds", seconds)
        if seconds < 0:
            self.jump(seconds)
            return
        shown = self._look()
        _check_moved(shown.wall_ms, seconds)
        self._shown = shown._replace(
            wall_ms=shown.wall_ms + 1000 * seconds, passed_seconds=shown.passed_seconds + seconds
        )
        for watcher in list(self.watchers):
            watcher.time_passed(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock wrong, forward, or back if negative, without time passing. Raises
        `ValueError` beyond the times of messages."""
        self._move_wall(seconds)
        self.error_ms += 1000 * seconds

    def set(self, time: Instant) -> None:
        """Set the clock to `time`. Up to a later time, time passes, as in `step`; an earlier one is
        believed at once. Raises `ValueError`, `TimeError`."""
        ahead_ms = instant_ms(time, self.now_ms()) - self._look().wall_ms
        if ahead_ms >= 0:
            self.step(ahead_ms / 1000)
            return
        self._move_wall(ahead_ms / 1000)
        for watcher in list(self.watchers):
            watcher.was_set()

    def _move_wall(self, seconds: float) -> None:
        shown = self._look()
        _check_moved(shown.wall_ms, seconds)
        self._shown = shown._replace(wall_ms=shown.wall_ms + 1000 * seconds)

    def freeze(self) -> None:
        """Stop the clock; `step`, `jump` and `set` still move it."""
        self._shown = self._look()._replace(since=None, speed=1.0)
        self._tell_speed()

    def unfreeze(self) -> None:
        """Let the clock run again, from the time that it shows, at the pace of the real clock."""
        self.run()

    def run(self, speed: float = 1.0) -> None:
        """Let the clock run `speed` times as fast as the real clock, from the time that it shows.
        Raises `ValueError`."""
        check_number("speed", speed)
        if not (math.isfinite(speed) and 0 < speed <= SPEED_MAX):
            raise ValueError(
                f"speed {speed}: it must be above 0 and at most {SPEED_MAX}; freeze() stops the "
                "clock"
            )
        self._shown = self._look()._replace(since=self._real.monotonic(), speed=speed)
        self._tell_speed()

    def offset(self) -> ClockOffset:
        """Return how the clock differs from the machine's now."""
        real_ms, now = self._read_real()
        shown = self._look_at(now)
        frozen_at_ms = shown.wall_ms if shown.since is None else None
        ahead_ms = round(shown.wall_ms - real_ms, -1)  # The two are not read at once.
        return ClockOffset(ahead_ms, frozen_at_ms, shown.speed)

    def take(self, offset: ClockOffset) -> None:
        """Differ from the machine's clock as `offset` says. No time passes, and no broker is told,
        except about the speed."""
        real_ms, now = self._read_real()
        passed = self._look_at(now).passed_seconds
        if offset.frozen_at_ms is not None:
            self._shown = _Shown(offset.frozen_at_ms, passed, None)
        else:
            wall_ms = real_ms + offset.ahead_ms
            self._shown = _Shown(wall_ms, passed, now, offset.speed)
        self._tell_speed()

    def _tell_speed(self) -> None:
        for watcher in list(self.watchers):
            watcher.speed_changed(self.speed)

    def _read_real(self) -> tuple[int, float]:
        """The machine's wall clock and its monotonic clock, in the same millisecond: the process
        may stand still in between, and they are read again then."""
        for _ in range(_READINGS_MAX):
            now = self._real.monotonic()
            real_ms = self._real.now_ms()
            if self._real.monotonic() - now < _READ_TOGETHER_SECONDS:
                break
        return real_ms, now

    def _look(self) -> _Shown:
        return self._look_at(self._real.monotonic())

    def _look_at(self, now: float) -> _Shown:
        """The clock's reading at a time of the real clock."""
        shown = self._shown
        if shown.since is None:
            return shown
        seconds = (now - shown.since) * shown.speed
        return _Shown(
            shown.wall_ms + 1000 * seconds, shown.passed_seconds + seconds, now, shown.speed
        )


def instant_ms(time: Instant, now_ms: int) -> int:
    """Return a time in epoch milliseconds; texts such as `@-1h` count from `now_ms`.

    Raises `TypeError` for what is none of these, `ValueError` for a datetime without a zone,
    `TimeError` for a text that is no time and for a number that looks like seconds.
    """
    if isinstance(time, str):
        return parse_time(time, now_ms)
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(f"{time!r} has no zone: give it one, such as tzinfo=UTC")
        return round(time.timestamp() * 1000)
    if not isinstance(time, Real):
        raise TypeError(
            f"time {time!r}: it must be a datetime with a zone, epoch milliseconds, or a text such "
            "as '2016-11-14T17:24:32Z'"
        )
    return check_unit(time)


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
