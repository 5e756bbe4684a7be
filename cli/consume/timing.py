"""The broker's clock in commands that read windows: whether a window is still to come, and when
following ends."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from ...client.administer.admin import Admin
from ...client.consume.time_bounds import APPEND, TimeBounds
from ...client.errors import ConnectionFailed
from ...clock import Clock
from ...protocol.errors import CodedError
from ...times import format_time
from ..errors import note
from ..output import shown_span

_SOON_MS: Final = 1_000
"""A window that begins within this time is not announced: `--from now` is no time of the future."""

FOR_EVER: Final = timedelta.max
"""Length of following until Ctrl-C."""


class BrokerClock:
    """The clock of a broker: that of this machine and the difference of the two."""

    def __init__(self, clock: Clock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()


async def broker_clock(admin: Admin, clock: Clock) -> Clock:
    """Return the broker's clock. Returns `clock`, that of this machine, at a Kafka cluster, whose
    protocol does not tell the time, and without the right to describe the broker."""
    try:
        described = await admin.describe_broker()
    except (CodedError, ConnectionFailed):
        return clock
    return BrokerClock(clock, described.now_ms - clock.now_ms())


def follow_length(until_ms: int | None, now_ms: int) -> timedelta:
    """Return how long a window is followed after its end.

    A window that ends in the future is followed until then. One that has ended already is followed
    for ever, for late messages.
    """
    if until_ms is not None and until_ms > now_ms:
        return timedelta(0)
    return FOR_EVER


def note_future(
    bounds: Iterable[TimeBounds], now_ms: int, *, follow: bool = False, what: str = "the window"
) -> None:
    """Say of each window that begins in the future when it begins."""
    for one in dict.fromkeys(bounds):
        if one.from_ms is None or one.from_ms - now_ms < _SOON_MS or one.is_empty:
            continue
        text = (
            f"{what} begins at {format_time(one.from_ms)}, "
            f"{shown_span((one.from_ms - now_ms) / 1000)} from now: nothing can be in it yet"
        )
        if one.by != APPEND:
            text += ", except messages with times in the future"
        note(f"{text}; waiting" if follow else text)


def note_ended(bounds: Iterable[TimeBounds], now_ms: int) -> None:
    """Say of each window that is followed and has ended why the command does not end."""
    for until_ms in dict.fromkeys(one.until_ms for one in bounds if not one.is_empty):
        if until_ms is not None and until_ms <= now_ms:
            note(
                f"the window ended at {format_time(until_ms)}: waiting for late messages, until "
                "Ctrl-C"
            )
