"""Bounds of a time window."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, get_args

from ...protocol.records.layout import NO_TIMESTAMP
from ...times import INT64_MAX, format_time
from ...values import value_class
from ..arguments import moment_ms

WindowBy = Literal["create", "append"]
"""The time of a message that the window compares: its timestamp as stored, or its append time."""

CREATE: Final = "create"
APPEND: Final = "append"


@value_class
class TimeBounds:
    """Times from `from_ms` up to, excluding, `until_ms`; None is no bound."""

    from_ms: int | None
    until_ms: int | None
    by: WindowBy = CREATE

    @property
    def is_empty(self) -> bool:
        """Whether the window contains no time."""
        return self.until_ms is not None and self.until_ms <= (self.from_ms or 0)

    def holds(self, time_ms: int | None) -> bool:
        """Whether a message with this time is in the window. A message without a time never is."""
        if time_ms is None or time_ms < (self.from_ms or 0):
            return False
        return self.until_ms is None or time_ms < self.until_ms

    def rows(self, times_ms: Sequence[int]) -> list[int]:
        """Return the indexes of the times inside the window; -1 is no time."""
        first_ms = self.from_ms or 0
        last_ms = INT64_MAX if self.until_ms is None else self.until_ms - 1
        return [row for row, time_ms in enumerate(times_ms) if first_ms <= time_ms <= last_ms]

    @property
    def request_fields(self) -> tuple[int, int, str]:
        """Fields `window_from_ms`, `window_until_ms` and `window_by` of a fetch request."""
        return (
            NO_TIMESTAMP if self.from_ms is None else self.from_ms,
            NO_TIMESTAMP if self.until_ms is None else self.until_ms,
            APPEND if self.by == APPEND else "",
        )


def time_bounds(
    start: datetime | int | None, end: datetime | int | None, by: str, *, check_units: bool
) -> TimeBounds:
    """Return the window that a program asks for.

    Raises TypeError and `TimeError` for an invalid time, ValueError for an end before the start and
    for an unknown `by`.
    """
    if by not in get_args(WindowBy):
        raise ValueError(f"a window goes by {CREATE!r} or {APPEND!r}, not {by!r}")
    from_ms = moment_ms(start, "start", check_units=check_units)
    until_ms = moment_ms(end, "end", check_units=check_units)
    if from_ms is not None and until_ms is not None and until_ms < from_ms:
        raise ValueError(
            f"the window ends at {format_time(until_ms)} ({until_ms}), before it starts at "
            f"{format_time(from_ms)} ({from_ms}): end has to be start or later"
        )
    return TimeBounds(from_ms, until_ms, APPEND if by == APPEND else CREATE)


def length_ms(follow: timedelta) -> int:
    """Return how long a window is followed in milliseconds. Raises TypeError, ValueError."""
    if not isinstance(follow, timedelta):
        raise TypeError(f"follow is a timedelta, not {type(follow).__name__}")
    if follow < timedelta(0):
        raise ValueError(f"follow is a length of time from 0 on, not {follow}")
    return follow // timedelta(milliseconds=1)
