"""Waiting for a state of a broker in the same loop, without guessing how long that takes."""

import asyncio
from collections.abc import Callable
from typing import Final

_TURNS: Final = 100
"""After so many turns of the loop what is waited for takes time, and others need the processor."""

_PAUSE_S: Final = 0.001


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until `condition` holds. A test's own timeout ends a wait for ever."""
    turns = 0
    while not condition():
        await asyncio.sleep(0 if turns < _TURNS else _PAUSE_S)
        turns += 1
