"""Horolog brokers: one that is alone and gets every request, or several with the same topics, of
which one leads, is found, and gets every request."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ...config.address import join_address
from ...protocol.api.schema import Api
from ...protocol.api.topics.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from ...protocol.errors import CodedError, HorologError, LeaderNotAvailable, RequestTimedOut
from ..errors import ConnectionFailed
from ..responses import topic_result
from ..security.security import Security
from .cluster import ClusterConnections
from .connection import ClientConnection
from .link import ClientLink
from .servers import scheme
from .serving import NOT_IN_CHARGE, codes_of, first_error, serve, submit_or_drop
from .targets import Some, Target

Reach = Callable[[str], Awaitable[ClientConnection]]
"""Opens a connection to an address."""

AGAIN_S: Final = 0.5
"""Seconds after which a broker that does not lead is asked again, while another one has not
answered."""

_TOLD_BY_ITSELF: Final = -1
"""Broker id of a broker that does not state its id, because its version is older than followers."""

T = TypeVar("T")


class OneBroker(ClientLink, ClusterConnections):
    """One connection over the native protocol."""

    kafka = False
    several = False

    def __init__(
        self,
        address: str,
        *,
        client_id: str | None,
        request_timeout_ms: int,
        security: Security | None = None,
    ) -> None:
        super().__init__(
            address,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=security,
        )
        self._partition_counts: dict[str, int] = {}
        self.known_partition_count = self._partition_counts.get

    async def open(self) -> None:
        await self.connection()

    async def request(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        return await (await self.connection()).submit(api, body, wait_ms=wait_ms)

    async def request_or_drop(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        return await ClientLink.request_or_drop(self, api, body, wait_ms=wait_ms)

    async def request_once(self, api: Api, body: object, *, to: Target, wait_ms: int = 0) -> Any:
        return await self.request(api, body, wait_ms=wait_ms)

    async def request_all(
        self, api: Api, bodies: Sequence[object], *, to: Target = Some.ANY
    ) -> list[Any]:
        connection = await self.connection()
        answers = [connection.submit(api, body) for body in bodies]
        return list(await asyncio.gather(*answers))

    async def send_unanswered(self, api: Api, body: object, *, to: Target) -> None:
        (await self.connection()).submit_unanswered(api, body)

    async def partition_count(self, topic: str) -> int:
        known = self._partition_counts.get(topic)
        if known is not None:
            return known
        response: MetadataResponse = await self.request_or_drop(
            METADATA, MetadataRequest(topics=[MetadataTopic(name=topic)])
        )
        found = topic_result(response.topics, topic)
        if not found.partitions:
            raise LeaderNotAvailable(f"{topic} has no partitions yet")
        self._partition_counts[topic] = len(found.partitions)
        return len(found.partitions)

    def forget(self, topic: str) -> None:
        self._partition_counts.pop(topic, None)

    def beside(self) -> ClusterConnections:
        return OneBroker(
            self.address,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            security=self._security,
        )

    async def close(self) -> None:
        await ClientLink.close(self)


class NobodyLeads(ConnectionFailed):
    """Brokers answered, but none of them leads; one may become leader soon."""


async def connect_to_leader(addresses: Sequence[str], reach: Reach) -> ClientConnection:
    """Return a connection to the broker that says that it leads.

    All addresses are asked concurrently, so that a broker that does not answer delays nothing. An
    address that a follower names as its leader is asked too. A broker that does not lead is asked
    again while another one, perhaps a lost one, has not answered.

    Raises NobodyLeads if none leads, ConnectionFailed if none can be reached, and a security or
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
            failures[address] = NobodyLeads(f"{address} does not lead")
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
    reached = any(isinstance(failure, NobodyLeads) for failure in failures)
    kind = NobodyLeads if reached else ConnectionFailed
    return kind(f"no leader at {','.join(addresses)}: {reasons}")


class SeveralBrokers(OneBroker):
    """One connection to the leader, replaced when a request finds that the broker no longer leads.

    Requests in flight on the old connection are waited for, because they may still be answered.
    """

    several = True
    wrong_broker: tuple[type[CodedError], ...] = NOT_IN_CHARGE
    """Errors after which another broker is asked."""
    wrong_codes = codes_of(NOT_IN_CHARGE)

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        client_id: str | None,
        request_timeout_ms: int,
        security: Security | None = None,
    ) -> None:
        tls = security is not None and bool(security.tls)
        super().__init__(
            scheme(kafka=False, tls=tls) + ",".join(addresses),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=security,
        )
        self._addresses = tuple(dict.fromkeys(addresses))
        self._left: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connect to the leader. If brokers answer but none leads, as between two leaders, wait for
        one as long as for the answer to a request."""
        end = asyncio.get_running_loop().time() + self._request_timeout_ms / 1000
        failure: NobodyLeads | None = None
        limit = asyncio.timeout(None)  # the first attempt has its own limits
        try:
            async with limit:
                while True:
                    try:
                        await self.connection()
                        return
                    except NobodyLeads as error:
                        failure = error
                        limit.reschedule(end)
        except TimeoutError:
            if failure is None:
                raise
            setting = f"request_timeout_ms={self._request_timeout_ms}"
            raise ConnectionFailed(f"{failure.message}; given up after {setting}") from failure

    async def request(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        return await self._served(api, _submitting(api, body, wait_ms))

    async def request_or_drop(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        return await self._served(api, partial(submit_or_drop, api=api, body=body, wait_ms=wait_ms))

    async def request_once(self, api: Api, body: object, *, to: Target, wait_ms: int = 0) -> Any:
        return await self._served(api, _submitting(api, body, wait_ms), again=False)

    async def request_all(
        self, api: Api, bodies: Sequence[object], *, to: Target = Some.ANY
    ) -> list[Any]:
        async def submit(connection: ClientConnection) -> list[Any]:
            return list(await asyncio.gather(*(connection.submit(api, body) for body in bodies)))

        return await self._served(api, submit)

    async def send_unanswered(self, api: Api, body: object, *, to: Target) -> None:
        async def submit(connection: ClientConnection) -> None:
            connection.submit_unanswered(api, body)

        await self._served(api, submit)

    def submit_if_ready(self, api: Api, body: object) -> "asyncio.Future[Any] | None":
        connection = self._connection
        answer = super().submit_if_ready(api, body)
        if answer is not None and connection is not None:
            answer.add_done_callback(partial(self._look, connection))
        return answer

    def beside(self) -> ClusterConnections:
        return SeveralBrokers(
            self._addresses,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            security=self._security,
        )

    async def close(self) -> None:
        await super().close()
        left = list(self._left)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _reach(self) -> ClientConnection:
        return await connect_to_leader(self._addresses, self._connect_to)

    async def _served(
        self, api: Api, send: Callable[[ClientConnection], Awaitable[T]], *, again: bool = True
    ) -> T:
        async def ask(connection: ClientConnection) -> T | CodedError:
            try:
                return await send(connection)
            except self.wrong_broker as error:
                return error

        answer = await serve(
            api,
            ask,
            connection=self.connection,
            not_yet=(ConnectionFailed,),
            lost=lambda: None,
            moved=self._moved,
            timeout_ms=self._request_timeout_ms,
            again=again,
        )
        if isinstance(answer, CodedError):
            raise answer
        return answer

    def _moved(self, connection: ClientConnection, answer: object) -> CodedError | None:
        failure = self._failure_in(answer)
        if failure is not None:
            self._leave(connection)
        return failure

    def _failure_in(self, answer: object) -> CodedError | None:
        """Return the error in an answer after which another broker is asked; None if there is
        none."""
        if isinstance(answer, self.wrong_broker):
            return answer
        return first_error(answer, self.wrong_codes)

    def _look(self, connection: ClientConnection, answer: "asyncio.Future[Any]") -> None:
        self._moved(connection, answer.exception() or answer.result())

    def _leave(self, connection: ClientConnection) -> None:
        """Search for the leader again at the next request. The old connection closes when it has
        finished."""
        if self._connection is connection:
            self._connection = None
            task = asyncio.ensure_future(_finish(connection))
            self._left.add(task)
            task.add_done_callback(self._left.discard)


def _submitting(
    api: Api, body: object, wait_ms: int
) -> Callable[[ClientConnection], Awaitable[Any]]:
    return lambda connection: connection.submit(api, body, wait_ms=wait_ms)


async def _finish(connection: ClientConnection) -> None:
    try:
        await connection.finish()
    finally:
        connection.abort()
