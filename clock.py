"""The clock seam: code that needs the time gets a `Clock` as an argument."""

import time
from time import time_ns
from typing import Protocol


class Clock(Protocol):
    """Source of wall and monotonic time. Tests pass a clock that they can set."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's own clocks."""

    @staticmethod
    def now_ms() -> int:
        return time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)


_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Id of a clock that goes on while the machine is suspended, as other machines' clocks do."""


def boot_time_s() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(_BOOT_TIME)
