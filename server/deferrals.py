"""Work that is put off until the answers of a turn of the event loop are on their way.

A connection sends its answers at the end of a turn. Deferred steps run after that, and before later
requests are handled. So updating metrics there delays no answer, and a client that reads the
metrics finds its own request in them. The arguments of a step live until the step is done, so that
freeing them delays no answer either.
"""

from collections import deque
from collections.abc import Callable
from typing import Any


class Deferrals:
    """Deferred steps, run in the order in which they were added."""

    __slots__ = ("_call_soon", "_steps")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._steps: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def add(self, step: Callable[..., None], *arguments: Any) -> None:
        """Defer `step(*arguments)`."""
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
