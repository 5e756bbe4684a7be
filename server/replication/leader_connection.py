"""A follower's connection to its leader."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ...client.cluster.connecting import connect
from ...client.cluster.connection import ClientConnection
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
    """What a follower logs in with at its leader."""

    credentials: str
    """Path of a file with user and password; empty where the leader asks for none."""
    ca: str

    def security(self, *, tls: bool) -> Security | None:
        """What the client needs. Raises `OSError`, `SecurityError`."""
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
        """A connection to the broker at `address`, which answers within so long. Raises what
        `client.cluster.connecting.connect` does, `OSError` for files of the login that cannot be
        read, and `SecurityError`."""
        servers = parse_servers(address)
        return await connect(
            servers.addresses[0],
            client_id="horolog-follower",
            request_timeout_ms=timeout_ms,
            security=await asyncio.to_thread(self.security, tls=servers.tls),
        )


class LeaderConnection:
    """One connection: requests out, answers in, one after the other."""

    def __init__(
        self,
        number: int,
        address: str,
        timeout_ms: int,
        accepts: AcceptsFollower,
        takes: Callable[["LeaderConnection", ReplicateResponse], bool],
    ) -> None:
        """`number` is what the leader knows it by. `takes` is offered an answer that nothing waits
        in front of, as soon as it is there; what it does not take, or what it raises, comes with
        `next`."""
        self.number = number
        self.address = address
        self.closed = False
        self._timeout_ms = timeout_ms
        self._accepts = accepts
        self._connection: ClientConnection | None = None
        self._takes = takes
        self._waits = False
        """Whether all that came was taken."""
        self._incoming: asyncio.Queue[Incoming] = asyncio.Queue()

    async def open(self) -> None:
        """Connect. Raises as `AcceptsFollower.connect`, and `UnsupportedVersion` where there is no
        version of the request that both have."""
        self._connection = await self._accepts.connect(self.address, self._timeout_ms)
        try:
            self._connection.version(REPLICATE)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(
                f"{error.message}: this broker and its leader are more than one release apart; "
                "upgrade the older of the two, one release at a time, followers first"
            ) from None

    def send(self, request: ReplicateRequest) -> None:
        """Send a request; what comes of it, or an error, comes with `next`."""
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
        """Whether no answer is wanted any more."""
        return self.closed

    def set_result(self, response: ReplicateResponse, /) -> None:
        """An answer is there."""
        incoming: Incoming = response
        if self._waits and self._incoming.empty():
            # A task that is woken for each answer costs as much as a small one itself.
            try:
                if self._takes(self, response):
                    return
            except Exception as error:
                incoming = error
        self._incoming.put_nowait(incoming)

    def set_exception(self, error: Exception, /) -> None:
        """There will be no answer."""
        self._incoming.put_nowait(error)

    async def next(self) -> ReplicateResponse:
        """The next answer that was not taken. Raises what the connection or the leader says
        instead."""
        self._waits = True
        try:
            incoming = await self._incoming.get()
        finally:
            self._waits = False
        if isinstance(incoming, Exception):
            raise incoming
        return incoming

    def close(self) -> None:
        """Send and take nothing any more."""
        self.closed = True
        if self._connection is not None:
            self._connection.abort()
