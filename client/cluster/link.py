"""Connection to one broker, opened on demand."""

import asyncio
from functools import partial
from typing import Any

from ...protocol.api.encodings import Encoding
from ...protocol.api.native import frames as native
from ...protocol.api.schema import Api
from ...protocol.errors import RequestTimedOut
from ..errors import ClientClosed, ConnectionFailed
from ..security.security import Security
from .connecting import connect
from .connection import ClientConnection
from .retry import Backoff
from .serving import STOPPED, submit_or_drop


class ClientLink:
    """Keeps one connection. A broken connection is replaced at the next request."""

    def __init__(
        self,
        address: str,
        *,
        client_id: str | None,
        request_timeout_ms: int,
        encoding: Encoding = native,
        security: Security | None = None,
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._encoding = encoding
        self._security = security
        self._connection: ClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._backoff = Backoff()
        self._failures = 0
        self._failure: ConnectionFailed | None = None
        self._not_before = 0.0
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether there is a connection that is not known to be broken."""
        return self._connection is not None and not self._connection.failed

    @property
    def failing(self) -> bool:
        """Whether the last attempt to connect failed."""
        return self._failure is not None

    @property
    def failure(self) -> ConnectionFailed | None:
        """Error of the last attempt to connect; None if it succeeded."""
        return self._failure

    async def connection(self) -> ClientConnection:
        """Return a connection that is not known to be broken and accepts data.

        Callers are served in order of arrival. After a failure, the next attempt to connect waits,
        longer each time. A session that is about to end is renewed first, after the requests in
        flight. Raises ConnectionFailed, ClientClosed, and security and authentication errors.
        """
        failures_before = self._failures
        async with self._connecting:
            self._check_open()
            connection = self._connection
            if connection is not None and connection.stale:
                connection.abort("it had been idle")
            if connection is None or connection.failed:
                if self._failure is not None and self._failures > failures_before:
                    # An attempt failed after this caller asked: that is this caller's answer too.
                    raise type(self._failure)(*self._failure.args)
                connection = self._connection = await self._connect()
            elif connection.session_ends and self._security is not None:
                await _prolong(connection, self._security)
            try:
                await connection.writable()
            except RequestTimedOut:
                connection.abort("it took no more requests")
                raise
            return connection

    async def _connect(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        if self._not_before > loop.time():
            await asyncio.sleep(self._not_before - loop.time())
            self._check_open()
        try:
            connection = await self._reach()
        except ConnectionFailed as error:
            self._failure = error
            self._failures += 1
            self._not_before = loop.time() + self._backoff.next_s()
            raise
        self._failure = None
        self._backoff.reset()
        if self._closed:
            await connection.close()
            self._check_open()
        return connection

    async def _reach(self) -> ClientConnection:
        return await self._connect_to(self.address)

    async def _connect_to(self, address: str) -> ClientConnection:
        return await connect(
            address,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            encoding=self._encoding,
            security=self._security,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed(f"the client of {self.address} is closed")

    async def request_or_drop(self, api: Api, body: object, *, wait_ms: int = 0) -> Any:
        """Send one request and wait for its response.

        A connection that does not answer in time is closed with all its other requests, because a
        new one may work.
        """
        connection = await self.connection()
        return await submit_or_drop(connection, api=api, body=body, wait_ms=wait_ms)

    def submit_if_ready(self, api: Api, body: object) -> "asyncio.Future[Any] | None":
        """Send a request if the connection accepts it now; None where `request_or_drop` would
        wait."""
        connection = self._connection
        if connection is None or not connection.ready or self._connecting.locked():
            return None
        answer = connection.submit(api, body)
        answer.add_done_callback(partial(_drop_if_late, connection))
        return answer

    async def close(self) -> None:
        """Close the connection. Requests in flight fail."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


async def _prolong(connection: ClientConnection, security: Security) -> None:
    """Authenticate again. Nothing else is sent meanwhile, because the broker would take it for a
    part of the login."""
    from ..security.authentication import authenticate

    try:
        await authenticate(connection, security)
    except BaseException:
        connection.abort("it could not authenticate again")
        raise


def _drop_if_late(connection: ClientConnection, answer: "asyncio.Future[Any]") -> None:
    if isinstance(answer.exception(), RequestTimedOut):
        connection.abort(STOPPED)
