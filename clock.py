"""The clock seam: everything that needs the time is handed a `Clock`."""

import time
from time import time_ns
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

    @staticmethod
    def now_ms() -> int:
        return time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
