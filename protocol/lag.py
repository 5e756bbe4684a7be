"""How far a reader is behind the end of a partition: in messages, in seconds, and for how long yet.

Lag in seconds is how long ago the first message that was not consumed came: by its append time
where that is known, else by its create time, which makes it an estimate. At the end of the log it
is 0; where no time is known there is none. The time to catch up is lag / (consumed - appended per
second over the last minute); there is none while the lag does not shrink.
"""

from collections import deque
from typing import Final

from ..values import value_class

WINDOW_SECONDS: Final = 60.0
"""Rates are those of the last minute, or of the time since the first sample when that is less."""

STEP_SECONDS: Final = 5.0
"""Samples are kept this far apart: a dozen of them, however often a pace is noted."""

SHORTEST_SECONDS: Final = 1.0
"""Of less than this no rate is made."""


@value_class
class Lag:
    """How far behind a position is."""

    messages: int
    """How many messages are stored from the position to the end that readers see."""
    seconds: float | None
    """0.0 at the end; None when no time is known."""
    estimated: bool = False
    """Whether `seconds` goes by a create time, which is not when the message arrived."""
    catch_up_seconds: float | None = None
    """How long it takes to reach the end at the pace of the last minute; None while the lag does
    not shrink, or while the pace is not known yet."""


def lag_seconds(now_ms: int, first_ms: int | None) -> float | None:
    """Seconds since the first message that was not consumed came; never below 0."""
    return None if first_ms is None else max(now_ms - first_ms, 0) / 1000


class Pace:
    """How fast a reader moves, and the end of its partition, in the last minute."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque()

    def note(self, now: float, position: int, end_offset: int) -> None:
        """The reader is at `position` and the end of its partition at `end_offset`.

        `now` is in seconds on a monotonic clock. A position that moved back begins anew.
        """
        samples = self._samples
        if samples and position < samples[-1][1]:
            samples.clear()
        if not samples or now - samples[-1][0] >= STEP_SECONDS:
            samples.append((now, position, end_offset))
        while len(samples) > 1 and now - samples[1][0] >= WINDOW_SECONDS:
            samples.popleft()

    def catch_up_seconds(self, now: float, position: int, end_offset: int) -> float | None:
        """How long until `position` reaches the end, if both go on as in the last minute."""
        lag = end_offset - position
        if lag <= 0:
            return 0.0
        base = None
        for sample in self._samples:
            if base is None or now - sample[0] >= WINDOW_SECONDS:
                base = sample
        if base is None or now - base[0] < SHORTEST_SECONDS:
            return None
        consumed, appended = position - base[1], end_offset - base[2]
        if consumed <= appended:
            return None
        return lag * (now - base[0]) / (consumed - appended)
