"""Taking a request to the broker in charge, while which one that is may change."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ...protocol.api.schema import Api
from ...protocol.errors import CodedError, LeaderNotAvailable, RequestTimedOut
from ..errors import ConnectionFailed
from .backoff import Backoff
from .connection import ClientConnection

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
    """Send to the broker in charge until one serves the request.

    `connection` leads to it; `not_yet` are its errors that pass. `lost` is called with a connection
    that broke. `moved` gives the error of an answer that says that another broker is in charge,
    after it has seen to it that the other one is looked for; then, unless `again` is false, and
    after a broken connection if the request is `repeatable`, the request is sent again.
    Raises the last error `timeout_ms` after the first.
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
    """Send a request; a connection that does not answer it in time is given up."""
    try:
        return await connection.submit(api, body, wait_ms=wait_ms)
    except RequestTimedOut:
        connection.abort(STOPPED)
        raise


STOPPED: Final = "it had stopped answering"


async def pause(backoff: Backoff, end: float, failure: Exception | None = None) -> None:
    """Wait a little longer than last time. Raises the failure when that would be too late."""
    wait_s = backoff.next_s()
    if asyncio.get_running_loop().time() + wait_s > end:
        raise failure or LeaderNotAvailable()
    await asyncio.sleep(wait_s)
