"""Trying again what may go well the next time, and how long to wait before that."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ...protocol.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    HorologError,
    LeaderNotAvailable,
    NotController,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    OffsetNotAvailable,
    ReplicaNotAvailable,
    RequestTimedOut,
    StorageError,
)
from ..errors import ConnectionFailed

FIRST_MS: Final = 50
"""First wait in milliseconds: short, so that a restart of the broker costs little more than the
restart itself."""
LONGEST_MS: Final = 2_000
"""Longest wait in milliseconds: long enough that a thousand waiting clients do not keep a broker
from starting."""


_chance: Final = random.Random()
"""Shared generator: creating one takes longer than the request that may need it."""

T = TypeVar("T")

_CHANGING: Final = (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    NotController,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    OffsetNotAvailable,
    ReplicaNotAvailable,
)
"""Errors of a cluster while its leader, coordinator or controller changes."""

UNREACHABLE: Final = (ConnectionFailed, RequestTimedOut, *_CHANGING)
"""Errors that a new connection, or another responsible broker, may resolve."""

RETRIABLE: Final = (*UNREACHABLE, StorageError)
"""The same, and errors from which a broker may recover by itself, such as a full disk."""


class Backoff:
    """Waits that double from `first_ms` to `longest_ms`, each shortened at random by up to half.

    The randomness spreads clients that lost the same broker at the same moment.
    """

    def __init__(
        self,
        first_ms: int = FIRST_MS,
        longest_ms: int = LONGEST_MS,
        *,
        chance: random.Random | None = None,
    ) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._chance = chance or _chance
        self._failures = 0

    def next_s(self) -> float:
        """Return the seconds to wait after another failure."""
        whole_ms: float = min(self._first_ms * 2 ** min(self._failures, 30), self._longest_ms)
        self._failures += 1
        return whole_ms * self._chance.uniform(0.5, 1) / 1000

    def reset(self) -> None:
        """Start again with the shortest wait, after a success."""
        self._failures = 0


async def retry(
    attempt: Callable[[], Awaitable[T]],
    *,
    timeout_ms: int,
    setting: str,
    until: float | None = None,
    retriable: tuple[type[Exception], ...] = UNREACHABLE,
    failure: Callable[[], Exception | None] = lambda: None,
    unanswered: str = "and it may be done all the same",
) -> T:
    """Return the result of `attempt`, which is repeated with growing waits after a retriable error.

    Attempts go on for `timeout_ms` (the value of `setting`; 0: one attempt) after the first
    failure. With `until`, a time on the event loop's clock, they end then, including an attempt in
    progress.

    Raises the last error, with a note that attempts were given up. When an attempt is cut off at
    `until`, the error that `failure` returns counts as the last one. If there was no error at all,
    raises RequestTimedOut with the text `unanswered`.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff()
    end = until
    last: Exception | None = None
    while True:
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                return await attempt()
        except retriable as error:
            if not timeout_ms:
                raise
            last = error
            if end is None:
                end = loop.time() + timeout_ms / 1000
            wait_s = backoff.next_s()
            if loop.time() + wait_s > end:
                raise _given_up(error, f"given up after {setting}={timeout_ms}") from error
        except TimeoutError:
            if not limit.expired():
                raise
            last = failure() or last
            if last is not None:
                raise _given_up(last, f"given up after {setting}={timeout_ms}") from last
            raise RequestTimedOut(
                f"no answer within {setting}={timeout_ms}, {unanswered}"
            ) from None
        await asyncio.sleep(wait_s)


def _given_up(error: Exception, note: str) -> Exception:
    """Return a copy of the error with the note in its message."""
    text = error.message if isinstance(error, HorologError) else str(error)
    return type(error)(f"{text}; {note}")
