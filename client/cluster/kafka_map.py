"""What is known of a Kafka cluster: its brokers, and who is in charge of what. No I/O."""

from collections.abc import Iterable

from ...config.address import join_address
from ...protocol.api.groups.find_coordinator import FindCoordinatorResponse
from ...protocol.api.topics.metadata import MetadataResponse, MetadataTopicResult
from ...protocol.errors import NO_ERROR, LeaderNotAvailable, UnknownTopicOrPartition
from .targets import CoordinatorNode, NodeById, PartitionLeader, Some, Target


class KafkaMap:
    """Filled by answers, and emptied where a broker says otherwise."""

    def __init__(self) -> None:
        self.addresses: dict[int, str] = {}
        """Of the brokers, by id."""
        self._controller: int | None = None
        self._leaders: dict[tuple[str, int], int] = {}
        self._counts: dict[str, int] = {}
        self._coordinators: dict[str, int] = {}

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, if that is known."""
        return self._counts.get(topic)

    def node_of(self, place: Target) -> int | None:
        """The id of a broker, if that is known. Raises UnknownTopicOrPartition for a partition
        that its topic does not have."""
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
        """Take over what a broker says of the cluster, and of the topics in its answer."""
        # The loopback names of a cluster that has just begun to start come with port -1.
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
            # An error beside a leader is about other copies.
            if partition.leader_id in self.addresses:
                self._leaders[topic.name, partition.partition] = partition.leader_id

    def learn_coordinator(self, group: str, response: FindCoordinatorResponse) -> None:
        """Take over who looks after a group."""
        self.addresses[response.node_id] = join_address(response.host, response.port)
        self._coordinators[group] = response.node_id

    def check_leader(self, place: PartitionLeader) -> None:
        """Raise LeaderNotAvailable when a partition has no leader."""
        if self.node_of(place) is None:
            raise LeaderNotAvailable(f"no broker leads {place.topic}-{place.partition} now")

    def forget(self, place: Target) -> None:
        """What was known of a place turned out wrong."""
        match place:
            case PartitionLeader(topic, _):
                self.forget_topic(topic)
            case CoordinatorNode(group):
                self._coordinators.pop(group, None)
            case Some.CONTROLLER:
                self._controller = None

    def forget_topic(self, topic: str) -> None:
        """The same of all partitions of a topic."""
        count = self._counts.pop(topic, 0)
        for partition in range(count):
            self._leaders.pop((topic, partition), None)

    def forget_node(self, node_id: int) -> None:
        """A broker cannot be reached: who is in charge in its stead is not known."""
        led = {topic for (topic, _), leader in self._leaders.items() if leader == node_id}
        for topic in led:
            self.forget_topic(topic)
        for group in [group for group, one in self._coordinators.items() if one == node_id]:
            del self._coordinators[group]
        if self._controller == node_id:
            self._controller = None

    def addresses_with(self, others: Iterable[str]) -> list[str]:
        """The addresses of the brokers and `others`, each once."""
        return list(dict.fromkeys((*self.addresses.values(), *others)))
