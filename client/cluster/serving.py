"""Sending a request to the responsible broker, which may change meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

from ...protocol.api.schema import Api
from ...protocol.errors import (
    CodedError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
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
from .retry import Backoff
from .targets import CoordinatorNode, PartitionLeader, Some, Target

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

T = TypeVar("T")


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
    connection: ClientConnection, *, api: Api, body: object, wait_ms: int
) -> object:
    """Send a request, and close the connection if it does not answer in time."""
    try:
        return await connection.submit(api, body, wait_ms=wait_ms)
    except RequestTimedOut:
        connection.abort(STOPPED)
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
