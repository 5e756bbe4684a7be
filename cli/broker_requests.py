"""Requests of commands to a broker: sent once, or retried while the broker is down."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ..client.administer.admin import Admin
from ..client.client import Client
from ..client.cluster.retry import UNREACHABLE, retry
from ..client.cluster.servers import Servers
from .errors import note

PARTITIONS_AGE_MS: Final = 2_000
"""How often `--follow` looks for new partitions of the topic."""

FOLLOW_WAIT_MS: Final = 10_000
"""How long a fetch waits at the broker for new messages; they are sent as soon as there are any."""

_RETRY_TIMEOUT_MS: Final = 120_000

C = TypeVar("C", bound=Client)
T = TypeVar("T")


def ask(
    client: Callable[[Servers], C], server: Servers, question: Callable[[C], Awaitable[T]]
) -> T:
    """Open a client, return its answer to `question`, and close it."""

    async def run() -> T:
        async with client(server) as opened:
            return await question(opened)

    return asyncio.run(run())


async def partitions_of(admin: Admin, topic: str, partition: int | None) -> range:
    """Return the given partition, without checking that it exists; without one all partitions of
    the topic."""
    if partition is None:
        return range(await admin.partition_count(topic))
    return range(partition, partition + 1)


class Connected:
    """Retries requests while the broker is down, and reports that on standard error."""

    def __init__(self) -> None:
        self._lost = False
        """Whether the loss of the connection was reported, and its return was not yet."""

    async def ask(self, question: Callable[[bool], Awaitable[T]]) -> T:
        """Return the answer to `question`, with retries. Its argument says whether the connection
        was lost in the previous attempt."""
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
