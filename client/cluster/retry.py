"""Trying again what a restart of the broker, or a full disk, made fail."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ...protocol.cluster_errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotController,
    NotEnoughReplicas,
    NotLeader,
    OffsetNotAvailable,
    ReplicaNotAvailable,
)
from ...protocol.errors import (
    HorologError,
    LeaderNotAvailable,
    NotCoordinator,
    RequestTimedOut,
    StorageError,
)
from ..errors import ConnectionFailed
from .backoff import Backoff

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
