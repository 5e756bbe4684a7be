"""The brokers with the same topics that a client may read from, and what it has seen there."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from ...protocol.errors import HorologError
from ..errors import ConnectionFailed
from .connection import ClientConnection

AVOIDED_S: Final = 5.0
"""A broker that was of no use is not asked for so long, if there is another one."""

_STAGGER_S: Final = 0.5
"""A broker that has not let the client in after so long is not waited for alone."""

TopicPartition = tuple[str, int]


class Replicas:
    """Which brokers there are, and which of them to ask. Shared by the connections of a client."""

    def __init__(self, addresses: Iterable[str], *, chance: random.Random | None = None) -> None:
        self._avoided_until = dict.fromkeys(addresses, 0.0)
        self._chance = chance or random.Random()
        self.seen: dict[TopicPartition, int] = {}
        """The largest high watermark of each partition that the client has got: what it saw
        below that is not to be gone again because it asks another broker."""

    def learn(self, addresses: Iterable[str]) -> None:
        """A broker knows of these."""
        for address in addresses:
            self._avoided_until.setdefault(address, 0.0)

    def avoid(self, address: str, now_s: float) -> None:
        """This one was of no use."""
        self._avoided_until[address] = now_s + AVOIDED_S

    def has_other(self, address: str, now_s: float) -> bool:
        """Whether there is another one that may be of use."""
        return any(
            until <= now_s for other, until in self._avoided_until.items() if other != address
        )

    def in_order(self, now_s: float) -> list[str]:
        """All of them: by chance, so that many clients spread, and those to be avoided last."""
        addresses = list(self._avoided_until)
        self._chance.shuffle(addresses)
        return sorted(addresses, key=lambda one: max(self._avoided_until[one], now_s))


async def connect_to_first(
    addresses: Sequence[str],
    reach: Callable[[str], Awaitable[ClientConnection]],
    failed: Callable[[str], None],
) -> ClientConnection:
    """A connection to the first of these that lets the client in. A slow one delays the next
    by `_STAGGER_S` only; `failed` is called with each that does not let the client in.

    Raises ConnectionFailed, and what kept the client from being let in when that is why.
    """
    waiting = deque(addresses)
    asked: dict[asyncio.Future[ClientConnection], str] = {}
    failures: list[HorologError] = []
    try:
        while waiting or asked:
            if waiting:
                address = waiting.popleft()
                asked[asyncio.ensure_future(reach(address))] = address
            ended, _ = await asyncio.wait(
                asked,
                timeout=_STAGGER_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not ended:
                continue
            answer = ended.pop()
            address = asked.pop(answer)
            try:
                return answer.result()
            except HorologError as error:
                failed(address)
                failures.append(error)
    finally:
        await _drop(list(asked))
    for failure in failures:
        if not isinstance(failure, ConnectionFailed):
            raise failure
    reasons = "; ".join(failure.message for failure in failures)
    raise ConnectionFailed(f"no broker at {','.join(addresses)} can be reached: {reasons}")


async def _drop(asked: "list[asyncio.Future[ClientConnection]]") -> None:
    """End attempts that are of no interest any more."""
    for answer in asked:
        answer.cancel()
    for result in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(result, ClientConnection):
            result.abort()
