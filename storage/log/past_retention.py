"""Messages that are past retention when they are appended: the operator should know."""

from collections.abc import Callable
from typing import Any, Final

from ...clock import Clock
from ...times import format_time

_PAUSE_SECONDS: Final = 3600
"""Between two events of one log: a replay of old data brings many such messages."""


class PastRetention:
    """Tells of them, for one log."""

    __slots__ = ("_clock", "_not_before", "_observe")

    def __init__(self, clock: Clock, observe: Callable[..., Any]) -> None:
        self._clock = clock
        self._observe = observe
        self._not_before = 0.0

    def tell(self, newest_ms: int, retention_ms: int) -> None:
        """A set came whose newest message is past `retention_ms`."""
        moment = self._clock.monotonic()
        if moment < self._not_before:
            return
        self._not_before = moment + _PAUSE_SECONDS
        self._observe(
            "messages_past_retention",
            newest=format_time(newest_ms),
            retention_ms=retention_ms,
            hint="retention deletes them soon; retention.ms=-1 on the topic keeps them, "
            "message.timestamp.before.max.ms refuses such messages",
        )
