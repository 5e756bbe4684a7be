"""How late the event loop is: what keeps it busy keeps every client waiting."""

import asyncio
from typing import Final

from .figures import Spread

INTERVAL_SECONDS: Final = 0.5
"""Between two looks. A stall longer than this is always seen; what a look costs is not to be."""


class LoopLag:
    """Has itself called at regular times, and counts how much later than that it was."""

    def __init__(self, loop: asyncio.AbstractEventLoop, spread: Spread) -> None:
        self._loop = loop
        self._spread = spread
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._look_at(self._loop.time() + INTERVAL_SECONDS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_at(self, due: float) -> None:
        self._timer = self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        now = self._loop.time()
        self._spread.add(max(now - due, 0.0))
        self._look_at(now + INTERVAL_SECONDS)
