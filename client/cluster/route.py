"""Routes of a client's requests: which broker serves a request, over which connection, and what to
do when another broker takes over.

A broker that does not serve a request refuses it without carrying it out. The request is then sent
again, to the broker that the cluster names, with growing waits, until the request timeout. A single
broker gets every request, and its refusals go to the caller.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ...protocol.api.encodings import Encoding
from ...protocol.api.groups.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ...protocol.api.kafka import frames as kafka
from ...protocol.api.log.fetch import FETCH, FetchRequest, FetchResponse
from ...protocol.api.native import frames as native
from ...protocol.api.schema import Api
from ...protocol.api.topics.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    MetadataTopicResult,
)
from ...protocol.errors import (
    CodedError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    RequestTimedOut,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ...protocol.window_topics import WindowName, parse_window_name
from ..errors import ClientClosed, ConnectionFailed
from ..responses import check, topic_result
from .connection import ClientConnection, connect
from .link import ClientLink, NoLeader, connect_to_leader
from .metadata import ClusterMap
from .replicas import ReplicaReads
from .retry import (
    NOT_IN_CHARGE,
    Backoff,
    Send,
    codes_of,
    first_error,
    moved,
    pause,
    serve,
    submit_or_drop,
)
from .servers import Servers, scheme
from .targets import CoordinatorNode, NodeById, PartitionLeader, Some, Target

REQUESTS: Final = 0
"""Lane of requests that the broker answers at once."""

ANY_REPLICA: Final = "any replica"
"""Stands for the address of the broker that reads were given to."""

_NOT_IN_CHARGE_CODES: Final = codes_of(NOT_IN_CHARGE)

_NOT_YET: Final = (LeaderNotAvailable, CoordinatorLoading, CoordinatorNotAvailable)
"""Errors of a cluster that has not elected a leader, coordinator or controller yet."""

_CREATION_S: Final = 3.0
"""Seconds that an automatically created topic may take to appear."""


class _BrokerDown(ConnectionFailed):
    """The responsible broker cannot be reached, but others can."""


class Route:
    """Sends each request to the broker that serves it.

    A broker answers the requests of a connection in order. Requests that wait there therefore use a
    lane of their own, which has its own connection to each broker.

    Requests raise ConnectionFailed, RequestTimedOut, ClientClosed, and UnsupportedVersion for a
    request that the broker does not serve.
    """

    def __init__(
        self,
        servers: Servers,
        *,
        client_id: str | None,
        request_timeout_ms: int,
        any_replica: bool = False,
    ) -> None:
        """With `any_replica` messages are read from any broker that has them."""
        self._security = security = servers.channel
        tls = security is not None and bool(security.tls)
        several = len(servers.addresses) > 1 or any_replica
        self.kafka = servers.kafka
        """Whether Kafka's protocol is used, without Horolog's own requests."""
        self.several = servers.kafka or several
        """Whether another broker may take over from the one that serves a request."""
        self.address = ",".join(servers.addresses)
        """Address as the application gave it."""
        if self.several:
            self.address = scheme(kafka=servers.kafka, tls=tls) + self.address
        self.map = ClusterMap(sole=None if servers.kafka else self.address)
        self.known_partition_count = self.map.partition_count
        """Returns the number of partitions of a topic; None if unknown. Called per message."""
        self._bootstrap = tuple(dict.fromkeys(servers.addresses))
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._encoding: Encoding = kafka if servers.kafka else native
        self.reads: ReplicaReads | None = None
        """Policy of reads at any replica; None: leaders are read from."""
        if any_replica:
            self.reads = ReplicaReads(
                self._bootstrap, self._connect_to, request_timeout_ms=request_timeout_ms
            )
        self._not_yet: tuple[type[Exception], ...] = (ConnectionFailed,)
        self._refusals: tuple[type[CodedError], ...] = NOT_IN_CHARGE
        """Errors of a whole request after which another broker is asked."""
        if servers.kafka:
            self._not_yet, self._refusals = (*_NOT_YET, _BrokerDown), ()
        self._links: dict[tuple[str, int], ClientLink] = {}
        self._lanes = REQUESTS
        self._finding = asyncio.Lock()
        self._closed = False

    @property
    def failure(self) -> ConnectionFailed | None:
        """Error of the last attempt to find the broker that leads; None if it succeeded, or where
        each partition has its own leader."""
        link = None if self.kafka else self._links.get((self.address, REQUESTS))
        return None if link is None else link.failure

    async def open(self, lane: int = REQUESTS) -> None:
        """Connect to one broker, to make sure that a broker can be reached. Where it is known that
        the broker serves everything, the connection is one of `lane`."""
        if self.kafka:
            await self._ask_metadata([], create=False)
        elif self.reads is not None:
            await self._link(ANY_REPLICA, lane).connection()
        elif self.several:
            await self._open_leader(lane)
        else:
            await self._link(self.address, lane).connection()

    async def _open_leader(self, lane: int) -> None:
        """Connect to the leader. If brokers answer but none leads, as between two leaders, wait for
        one as long as for the answer to a request."""
        end = asyncio.get_running_loop().time() + self._request_timeout_ms / 1000
        failure: NoLeader | None = None
        limit = asyncio.timeout(None)  # the first attempt has its own limits
        try:
            async with limit:
                while True:
                    try:
                        await self._link(self.address, lane).connection()
                        return
                    except NoLeader as error:
                        failure = error
                        limit.reschedule(end)
        except TimeoutError:
            if failure is None:
                raise
            setting = f"request_timeout_ms={self._request_timeout_ms}"
            raise ConnectionFailed(f"{failure.message}; given up after {setting}") from failure

    # Requests.

    async def request(
        self,
        api: Api,
        body: object,
        *,
        to: Target = Some.ANY,
        wait_ms: int = 0,
        lane: int = REQUESTS,
    ) -> Any:
        """Send one request and wait for its response.

        `wait_ms` is how long the request lets the broker wait, in addition to the request timeout.
        """
        send = partial(_submit, api=api, wait_ms=wait_ms)
        return await self._send(api, body, to, send, lane=lane, wait_ms=wait_ms)

    async def request_or_drop(
        self,
        api: Api,
        body: object,
        *,
        to: Target = Some.ANY,
        wait_ms: int = 0,
        lane: int = REQUESTS,
    ) -> Any:
        """Send one request as `request` does, for callers that repeat it. A connection that does
        not answer in time is closed with all its other requests, because a new one may work."""
        send = partial(submit_or_drop, api=api, wait_ms=wait_ms)
        return await self._send(api, body, to, send, lane=lane, wait_ms=wait_ms)

    async def request_once(self, api: Api, body: object, *, to: Target, wait_ms: int = 0) -> Any:
        """Send one request as `request` does, but never again to another broker, whatever the first
        one answered: for requests that must not overtake each other."""
        return await self._send(
            api, body, to, partial(_submit, api=api, wait_ms=wait_ms), again=False
        )

    async def request_all(
        self, api: Api, bodies: Sequence[object], *, to: Target = Some.ANY
    ) -> list[Any]:
        """Send requests back to back, so that the broker serves them in this order."""
        if self.reads is not None and self.reads.serves(api):
            # In turn, because each request depends on the offsets seen in the answers before it.
            return [await self.request(api, body, to=to) for body in bodies]

        async def submit(connection: ClientConnection, bodies: Sequence[object]) -> list[Any]:
            answers = [connection.submit(api, body) for body in bodies]
            return list(await asyncio.gather(*answers))

        answers: list[Any] = await self._send(api, bodies, to, submit)
        return answers

    async def send_unanswered(self, api: Api, body: object, *, to: Target) -> None:
        """Send a request that the broker does not answer (produce with `acks` 0)."""

        async def submit(connection: ClientConnection, body: object) -> None:
            connection.submit_unanswered(api, body)

        await self._send(api, body, to, submit)

    async def _send(
        self,
        api: Api,
        body: Any,
        to: Target,
        send: Send,
        *,
        lane: int = REQUESTS,
        wait_ms: int = 0,
        again: bool = True,
    ) -> Any:
        """Send a request to the broker that serves it and, with `again`, to another one that
        becomes responsible."""
        if not self.several:
            return await send(await self._link(self.address, lane).connection(), body)
        if self.kafka and api.native:
            raise UnsupportedVersion(
                f"{api.name} is a request of Horolog's own protocol and not in Kafka's, so "
                f"{self.address} cannot be asked that"
            )
        if self.reads is not None:
            chosen = self._link(ANY_REPLICA, lane)
            answer = await self.reads.ask(chosen, api, body, send, wait_ms)
            if answer is not None:
                return answer

        async def attempt(connection: ClientConnection) -> Any:
            try:
                return await send(connection, body)
            except self._refusals as error:
                return error

        answer = await serve(
            api,
            attempt,
            connection=partial(self._connection, to, lane),
            not_yet=self._not_yet,
            lost=partial(self._lost, to),
            moved=partial(self._moved, to, lane),
            timeout_ms=self._request_timeout_ms,
            again=again,
        )
        if isinstance(answer, CodedError):
            raise answer
        return answer

    # Fetches, which wait at the broker and so have lanes of their own.

    def new_lane(self) -> int:
        """Return a lane for one reader's fetches; `close_lane` closes its connections."""
        self._lanes += 1
        return self._lanes

    async def close_lane(self, lane: int) -> None:
        """Close the connections of a lane. Requests in flight fail."""
        found = [key for key in self._links if key[1] == lane]
        await asyncio.gather(*(self._links.pop(key).close() for key in found))

    async def leader(self, topic: str, partition: int) -> int:
        """Return the id of the node that serves a partition. Raises LeaderNotAvailable,
        UnknownTopicOrPartition, ConnectionFailed."""
        return await self._find(PartitionLeader(topic, partition))

    async def fetch(
        self, node_id: int, request: FetchRequest, *, wait_ms: int, lane: int
    ) -> FetchResponse:
        """Fetch from the node that `leader` returned. If nodes have been learned, the fetch is not
        repeated: the caller divides its partitions anew."""
        response: FetchResponse
        if not self.kafka:
            response = await self.request_or_drop(FETCH, request, wait_ms=wait_ms, lane=lane)
            return response
        address = self.map.addresses.get(node_id)
        if address is None:
            raise ConnectionFailed(f"broker {node_id} of {self.address} is not up")
        connection = await self._link(address, lane).connection()
        response = await submit_or_drop(connection, request, api=FETCH, wait_ms=wait_ms)
        return response

    def fetch_if_ready(
        self, node_id: int, request: FetchRequest, *, lane: int
    ) -> "asyncio.Future[FetchResponse] | None":
        """Send a fetch that does not wait, if a connection accepts it now; None if it does not."""
        address = self.map.addresses.get(node_id, "")
        if self.reads is not None:
            chosen = self._links.get((ANY_REPLICA, lane))
            return None if chosen is None else self.reads.submit_if_ready(chosen, FETCH, request)
        link = self._links.get((address, lane))
        if link is None:
            return None
        connection = link.current
        answer = link.submit_if_ready(FETCH, request)
        if answer is not None and connection is not None and self.several and not self.kafka:
            answer.add_done_callback(partial(self._look, lane, connection))
        return answer

    def _look(self, lane: int, connection: ClientConnection, answer: "asyncio.Future[Any]") -> None:
        if not answer.cancelled():
            self._moved(Some.ANY, lane, connection, answer.exception() or answer.result())

    # Metadata.

    async def partition_count(self, topic: str) -> int:
        """Return the number of partitions of `topic`. The topic is created if the broker creates
        topics automatically."""
        if not self.kafka and self.map.partition_count(topic) is None:
            response: MetadataResponse = await self.request_or_drop(
                METADATA, _about([topic], create=True)
            )
            if not topic_result(response.topics, topic).partitions:
                raise LeaderNotAvailable(f"{topic} has no partitions yet")
            self.map.learn(response)
        place = PartitionLeader(topic, 0, create=True)
        end = asyncio.get_running_loop().time() + self._request_timeout_ms / 1000
        backoff = Backoff()
        while (count := self.map.partition_count(topic)) is None:
            try:
                await self._find(place)
            except LeaderNotAvailable:
                if self.map.partition_count(topic) is None:
                    await pause(backoff, end)
        return count

    def forget(self, topic: str) -> None:
        """Drop the cached metadata of `topic`."""
        self.map.forget_topic(topic)

    async def node_ids(self) -> list[int]:
        """Return the ids of all running brokers of a Kafka cluster; elsewhere `SOLE_NODE`."""
        if self.kafka:
            await self._ask_metadata([], create=False)
        return sorted(self.map.addresses)

    async def topics(self, names: Sequence[str], *, at: Target = Some.ANY) -> MetadataResponse:
        """Return the metadata of these topics, or of all if `names` is empty. No topic is
        created."""
        asked = None if self.kafka and not names else names
        response: MetadataResponse = await self.request(METADATA, _about(asked), to=at)
        return response

    async def partition_counts(self, names: Sequence[str]) -> dict[str, int]:
        """Return the current number of partitions of these topics. Raises
        UnknownTopicOrPartition."""
        found = await self.topics(names)
        return {
            name: len((await self.named_topic(found.topics, name)).partitions) for name in names
        }

    async def named_topic(
        self, topics: Sequence[MetadataTopicResult], name: str
    ) -> MetadataTopicResult:
        """Return the result for one topic. Raises the error that the result reports; for the name
        of a window that the cluster does not serve, the text says why, and what reads it."""
        try:
            return topic_result(topics, name)
        except UnknownTopicOrPartition as error:
            window = parse_window_name(name)
            if window is None:
                raise
            why = await self._why_no_window(name, window)
            raise UnknownTopicOrPartition(f"{error.message}. {why}") from error

    async def _why_no_window(self, name: str, window: WindowName) -> str:
        if window.is_empty:
            return "No time is in a window that ends at or before its start"
        bases = (await self.topics([window.base])).topics
        if any(base.error_code == UnknownTopicOrPartition.code for base in bases):
            return f"{name} reads as a window of {window.base}, and there is no topic {window.base}"
        said = f"{name} reads as a window of {window.base}, which only Horolog serves as a topic"
        if window.by_append:
            return f"{said}, and only Horolog has append times"
        return (
            f"{said}; elsewhere Consumer.window({window.base!r}, {window.from_ms}, "
            f"{window.until_ms}) reads it, and `horolog consume` with this name"
        )

    async def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        self._closed = True
        links, self._links = self._links, {}
        await asyncio.gather(*(link.close() for link in links.values()))

    # Links.

    def _link(self, address: str, lane: int = REQUESTS) -> ClientLink:
        link = self._links.get((address, lane))
        if link is not None:
            return link
        if self._closed:
            raise ClientClosed(f"the client of {self.address} is closed")
        find = None
        if address == ANY_REPLICA and self.reads is not None:
            address, find = self.address, self.reads.find
            key = ANY_REPLICA, lane
        else:
            key = address, lane
            if self.several and not self.kafka:
                find = partial(connect_to_leader, self._bootstrap, self._connect_to)
        link = self._links[key] = ClientLink(
            address,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            encoding=self._encoding,
            security=self._security,
            find=find,
        )
        return link

    async def _connect_to(self, address: str) -> ClientConnection:
        return await connect(
            address,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            encoding=self._encoding,
            security=self._security,
        )

    async def _connection(self, to: Target, lane: int) -> ClientConnection:
        """Return a connection to the responsible broker. Raises `_BrokerDown` when the cluster can
        be reached, but not this broker."""
        if self.kafka and to is Some.ANY:
            return await self._any_connection()
        node_id = await self._find(to)
        address = self.map.addresses[node_id]
        try:
            return await self._link(address, lane).connection()
        except ConnectionFailed as error:
            if not self.kafka:
                raise
            self.map.forget_node(node_id)
            raise _BrokerDown(
                f"{error}; it is broker {node_id} of {self.address}, which says that it is at that "
                "address (`advertised.listeners`)"
            ) from error

    async def _any_connection(self) -> ClientConnection:
        """Return a connection to any broker that can be reached, preferably an open one."""
        failures: list[str] = []
        for address in self._by_hope():
            try:
                return await self._link(address).connection()
            except ConnectionFailed as error:
                failures.append(str(error))
                cause = error.__cause__ or error
        if len(failures) == 1:
            raise ConnectionFailed(failures[0]) from cause
        raise ConnectionFailed(
            f"no broker of {self.address} can be reached: {'; '.join(failures)}"
        ) from cause

    def _by_hope(self) -> list[str]:
        """Return all addresses: first the connected brokers, last those whose last attempt
        failed."""

        def doubt(address: str) -> int:
            link = self._links.get((address, REQUESTS))
            return 1 if link is None else 0 if link.connected else 2 if link.failing else 1

        return sorted(self.map.addresses_with(self._bootstrap), key=doubt)

    # Which broker is responsible.

    async def _find(self, to: Target) -> int:
        """Return the id of the responsible broker, and ask for it if it is unknown."""
        node_id = self.map.node_of(to)
        if node_id is not None:
            return node_id
        async with self._finding:
            node_id = self.map.node_of(to)  # another caller may have asked meanwhile
            if node_id is None:
                await self._ask(to)
                node_id = self.map.node_of(to)
        if node_id is None:
            raise LeaderNotAvailable(f"{self.address} does not say which broker is for {to}")
        return node_id

    async def _ask(self, to: Target) -> None:
        match to:
            case PartitionLeader(topic):
                response = await self._ask_metadata([topic], create=to.create)
                topic_result(response.topics, topic)
                self.map.node_of(to)  # raises if the topic has no such partition
                self.map.check_leader(to)
            case CoordinatorNode(group):
                found: FindCoordinatorResponse = await self._exchange(
                    FIND_COORDINATOR, FindCoordinatorRequest(key=group)
                )
                check(found)
                self.map.learn_coordinator(group, found)
            case NodeById() | Some():
                await self._ask_metadata([], create=False)

    async def _ask_metadata(self, names: Sequence[str], *, create: bool) -> MetadataResponse:
        """Ask a broker for metadata and store it. With `create`, wait for the new topic to
        appear."""
        end = asyncio.get_running_loop().time() + _CREATION_S
        backoff = Backoff()
        while True:
            response: MetadataResponse = await self._exchange(METADATA, _about(names, create))
            self.map.learn(response)
            codes = {topic.error_code for topic in response.topics}
            if not create or UnknownTopicOrPartition.code not in codes:
                return response
            try:
                await pause(backoff, end)
            except LeaderNotAvailable:
                return response

    async def _exchange(self, api: Api, body: object) -> Any:
        """Ask any broker, and another one if that one does not answer."""
        failure: Exception | None = None
        for _ in range(len(self._bootstrap) + len(self.map.addresses)):
            connection = await self._any_connection()
            try:
                return await submit_or_drop(connection, body, api=api, wait_ms=0)
            except (ConnectionFailed, RequestTimedOut) as error:
                failure = error
        assert failure is not None
        raise failure

    def _moved(
        self, to: Target, lane: int, connection: ClientConnection, answer: object
    ) -> CodedError | None:
        """Return the error in an answer which says that another broker is responsible, after that
        one has been forgotten; None if there is none."""
        if self.kafka:
            failure = moved(answer, to)
            if failure is not None:
                self.map.forget(to)
            return failure
        if isinstance(answer, BaseException):
            failure = answer if isinstance(answer, NOT_IN_CHARGE) else None
        else:
            failure = first_error(answer, _NOT_IN_CHARGE_CODES)
        if failure is not None:
            self._link(self.address, lane).leave(connection)
        return failure

    def _lost(self, to: Target) -> None:
        """Forget a broker whose connection was lost, so that the responsible broker is asked for
        again."""
        node_id = self.map.node_of(to)
        if node_id is not None and self.kafka:
            self.map.forget_node(node_id)


async def _submit(connection: ClientConnection, body: object, *, api: Api, wait_ms: int) -> Any:
    return await connection.submit(api, body, wait_ms=wait_ms)


def _about(names: Sequence[str] | None, create: bool = False) -> MetadataRequest:
    topics = None if names is None else [MetadataTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)
