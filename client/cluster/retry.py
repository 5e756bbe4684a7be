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
"""Short enough that a restart of the broker costs little more than the restart itself."""
LONGEST_MS: Final = 2_000
"""Long enough that a thousand waiting clients do not keep a broker from starting."""


_chance: Final = random.Random()
"""Shared: to make one takes longer than the request that may need it."""

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
"""What a cluster of several brokers answers while it changes who is in charge."""

UNREACHABLE: Final = (ConnectionFailed, RequestTimedOut, *_CHANGING)
"""What may be over when there is a new connection, or another broker in charge."""

RETRIABLE: Final = (*UNREACHABLE, StorageError)
"""As above, and what a broker may get over by itself, as a full disk."""


class Backoff:
    """Waits that double from `first_ms` to `longest_ms`, each shortened at random by up to half.

    The chance keeps clients that lost the same broker at the same moment from coming back at the
    same moment.
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
        """Seconds to wait after one more failure."""
        whole_ms: float = min(self._first_ms * 2 ** min(self._failures, 30), self._longest_ms)
        self._failures += 1
        return whole_ms * self._chance.uniform(0.5, 1) / 1000

    def reset(self) -> None:
        """It worked: the next failure is a first one again."""
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
    """What `attempt` gives. After an error that may pass it is made again, with longer waits.

    That goes on for `timeout_ms` (the value of `setting`; 0: one attempt) after the first failure.
    With `until`, a time of the loop's clock, it ends then, and an attempt that is under way too.
    The last error is raised, and says so. `failure` gives what has failed within an attempt that
    ends so, if anything; else `unanswered` says what that means.
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
    """The error once more, with the note in its text."""
    text = error.message if isinstance(error, HorologError) else str(error)
    return type(error)(f"{text}; {note}")
