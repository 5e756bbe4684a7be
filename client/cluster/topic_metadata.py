"""What a broker or cluster says of topics: their partitions."""

from collections.abc import Sequence

from ...protocol.api.topics.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    MetadataTopicResult,
)
from ...protocol.errors import UnknownTopicOrPartition
from ...protocol.window_topics import parse_window_name
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
    return {name: len(_named(found.topics, name).partitions) for name in names}


def _named(topics: Sequence[MetadataTopicResult], name: str) -> MetadataTopicResult:
    try:
        return topic_result(topics, name)
    except UnknownTopicOrPartition as error:
        window = parse_window_name(name)
        if window is None:
            raise
        raise UnknownTopicOrPartition(
            f"{error.message}. {name} reads as a window of {window.base}, which only Horolog serves"
            f" as a topic; elsewhere Consumer.window({window.base!r}, {window.from_ms}, "
            f"{window.until_ms}) reads it, and `horolog consume` with this name"
        ) from error
