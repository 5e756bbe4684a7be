"""Waiting for a state of a broker, without guessing how long that takes."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

from ..clock import SystemClock

T = TypeVar("T")

_TURNS: Final = 100
"""After so many turns of the loop what is waited for takes time, and others need the processor."""

_PAUSE_S: Final = 0.001

_LOOK_SECONDS: Final = 0.05


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until `condition` holds, of a broker in the same loop. A test's own timeout
    ends a wait for ever."""
    turns = 0
    while not condition():
        await asyncio.sleep(0 if turns < _TURNS else _PAUSE_S)
        turns += 1


def wait_until(
    condition: Callable[[], T | None],
    *,
    within_s: float = 60.0,
    state: Callable[[], object] = lambda: "it does not come to be",
) -> T:
    """Block until `condition` holds, of another process or thread, which has no event for us; what
    it returned then.

    Raises TimeoutError with what `state` returns after `within_s`, which is far more than it takes.
    """
    clock = SystemClock()
    until_s = clock.monotonic() + within_s
    while True:
        found = condition()
        if found:
            return found
        if clock.monotonic() > until_s:
            raise TimeoutError(f"not within {within_s:g} s: {state()}")
        time.sleep(_LOOK_SECONDS)
