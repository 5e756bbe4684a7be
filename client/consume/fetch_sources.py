"""Where a consumer's messages come from, by what it is connected to."""

from ...protocol.errors import UnsupportedVersion
from ..cluster.cluster import ClusterConnections
from ..cluster.kafka_cluster import KafkaCluster
from ..cluster.one_broker import OneBroker
from .fetches import Arrived, Fetches
from .fetching import FetchOptions
from .kafka_fetches import KafkaFetches
from .one_broker_fetches import OneBrokerFetches


def fetches_of(cluster: ClusterConnections, options: FetchOptions, arrived: Arrived) -> Fetches:
    """The fetches of one consumer. Raises UnsupportedVersion for what Kafka has not."""
    if isinstance(cluster, KafkaCluster):
        if options.append_times:
            raise UnsupportedVersion(
                "append_times: Kafka's protocol does not tell when a message was appended; on a "
                "topic with message.timestamp.type=LogAppendTime its own time is the append time"
            )
        return KafkaFetches(cluster, options, arrived)
    assert isinstance(cluster, OneBroker)
    return OneBrokerFetches(cluster, options, arrived)
