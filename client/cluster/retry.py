"""Repeating requests: how long to wait, which errors are worth it, and which errors say that
another broker serves the request."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

from ...protocol.api.schema import Api
from ...protocol.errors import (
    CodedError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
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
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    error_from_code,
)
from ..errors import ConnectionFailed
from .connection import ClientConnection
from .targets import CoordinatorNode, PartitionLeader, Some, Target

FIRST_MS: Final = 50
"""First wait in milliseconds: short, so that a restart of the broker costs little more than the
restart itself."""
LONGEST_MS: Final = 2_000
"""Longest wait in milliseconds: long enough that a thousand waiting clients do not keep a broker
from starting."""

_chance: Final = random.Random()
"""Shared generator: creating one takes longer than the request that may need it."""

T = TypeVar("T")

Send = Callable[[ClientConnection, Any], Awaitable[Any]]
"""Sends one request body over a connection and returns the response."""

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

MOVED: Final = (
    LeaderNotAvailable,
    NotLeader,
    ReplicaNotAvailable,
    StorageError,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    OffsetNotAvailable,
)
"""Errors of a partition after which its leader is searched for again."""

_LEADER_CODES: Final = frozenset(
    (UnknownTopicOrPartition.code, NotEnoughReplicas.code, *(error.code for error in MOVED))
)
_COORDINATOR_CODES: Final = frozenset(
    (CoordinatorLoading.code, CoordinatorNotAvailable.code, NotCoordinator.code)
)
_CONTROLLER_CODES: Final = frozenset((NotController.code,))

NOT_IN_CHARGE: Final = (NotLeader, FencedLeaderEpoch, NotCoordinator, NotController)
"""Errors of a broker that led all partitions and now follows."""

NOT_READABLE: Final = (*NOT_IN_CHARGE, ReplicaNotAvailable, OffsetNotAvailable, StorageError)
"""Errors of a broker from which nothing can be read now, but perhaps from another one."""


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


async def serve(
    api: Api,
    send: Callable[[ClientConnection], Awaitable[T]],
    *,
    connection: Callable[[], Awaitable[ClientConnection]],
    not_yet: tuple[type[Exception], ...],
    lost: Callable[[], None],
    moved: Callable[[ClientConnection, T], CodedError | None],
    timeout_ms: int,
    again: bool = True,
) -> T:
    """Send a request to the responsible broker until one serves it.

    `connection` connects to that broker and raises errors of `not_yet` when waiting may help.
    `lost` is called after a broken connection or a timeout. `moved` returns the error in an answer
    which says that another broker is responsible, after it has started the search for that broker.
    The request is then sent again, unless `again` is False; after a broken connection only if the
    request is `repeatable` too.

    Raises the last error when `timeout_ms` is over.
    """
    end = asyncio.get_running_loop().time() + timeout_ms / 1000
    backoff = Backoff()
    while True:
        try:
            found = await connection()
        except not_yet as error:
            await pause(backoff, end, error)
            continue
        try:
            answer = await send(found)
        except ConnectionFailed as error:
            lost()
            if not (api.repeatable and again):
                raise
            await pause(backoff, end, error)
            continue
        except RequestTimedOut:
            lost()
            raise
        failure = moved(found, answer)
        if failure is None or not again:
            return answer
        await pause(backoff, end, failure)


async def submit_or_drop(
    connection: ClientConnection, body: object, *, api: Api, wait_ms: int
) -> Any:
    """Send a request, and close the connection if it does not answer in time."""
    try:
        return await connection.submit(api, body, wait_ms=wait_ms)
    except RequestTimedOut:
        connection.abort(STOPPED, lost=True)
        raise


STOPPED: Final = "it had stopped answering"


async def pause(backoff: Backoff, end: float, failure: Exception | None = None) -> None:
    """Wait a little longer than last time. Raises the failure (default LeaderNotAvailable) if the
    wait would pass `end`."""
    wait_s = backoff.next_s()
    if asyncio.get_running_loop().time() + wait_s > end:
        raise failure or LeaderNotAvailable()
    await asyncio.sleep(wait_s)


def moved(answer: Any, to: Target) -> CodedError | None:
    """Return the error in a response which says that the broker is not responsible for this target,
    or not ready; None if there is none."""
    match to:
        case PartitionLeader():
            wrong = _LEADER_CODES
        case CoordinatorNode():
            wrong = _COORDINATOR_CODES
        case Some.CONTROLLER:
            wrong = _CONTROLLER_CODES
        case _:
            return None
    return first_error(answer, wrong)


def codes_of(errors: tuple[type[CodedError], ...]) -> frozenset[int]:
    """Return the codes of error classes, for `first_error`."""
    return frozenset(error.code for error in errors)


def first_error(answer: Any, wanted: frozenset[int]) -> CodedError | None:
    """Return the first of these errors in a response, or in a list of responses; None if there is
    none."""
    for response in answer if isinstance(answer, list) else [answer]:
        for code in _codes(response):
            if code in wanted:
                return error_from_code(code)
    return None


def _codes(response: Any) -> Iterator[int]:
    """Yield all error codes in a response."""
    yield getattr(response, "error_code", 0)
    for name in ("topics", "groups", "responses", "results"):
        for item in getattr(response, name, ()):
            yield getattr(item, "error_code", 0)
            for partition in getattr(item, "partitions", ()):
                yield partition.error_code
