"""A follower's connection to its leader."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ...client.cluster.connection import ClientConnection, connect
from ...client.cluster.servers import parse_servers
from ...client.errors import SecurityError
from ...client.security.security import Security
from ...protocol.api.cluster.replicate import (
    REPLICATE,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from ...protocol.errors import UnsupportedVersion
from ...values import value_class

Incoming = ReplicateResponse | Exception


@value_class
class AcceptsFollower:
    """The login of a follower at its leader."""

    credentials: str
    """Path of a file with user and password; empty if the leader requires no login."""
    ca: str

    def security(self, *, tls: bool) -> Security | None:
        """Return the client's security settings. Raises `OSError`, `SecurityError`."""
        if not (tls or self.credentials):
            return None
        user = password = None
        if self.credentials:
            lines = Path(self.credentials).read_text(encoding="utf-8").splitlines()
            if len(lines) < 2:
                raise SecurityError(
                    f"{self.credentials} (cluster.credentials) has no user and password on its "
                    "first two lines"
                )
            user, password = lines[:2]
        return Security(tls=tls, ca=self.ca or None, user=user, password=password)

    async def connect(self, address: str, timeout_ms: int) -> ClientConnection:
        """Connect to the broker at `address`; `timeout_ms` is the limit for each request. Raises
        the errors of `client.cluster.connection.connect`, `OSError` if a file of the login cannot
        be read, and `SecurityError`."""
        servers = parse_servers(address)
        return await connect(
            servers.addresses[0],
            client_id="horolog-follower",
            request_timeout_ms=timeout_ms,
            security=await asyncio.to_thread(self.security, tls=servers.tls),
        )


class LeaderConnection:
    """A connection to a leader, on which requests are sent and answers arrive in order."""

    def __init__(
        self,
        number: int,
        address: str,
        timeout_ms: int,
        accepts: AcceptsFollower,
        takes: Callable[["LeaderConnection", ReplicateResponse], bool],
    ) -> None:
        """`number` identifies the connection at the leader. `takes` is called with an answer as
        soon as it arrives, if no earlier answer waits. If `takes` returns false, `next` returns the
        answer; if it raises, `next` raises the same."""
        self.number = number
        self.address = address
        self.closed = False
        self._timeout_ms = timeout_ms
        self._accepts = accepts
        self._connection: ClientConnection | None = None
        self._takes = takes
        self._waits = False
        """Whether `next` waits, so that all earlier answers have been handled."""
        self._incoming: asyncio.Queue[Incoming] = asyncio.Queue()

    async def open(self) -> None:
        """Connect. Raises the errors of `AcceptsFollower.connect`, and `UnsupportedVersion` if both
        brokers have no version of `replicate` in common."""
        self._connection = await self._accepts.connect(self.address, self._timeout_ms)
        try:
            self._connection.version(REPLICATE)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(
                f"{error.message}: this broker and its leader are more than one release apart; "
                "upgrade the older of the two, one release at a time, followers first"
            ) from None

    def send(self, request: ReplicateRequest) -> None:
        """Send a request. `next` returns its answer, or raises the error."""
        connection = self._connection
        assert connection is not None
        try:
            if request.says == Says.CONFIRM:
                connection.submit_unanswered(REPLICATE, request)
            else:
                connection.submit_for(self, REPLICATE, request)
        except Exception as error:
            self._incoming.put_nowait(error)

    # Called by the connection with the outcome of a request.

    def done(self) -> bool:
        """Whether further answers are ignored."""
        return self.closed

    def set_result(self, response: ReplicateResponse, /) -> None:
        """Handle an answer that has arrived."""
        incoming: Incoming = response
        if self._waits and self._incoming.empty():
            # Waking a task for each answer costs as much as handling a small answer.
            try:
                if self._takes(self, response):
                    return
            except Exception as error:
                incoming = error
        self._incoming.put_nowait(incoming)

    def set_exception(self, error: Exception, /) -> None:
        """Handle the error of a request."""
        self._incoming.put_nowait(error)

    async def next(self) -> ReplicateResponse:
        """Wait for the next answer that `takes` did not handle. Raises the error of the connection,
        or of the leader."""
        self._waits = True
        try:
            incoming = await self._incoming.get()
        finally:
            self._waits = False
        if isinstance(incoming, Exception):
            raise incoming
        return incoming

    def close(self) -> None:
        """Close the connection, and ignore further answers."""
        self.closed = True
        if self._connection is not None:
            self._connection.abort()
