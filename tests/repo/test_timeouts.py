"""A test that takes too long ends, also while an event loop waits."""

import asyncio
import signal
from collections.abc import Callable

import pytest
import uvloop


@pytest.mark.timeout(60)
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_timeout_ends_a_loop(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def wait() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.1)  # the timer that ends tests, now that it waits
        await asyncio.Event().wait()

    loop = new_loop()
    try:
        with pytest.raises(pytest.fail.Exception, match=r"Timeout \(>60\.0s\)"):
            loop.run_until_complete(wait())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
