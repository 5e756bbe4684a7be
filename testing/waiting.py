"""Waits for a state of a broker, without guessing how long it takes."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ..clock import SystemClock

T = TypeVar("T")

_TURNS: Final = 100
"""After this many turns of the loop, the awaited state takes real time, and other tasks need the
processor."""

_PAUSE_S: Final = 0.001

_LOOK_SECONDS: Final = 0.05


async def until(condition: Callable[[], object]) -> None:
    """Run the event loop until `condition` holds, for a broker in the same loop. There is no
    deadline but the test's own timeout."""
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
    """Block until `condition` holds, and return its result. For a state of another process or
    thread, which sends no event to this one.

    Raises TimeoutError with the result of `state` after `within_s`, which is far longer than
    needed.
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


def content_of(path: Path) -> bytes | None:
    """Return the content of a file that a broker may create or replace meanwhile; `None` if there
    is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
