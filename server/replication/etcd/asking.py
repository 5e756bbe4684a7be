"""Requests to etcd beside the loop's other work: each kind after the other, in order."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from ....protocol.errors import HorologError

WAITING_MAX: Final = 16
"""More than a state machine wants at a time; older ones are wanted again."""

Request = Callable[[], Awaitable[None]]


class Lane:
    """Runs requests one after the other. Those that waited for too long are left out."""

    def __init__(
        self,
        failed: Callable[[Exception], None],
        now_s: Callable[[], float],
        patience_s: float,
    ) -> None:
        self._failed = failed
        self._now_s = now_s
        self._patience_s = patience_s
        self._waiting: deque[tuple[float, Request]] = deque(maxlen=WAITING_MAX)
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is asked, or is to be."""
        return self._task is not None

    def ask(self, request: Request) -> None:
        """Run it when those before it are done."""
        self._waiting.append((self._now_s(), request))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                asked_s, request = self._waiting.popleft()
                if self._now_s() - asked_s > self._patience_s:
                    continue
                try:
                    await request()
                except (HorologError, OSError) as error:
                    self._failed(error)
        finally:
            self._task = None

    async def drained(self, within_s: float) -> None:
        """Wait until nothing is asked any more, for so long at most; then leave the rest out."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within_s)
        await self.stop()

    async def stop(self) -> None:
        """Leave out what is not done."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
