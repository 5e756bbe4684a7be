"""The clock seam: everything that needs the time is handed a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of wall and monotonic time. Tests pass one that they can move."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)


_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while the machine is suspended, as the clocks of other machines do."""


def boot_time_s() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(_BOOT_TIME)
