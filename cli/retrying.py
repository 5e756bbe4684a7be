"""Reading while the broker may go away: it is waited for, and the user is told."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ..client.cluster.retry import UNREACHABLE, retry
from .streams import note

FOLLOW_WAIT_MS: Final = 10_000
"""How long a fetch waits at the broker for new messages; they are sent as soon as there are any."""

_RETRY_TIMEOUT_MS: Final = 120_000

T = TypeVar("T")


class Connected:
    """Asks again while the broker is away."""

    def __init__(self) -> None:
        self._lost = False
        """Whether it was reported that the connection is, and not yet that it is back."""

    async def ask(self, question: Callable[[bool], Awaitable[T]]) -> T:
        """The answer to a question, which is told whether the connection was lost before it."""
        return await retry(
            lambda: self._try(question), timeout_ms=_RETRY_TIMEOUT_MS, setting="retry_timeout_ms"
        )

    async def _try(self, question: Callable[[bool], Awaitable[T]]) -> T:
        try:
            answer = await question(self._lost)
        except UNREACHABLE as error:
            if not self._lost:
                note(f"{error}. Trying again for up to {_RETRY_TIMEOUT_MS // 1000} s")
            self._lost = True
            raise
        if self._lost:
            note("connected again")
        self._lost = False
        return answer
