"""A follower's connection to its leader."""

import asyncio
from pathlib import Path
from typing import Any

from ...client.cluster.connecting import connect
from ...client.cluster.connection import Connection
from ...client.cluster.servers import parse_servers
from ...client.security.errors import SecurityError
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
class LetsIn:
    """Where it is said how a follower is let in at its leader."""

    credentials: str
    """File with user and password; empty where none is asked for."""
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


class Link:
    """One connection: requests out, answers in, one after the other."""

    def __init__(self, number: int, address: str, timeout_ms: int, lets_in: LetsIn) -> None:
        """`number` is what the leader knows it by."""
        self.number = number
        self.address = address
        self.closed = False
        self._timeout_ms = timeout_ms
        self._lets_in = lets_in
        self._connection: Connection | None = None
        self._incoming: asyncio.Queue[Incoming] = asyncio.Queue()

    async def open(self) -> None:
        """Connect. Raises what `client.cluster.connecting.connect` does, `UnsupportedVersion` where
        there is no version of the request that both have, `OSError` for files of the login that
        cannot be read."""
        servers = parse_servers(self.address)
        security = await asyncio.to_thread(self._lets_in.security, tls=servers.tls)
        self._connection = await connect(
            servers.addresses[0],
            client_id="horolog-follower",
            request_timeout_ms=self._timeout_ms,
            security=security,
        )
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
                connection.submit(REPLICATE, request).add_done_callback(self._answered)
        except Exception as error:
            self._incoming.put_nowait(error)

    def _answered(self, answer: "asyncio.Future[Any]") -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        self._incoming.put_nowait(answer.result() if error is None else _as_exception(error))

    async def next(self) -> ReplicateResponse:
        """The next answer. Raises what the connection or the leader says instead."""
        incoming = await self._incoming.get()
        if isinstance(incoming, Exception):
            raise incoming
        return incoming

    def close(self) -> None:
        """Send and take nothing any more."""
        self.closed = True
        if self._connection is not None:
            self._connection.abort()


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(repr(error))
