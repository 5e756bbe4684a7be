"""Metadata of a cluster as a client knows it: the brokers, and which of them serves what."""

from collections.abc import Iterable, Mapping
from typing import Final

from ...config.address import join_address
from ...protocol.api.groups.find_coordinator import FindCoordinatorResponse
from ...protocol.api.topics.metadata import MetadataResponse, MetadataTopicResult
from ...protocol.errors import NO_ERROR, LeaderNotAvailable, UnknownTopicOrPartition
from .targets import CoordinatorNode, NodeById, PartitionLeader, Some, Target

TopicPartition = tuple[str, int]

SOLE_NODE: Final = 0
"""Id of the node of a map that has only one."""


class ClusterMap:
    """Which node serves what, learned from responses. An entry that a broker contradicts goes.

    Over the native protocol the map has one node, the leader, which serves everything.
    """

    def __init__(self, *, sole: str | None = None) -> None:
        """`sole` is the address of the only node; None if nodes are learned from responses."""
        self.addresses: dict[int, str] = {} if sole is None else {SOLE_NODE: sole}
        """Addresses of the brokers, by id."""
        self._sole = sole is not None
        self._controller: int | None = None
        self._leaders: dict[tuple[str, int], int] = {}
        self._counts: dict[str, int] = {}
        self._coordinators: dict[str, int] = {}

        self.partition_count = self._counts.get
        """Returns the number of partitions of a topic; None if unknown. Called for every message,
        so it is the dictionary's own method."""

    def node_of(self, place: Target) -> int | None:
        """Return the id of the responsible broker; None if unknown. Raises UnknownTopicOrPartition
        for a partition that the topic does not have."""
        if self._sole:
            return SOLE_NODE
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

    def by_node(
        self, offsets: Mapping[TopicPartition, int]
    ) -> tuple[dict[int, dict[TopicPartition, int]], list[TopicPartition]]:
        """Return the offsets by the node that serves the partition, and the partitions whose node
        is unknown. Raises UnknownTopicOrPartition as `node_of` does."""
        if self._sole:
            return {SOLE_NODE: dict(offsets)}, []
        found: dict[int, dict[TopicPartition, int]] = {}
        unknown: list[TopicPartition] = []
        for key, offset in offsets.items():
            node_id = self.node_of(PartitionLeader(*key))
            if node_id is None:
                unknown.append(key)
            else:
                found.setdefault(node_id, {})[key] = offset
        return found, unknown

    def learn(self, response: MetadataResponse) -> None:
        """Store the brokers and topics of a metadata response. The address of a sole node stays,
        because it is known to be reachable."""
        if not self._sole:
            self._learn_brokers(response)
        for topic in response.topics:
            self.forget_topic(topic.name)
            if topic.error_code == NO_ERROR and topic.partitions:
                self._learn_topic(topic)

    def _learn_brokers(self, response: MetadataResponse) -> None:
        # A cluster that has just started answers loopback names with port -1.
        addresses = {
            broker.node_id: join_address(broker.host, broker.port)
            for broker in response.brokers
            if broker.port > 0
        }
        if addresses:
            self.addresses = addresses
        self._controller = response.controller_id

    def _learn_topic(self, topic: MetadataTopicResult) -> None:
        self._counts[topic.name] = len(topic.partitions)
        if self._sole:
            return
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
        if self._sole:
            return
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
