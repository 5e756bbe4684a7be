"""What a broker or cluster says of topics: their partitions."""

from collections.abc import Sequence

from ...protocol.api.topics.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from ..responses import topic_result
from .cluster import ClusterConnections
from .kafka_cluster import KafkaCluster


async def topic_metadata(cluster: ClusterConnections, names: Sequence[str]) -> MetadataResponse:
    """Of these topics; of all if there are none. None is created."""
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
    """How many partitions these topics have now. Raises UnknownTopicOrPartition."""
    found = await topic_metadata(cluster, names)
    return {name: len(topic_result(found.topics, name).partitions) for name in names}
