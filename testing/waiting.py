"""Waiting for a state of a broker in the same loop, without guessing how long that takes."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until `condition` holds. A test's own timeout ends a wait for ever."""
    while not condition():  # noqa: ASYNC110  (what is waited for is not ours to set an event)
        await asyncio.sleep(0)
