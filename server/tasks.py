"""Supervised background tasks: a failing pass is logged, counted and tried again."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ..storage.events import Observer

FIRST_RETRY_MS = 1_000
"""Wait after the first failed pass; it doubles with each further one up to the task's interval."""


_ROUNDING_S = 1e-4
"""Intervals are whole milliseconds; sums and differences of seconds are off by far less."""


class PeriodicTask:
    """Calls `run` every `interval_ms` until stopped.

    An exception of `run` never ends the task. Passes never overlap.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], Awaitable[None]],
        *,
        interval_ms: int,
        observe: Observer,
    ) -> None:
        self.name = name
        self._run = run
        self._interval_ms = interval_ms
        self._delay_ms = interval_ms
        self._observe = observe
        self._failures = 0
        self._wait: asyncio.Timeout | None = None
        """The wait for the next pass; `None` during a pass."""
        self._asked = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    def first_after(self, delay_ms: int) -> None:
        """Run the first pass `delay_ms` after the start instead of after a whole interval."""
        self._delay_ms = delay_ms

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._loop(), name=self.name)

    def soon(self) -> None:
        """Run a pass now instead of when the interval is over."""
        self._asked.set()

    def time_passed(self, seconds: float) -> bool:
        """Take `seconds` as over that the loop did not see pass, because a test moved the clock.

        Whether a pass is due now, which is for the caller to run.
        """
        wait = self._wait
        if wait is None or wait.expired():
            return seconds * 1000 >= self._delay_ms
        due_at = wait.when()
        assert due_at is not None
        due_at -= seconds
        if due_at - asyncio.get_running_loop().time() < _ROUNDING_S:
            return True
        wait.reschedule(due_at)
        return False

    async def run_now(self) -> None:
        """Run a pass and return when one that began after this call is over, failed or not."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(over)
        self._asked.set()
        await over

    async def stop(self) -> None:
        """Cancel the task and wait until it is gone."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        for over in self._waiters:
            over.cancel()

    async def _loop(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._delay_ms / 1000) as self._wait:
                    await self._asked.wait()
            self._wait = None
            self._asked.clear()
            waiters, self._waiters = self._waiters, []
            try:
                await self._run()
            except Exception as error:
                self._failures += 1
                self._delay_ms = self._retry_ms()
                self._observe(
                    "task_failed",
                    task=self.name,
                    error=error,
                    failures=self._failures,
                    retry_ms=self._delay_ms,
                )
            else:
                self._failures = 0
                self._delay_ms = self._interval_ms
            finally:
                for over in waiters:
                    if not over.done():
                        over.set_result(None)

    def _retry_ms(self) -> int:
        # The exponent is bounded: a task that fails for a year must not compute 2 ** 10 ** 5.
        backoff = FIRST_RETRY_MS * int(2 ** min(self._failures - 1, 16))
        return min(backoff, max(self._interval_ms, FIRST_RETRY_MS))
