"""How far a consumer is behind the end of a partition: in messages, in seconds, and in time to
catch up.

Lag in seconds is the age of the first message that was not consumed: by its append time where that
is known, else by its create time, which makes it an estimate. At the log end it is 0; without a
known time there is none. The time to catch up is lag / (consumed - appended per second over the
last minute); there is none while the lag does not shrink.
"""

from collections import deque
from typing import Final

from ..values import value_class

WINDOW_SECONDS: Final = 60.0
"""Rates are those of the last minute, or of the time since the first sample if that is shorter."""

STEP_SECONDS: Final = 5.0
"""Distance between samples, so that a dozen are kept however often a position is recorded."""

SHORTEST_SECONDS: Final = 1.0
"""Over less time than this no rate is computed."""


@value_class
class Lag:
    """How far a position is behind the end of its partition."""

    messages: int
    """Number of messages from the position to the end that consumers can read."""
    seconds: float | None
    """0.0 at the end; `None` if no time is known."""
    estimated: bool = False
    """Whether `seconds` is based on a create time, which is not when the message arrived."""
    catch_up_seconds: float | None = None
    """Time to reach the end at the pace of the last minute; `None` while the lag does not shrink or
    the pace is unknown."""


def lag_seconds(now_ms: int, first_ms: int | None) -> float | None:
    """Seconds since the first message that was not consumed arrived; never below 0."""
    return None if first_ms is None else max(now_ms - first_ms, 0) / 1000


class Pace:
    """How fast a consumer and the end of its partition moved in the last minute."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque()

    def note(self, now: float, position: int, end_offset: int) -> None:
        """Record that the consumer is at `position` and the end of its partition at `end_offset`.

        `now` is in seconds on a monotonic clock. A position that moved back starts the record anew.
        """
        samples = self._samples
        if samples and position < samples[-1][1]:
            samples.clear()
        if not samples or now - samples[-1][0] >= STEP_SECONDS:
            samples.append((now, position, end_offset))
        while len(samples) > 1 and now - samples[1][0] >= WINDOW_SECONDS:
            samples.popleft()

    def catch_up_seconds(self, now: float, position: int, end_offset: int) -> float | None:
        """Return the seconds until `position` reaches the end, if both move on as in the last
        minute."""
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
