"""What is done once the answers of a turn of the event loop are on their way: nobody waits for it.

What is answered in a turn is sent at its end, and callbacks that were asked for in it run behind
that, before anything that comes later is heard. What is counted there delays no answer, and whoever
reads the counts does so later still. What is given to a step lives until the step is done, so that
freeing it delays none either.
"""

from collections import deque
from collections.abc import Callable
from typing import Any


class Afterwards:
    """Steps, done in their order."""

    __slots__ = ("_call_soon", "_steps")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._steps: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def add(self, step: Callable[..., None], *arguments: Any) -> None:
        """Have `step(*arguments)` done."""
        if not self._steps:
            self._call_soon(self._run)
        self._steps.append((step, arguments))

    def _run(self) -> None:
        steps = self._steps
        try:
            while steps:
                step, arguments = steps.popleft()
                step(*arguments)
        finally:
            if steps:  # one of them failed
                self._call_soon(self._run)
