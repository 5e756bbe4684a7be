"""Connections opened on demand: to a broker at a known address, or to the leader among several."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from ...config.address import join_address
from ...protocol.api.encodings import Encoding
from ...protocol.api.native import frames as native
from ...protocol.api.schema import Api
from ...protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataResponse
from ...protocol.errors import HorologError, RequestTimedOut
from ..errors import ClientClosed, ConnectionFailed
from ..security.security import Security
from .connection import ClientConnection, connect
from .connection_reports import ConnectionReports
from .retry import STOPPED, Backoff

Reach = Callable[[str], Awaitable[ClientConnection]]
"""Opens a connection to an address."""

AGAIN_S: Final = 0.5
"""Seconds after which a broker that does not lead is asked again, while another one has not
answered."""

_TOLD_BY_ITSELF: Final = -1
"""Broker id of a broker that does not state its id, because its version is older than followers."""


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
        find: Callable[[], Awaitable[ClientConnection]] | None = None,
    ) -> None:
        """`find` opens the connection; None opens one to `address`."""
        self.address = address
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._encoding = encoding
        self._security = security
        self._find = find or self._connect_to_address
        self._connection: ClientConnection | None = None
        self._reports = ConnectionReports()
        self._left: set[asyncio.Task[None]] = set()
        self._connecting = asyncio.Lock()
        self._backoff = Backoff()
        self._failures = 0
        self._failure: ConnectionFailed | None = None
        self._not_before = 0.0
        self._opened_s = 0.0
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether there is a connection that is not known to be broken."""
        return self._connection is not None and not self._connection.failed

    @property
    def current(self) -> ClientConnection | None:
        """The connection, perhaps broken; None before the first request and after `leave`."""
        return self._connection

    @property
    def opened_s(self) -> float:
        """Time on the event loop's clock at which the search for the current connection began."""
        return self._opened_s

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
                connection.abort("it took no more requests", lost=True)
                raise
            return connection

    async def _connect(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        if self._not_before > loop.time():
            await asyncio.sleep(self._not_before - loop.time())
            self._check_open()
        self._opened_s = loop.time()
        try:
            connection = await self._find()
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
        connection.reports = self._reports
        self._reports.connected(connection.address, loop.time())
        return connection

    async def _connect_to_address(self) -> ClientConnection:
        return await connect(
            self.address,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            encoding=self._encoding,
            security=self._security,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed(f"the client of {self.address} is closed")

    def submit_if_ready(self, api: Api, body: object) -> "asyncio.Future[Any] | None":
        """Send a request if the connection accepts it now; None if it would have to wait."""
        connection = self._connection
        if connection is None or not connection.ready or self._connecting.locked():
            return None
        answer = connection.submit(api, body)
        answer.add_done_callback(partial(_drop_if_late, connection))
        return answer

    def leave(self, connection: ClientConnection | None) -> None:
        """Find another connection at the next request, unless that has happened already. The left
        one closes when its requests in flight are answered, because they may still be."""
        if connection is not None and self._connection is connection:
            self._connection = connection.reports = None
            task = asyncio.ensure_future(_finish(connection))
            self._left.add(task)
            task.add_done_callback(self._left.discard)

    async def close(self) -> None:
        """Close the connection. Requests in flight fail."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        left = list(self._left)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


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
        connection.abort(STOPPED, lost=True)


async def _finish(connection: ClientConnection) -> None:
    try:
        await connection.finish()
    finally:
        connection.abort()


class NoLeader(ConnectionFailed):
    """Brokers answered, but none of them is the leader. One may become leader soon."""


async def connect_to_leader(addresses: Sequence[str], reach: Reach) -> ClientConnection:
    """Return a connection to the broker that says that it leads.

    All addresses are asked concurrently, so that a broker that does not answer delays nothing. An
    address that a follower names as its leader is asked too. A broker that does not lead is asked
    again while another one, perhaps a lost one, has not answered.

    Raises NoLeader if no broker leads, ConnectionFailed if none can be reached, and a security or
    authentication error if that is why.
    """
    asked: dict[asyncio.Future[tuple[ClientConnection | None, str | None]], str] = {}
    unanswered: set[str] = set()
    known: set[str] = set()
    failures: dict[str, HorologError] = {}

    def ask_first(address: str) -> None:
        if address not in known:
            known.add(address)
            unanswered.add(address)
            asked[asyncio.ensure_future(_ask(reach, address))] = address

    for address in addresses:
        ask_first(address)
    try:
        while unanswered:
            ended, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            answer = ended.pop()
            address = asked.pop(answer)
            unanswered.discard(address)
            try:
                connection, leader = answer.result()
            except HorologError as error:
                failures[address] = error
                continue
            if connection is not None:
                return connection
            failures[address] = NoLeader(f"{address} does not lead")
            if leader is not None:
                ask_first(leader)
            asked[asyncio.ensure_future(_ask(reach, address, AGAIN_S))] = address
    finally:
        await _drop(list(asked))
    raise _none_leads(addresses, list(failures.values()))


async def _ask(
    reach: Reach, address: str, pause_s: float = 0.0
) -> tuple[ClientConnection | None, str | None]:
    """Return the connection if this broker leads; else the leader's address, if the broker knows
    it."""
    await asyncio.sleep(pause_s)
    connection = await reach(address)
    leads = False
    try:
        response: MetadataResponse = await connection.submit(
            METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False)
        )
        leads = response.node_id in (_TOLD_BY_ITSELF, response.controller_id)
        leader = {broker.node_id: broker for broker in response.brokers}.get(response.controller_id)
    except RequestTimedOut as error:
        raise ConnectionFailed(error.message) from None
    finally:
        if not leads:
            connection.abort()
    if leads:
        return connection, None
    return None, None if leader is None else join_address(leader.host, leader.port)


async def _drop(asked: "list[asyncio.Future[tuple[ClientConnection | None, str | None]]]") -> None:
    """Cancel requests whose answers are no longer needed, and close their connections."""
    for answer in asked:
        answer.cancel()
    for result in await asyncio.gather(*asked, return_exceptions=True):
        if not isinstance(result, BaseException) and result[0] is not None:
            result[0].abort()


def _none_leads(addresses: Sequence[str], failures: Sequence[HorologError]) -> HorologError:
    for failure in failures:
        if not isinstance(failure, ConnectionFailed):
            return failure
    reasons = "; ".join(failure.message for failure in failures)
    reached = any(isinstance(failure, NoLeader) for failure in failures)
    kind = NoLeader if reached else ConnectionFailed
    return kind(f"no leader at {','.join(addresses)}: {reasons}")
