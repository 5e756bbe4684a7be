"""Connections to a Kafka cluster. Requests go to the responsible broker: the partition leader, the
group coordinator or the controller.

A broker that is not responsible refuses a request without carrying it out. The request is then sent
again, to the broker that the cluster names, with growing waits, until the request timeout.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ...config.address import join_address
from ...protocol.api.groups.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ...protocol.api.kafka import frames as kafka
from ...protocol.api.schema import Api
from ...protocol.api.topics.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    MetadataTopicResult,
)
from ...protocol.errors import (
    NO_ERROR,
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
from ..security.security import Security
from .cluster import ClusterConnections
from .connection import ClientConnection
from .link import ClientLink
from .retry import Backoff
from .servers import scheme
from .serving import moved, pause, serve, submit_or_drop
from .targets import CoordinatorNode, NodeById, PartitionLeader, Some, Target

T = TypeVar("T")

_NOT_YET: Final = (LeaderNotAvailable, CoordinatorLoading, CoordinatorNotAvailable)
"""Errors of a cluster that has not elected a leader, coordinator or controller yet."""

_CREATION_S: Final = 3.0
"""Seconds that an automatically created topic may take to appear."""


class KafkaMap:
    """Metadata from responses; entries are removed when a broker contradicts them."""

    def __init__(self) -> None:
        self.addresses: dict[int, str] = {}
        """Addresses of the brokers, by id."""
        self._controller: int | None = None
        self._leaders: dict[tuple[str, int], int] = {}
        self._counts: dict[str, int] = {}
        self._coordinators: dict[str, int] = {}

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic; None if unknown."""
        return self._counts.get(topic)

    def node_of(self, place: Target) -> int | None:
        """Return the id of the responsible broker; None if unknown. Raises UnknownTopicOrPartition
        for a partition that the topic does not have."""
        match place:
            case PartitionLeader(topic, partition):
                node_id = self._leaders.get((topic, partition))
                count = self._counts.get(topic)
                if node_id is None and count is not None and partition >= count:
                    raise UnknownTopicOrPartition(
                        f"{topic} has no partition {partition}, only those from 0 to {count - 1}"
                    )
            case CoordinatorNode(group):
                node_id = self._coordinators.get(group)
            case NodeById(number):
                node_id = number
            case Some.CONTROLLER:
                node_id = self._controller
            case Some.ANY:
                node_id = None
        return node_id if node_id in self.addresses else None

    def learn(self, response: MetadataResponse) -> None:
        """Store the brokers and topics of a metadata response."""
        # A cluster that has just started answers loopback names with port -1.
        addresses = {
            broker.node_id: join_address(broker.host, broker.port)
            for broker in response.brokers
            if broker.port > 0
        }
        if addresses:
            self.addresses = addresses
        self._controller = response.controller_id
        for topic in response.topics:
            self.forget_topic(topic.name)
            if topic.error_code == NO_ERROR and topic.partitions:
                self._learn_topic(topic)

    def _learn_topic(self, topic: MetadataTopicResult) -> None:
        self._counts[topic.name] = len(topic.partitions)
        for partition in topic.partitions:
            # An error beside a leader is about other replicas.
            if partition.leader_id in self.addresses:
                self._leaders[topic.name, partition.partition] = partition.leader_id

    def learn_coordinator(self, group: str, response: FindCoordinatorResponse) -> None:
        """Store the coordinator of a group."""
        self.addresses[response.node_id] = join_address(response.host, response.port)
        self._coordinators[group] = response.node_id

    def check_leader(self, place: PartitionLeader) -> None:
        """Raise LeaderNotAvailable if a partition has no leader."""
        if self.node_of(place) is None:
            raise LeaderNotAvailable(f"no broker leads {place.topic}-{place.partition} now")

    def forget(self, place: Target) -> None:
        """Drop the responsible broker of a target; it turned out wrong."""
        match place:
            case PartitionLeader(topic, _):
                self.forget_topic(topic)
            case CoordinatorNode(group):
                self._coordinators.pop(group, None)
            case Some.CONTROLLER:
                self._controller = None

    def forget_topic(self, topic: str) -> None:
        """Drop the partitions of a topic and their leaders."""
        count = self._counts.pop(topic, 0)
        for partition in range(count):
            self._leaders.pop((topic, partition), None)

    def forget_node(self, node_id: int) -> None:
        """Drop everything for which a broker was responsible, because it cannot be reached."""
        led = {topic for (topic, _), leader in self._leaders.items() if leader == node_id}
        for topic in led:
            self.forget_topic(topic)
        for group in [group for group, one in self._coordinators.items() if one == node_id]:
            del self._coordinators[group]
        if self._controller == node_id:
            self._controller = None

    def addresses_with(self, others: Iterable[str]) -> list[str]:
        """Return the addresses of the brokers and `others`, without duplicates."""
        return list(dict.fromkeys((*self.addresses.values(), *others)))


class KafkaCluster(ClusterConnections):
    """One connection for each broker that is asked, and one more for fetches."""

    kafka = True
    several = True

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        client_id: str | None,
        request_timeout_ms: int,
        security: Security | None = None,
    ) -> None:
        tls = security is not None and bool(security.tls)
        self.address = scheme(kafka=True, tls=tls) + ",".join(addresses)
        self.map = KafkaMap()
        self.known_partition_count = self.map.partition_count
        self._bootstrap = tuple(addresses)
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._security = security
        self._links: dict[tuple[str, bool], ClientLink] = {}
        self._finding = asyncio.Lock()
        self._closed = False

    async def open(self) -> None:
        await self._ask_metadata([], create=False)

    async def request(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        return await self._served(
            api, to, lambda connection: connection.submit(api, body, wait_ms=wait_ms)
        )

    async def request_or_drop(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        return await self._served(
            api, to, partial(submit_or_drop, api=api, body=body, wait_ms=wait_ms)
        )

    async def request_once(self, api: Api, body: object, *, to: Target, wait_ms: int = 0) -> Any:
        return await self._served(
            api,
            to,
            lambda connection: connection.submit(api, body, wait_ms=wait_ms),
            again=False,
        )

    async def request_all(
        self, api: Api, bodies: Sequence[object], *, to: Target = Some.ANY
    ) -> list[Any]:
        async def submit(connection: ClientConnection) -> list[Any]:
            answers = [connection.submit(api, body) for body in bodies]
            return list(await asyncio.gather(*answers))

        answers: list[Any] = await self._served(api, to, submit)
        return answers

    async def send_unanswered(self, api: Api, body: object, *, to: Target) -> None:
        async def submit(connection: ClientConnection) -> None:
            connection.submit_unanswered(api, body)

        await self._served(api, to, submit)

    async def partition_count(self, topic: str) -> int:
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
        self.map.forget_topic(topic)

    def beside(self) -> ClusterConnections:
        return self  # fetches use connections of their own

    async def close(self) -> None:
        self._closed = True
        links, self._links = self._links, {}
        await asyncio.gather(*(link.close() for link in links.values()))

    async def node_ids(self) -> list[int]:
        """Return the ids of all running brokers."""
        await self._ask_metadata([], create=False)
        return sorted(self.map.addresses)

    async def topics(
        self, names: Sequence[str] | None, *, at: Target = Some.ANY
    ) -> MetadataResponse:
        """Return a broker's metadata of these topics, or of all. No topic is created."""
        response: MetadataResponse = await self.request(METADATA, _about(names), to=at)
        return response

    async def leader(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition. Raises LeaderNotAvailable,
        UnknownTopicOrPartition, ConnectionFailed."""
        return await self._find(PartitionLeader(topic, partition))

    async def fetch_connection(self, node_id: int) -> ClientConnection:
        """Return the connection for fetches that wait, so that they delay no other requests."""
        address = self.map.addresses.get(node_id)
        if address is None:
            raise ConnectionFailed(f"broker {node_id} of {self.address} is not up")
        return await self._link(address, fetches=True).connection()

    async def _served(
        self,
        api: Api,
        to: Target,
        send: Callable[[ClientConnection], Awaitable[T]],
        *,
        again: bool = True,
    ) -> T:
        """Send a request to the responsible broker, and again if another broker becomes
        responsible."""
        if api.native:
            raise UnsupportedVersion(
                f"{api.name} is a request of Horolog's own protocol and not in Kafka's, so "
                f"{self.address} cannot be asked that"
            )
        return await serve(
            api,
            send,
            connection=partial(self._connection, to),
            not_yet=(*_NOT_YET, _BrokerDown),
            lost=partial(self._lost, to),
            moved=partial(self._moved, to),
            timeout_ms=self._request_timeout_ms,
            again=again,
        )

    def _moved(self, to: Target, connection: ClientConnection, answer: object) -> CodedError | None:
        failure = moved(answer, to)
        if failure is not None:
            self.map.forget(to)
        return failure

    async def _connection(self, to: Target) -> ClientConnection:
        """Return a connection to the responsible broker. Raises `_BrokerDown` when the cluster can
        be reached, but not this broker."""
        if to is Some.ANY:
            return await self._any_connection()
        node_id = await self._find(to)
        address = self.map.addresses[node_id]
        try:
            return await self._link(address).connection()
        except ConnectionFailed as error:
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
            link = self._links.get((address, False))
            return 1 if link is None else 0 if link.connected else 2 if link.failing else 1

        return sorted(self.map.addresses_with(self._bootstrap), key=doubt)

    def _link(self, address: str, *, fetches: bool = False) -> ClientLink:
        if self._closed:
            raise ClientClosed(f"the client of {self.address} is closed")
        link = self._links.get((address, fetches))
        if link is None:
            link = self._links[address, fetches] = ClientLink(
                address,
                client_id=self._client_id,
                request_timeout_ms=self._request_timeout_ms,
                encoding=kafka,
                security=self._security,
            )
        return link

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
                return await submit_or_drop(connection, api=api, body=body, wait_ms=0)
            except (ConnectionFailed, RequestTimedOut) as error:
                failure = error
        assert failure is not None
        raise failure

    def _lost(self, to: Target) -> None:
        """Forget a broker whose connection was lost, so that the responsible broker is asked for
        again."""
        node_id = self.map.node_of(to)
        if node_id is not None:
            self.map.forget_node(node_id)


class _BrokerDown(ConnectionFailed):
    """The responsible broker cannot be reached, but others can."""


def _about(names: Sequence[str] | None, create: bool = False) -> MetadataRequest:
    topics = None if names is None else [MetadataTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


async def topic_metadata(cluster: ClusterConnections, names: Sequence[str]) -> MetadataResponse:
    """Return the metadata of these topics, or of all if `names` is empty. No topic is created."""
    if isinstance(cluster, KafkaCluster):
        return await cluster.topics(names or None)
    response: MetadataResponse = await cluster.request(
        METADATA,
        MetadataRequest(
            topics=[MetadataTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        ),
    )
    return response


async def partition_counts(cluster: ClusterConnections, names: Sequence[str]) -> dict[str, int]:
    """Return the current number of partitions of these topics. Raises UnknownTopicOrPartition."""
    found = await topic_metadata(cluster, names)
    counts: dict[str, int] = {}
    for name in names:
        try:
            counts[name] = len(topic_result(found.topics, name).partitions)
        except UnknownTopicOrPartition as error:
            window = parse_window_name(name)
            if window is None:
                raise
            why = await _why_no_window(cluster, name, window)
            raise UnknownTopicOrPartition(f"{error.message}. {why}") from error
    return counts


async def _why_no_window(cluster: ClusterConnections, name: str, window: WindowName) -> str:
    """Say why a cluster has no topic with the name of a window, and what reads the window."""
    if window.is_empty:
        return "No time is in a window that ends at or before its start"
    bases = (await topic_metadata(cluster, [window.base])).topics
    if any(base.error_code == UnknownTopicOrPartition.code for base in bases):
        return f"{name} reads as a window of {window.base}, and there is no topic {window.base}"
    said = f"{name} reads as a window of {window.base}, which only Horolog serves as a topic"
    if window.by_append:
        return f"{said}, and only Horolog has append times"
    return (
        f"{said}; elsewhere Consumer.window({window.base!r}, {window.from_ms}, {window.until_ms}) "
        "reads it, and `horolog consume` with this name"
    )
