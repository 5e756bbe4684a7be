"""How far positions are behind, as a Horolog broker knows it: one request for many of them."""

from collections.abc import Mapping

from ...protocol.api.groups.offset_fetch import (
    LIST_NAMES,
    LIST_POSITIONS,
    OFFSET_FETCH,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from ...protocol.errors import NO_ERROR, error_from_code
from ...protocol.lag import Lag
from ..cluster.cluster import ClusterConnections
from ..cluster.kafka_cluster import KafkaCluster
from ..results import PositionLag as PositionLag
from .kafka_lagging import group_lags, group_names, lags_at_leaders


async def position_names(cluster: ClusterConnections) -> list[str]:
    """The names under which positions are stored, sorted."""
    if isinstance(cluster, KafkaCluster):
        return await group_names(cluster)
    names: list[str] = []
    more = True
    while more:
        request = OffsetFetchRequest(
            group_id="", topics=[], listing=LIST_NAMES, after=names[-1] if names else ""
        )
        response: OffsetFetchResponse = await cluster.request(OFFSET_FETCH, request)
        names += response.names
        more = response.more
    return names


async def lags_of(cluster: ClusterConnections, name: str, *, now_ms: int) -> list[PositionLag]:
    """All positions under `name`, by topic and partition; empty when there are none."""
    if isinstance(cluster, KafkaCluster):
        return await group_lags(cluster, name, now_ms)
    found: list[PositionLag] = []
    more = True
    while more:
        after = found[-1].topic if found else ""
        request = OffsetFetchRequest(
            group_id=name, topics=[], listing=LIST_POSITIONS, after=after, lag=True
        )
        response: OffsetFetchResponse = await cluster.request(OFFSET_FETCH, request)
        found += _lags(response)
        more = response.more
    return found


async def lags_at(
    cluster: ClusterConnections, offsets: Mapping[tuple[str, int], int], *, now_ms: int
) -> list[PositionLag]:
    """Of offsets by topic and partition, whether they are stored or not.

    Their pace is not known, so there is no time to catch up. A broker goes by its own clock; for
    a Kafka cluster, which answers no lag, `now_ms` is the time of now.
    """
    if isinstance(cluster, KafkaCluster):
        return await lags_at_leaders(cluster, offsets, now_ms)
    topics: dict[str, OffsetFetchTopic] = {}
    for (name, partition), offset in offsets.items():
        topic = topics.setdefault(name, OffsetFetchTopic(name=name, partitions=[], offsets=[]))
        topic.partitions.append(partition)
        topic.offsets.append(offset)
    request = OffsetFetchRequest(group_id="", topics=list(topics.values()), lag=True)
    return _lags(await cluster.request(OFFSET_FETCH, request))


def _lags(response: OffsetFetchResponse) -> list[PositionLag]:
    return [
        _lag(topic.name, result, response)
        for topic in response.topics
        for result in topic.partitions
    ]


def _lag(
    topic: str, result: OffsetFetchPartitionResult, response: OffsetFetchResponse
) -> PositionLag:
    partition, offset = result.partition, result.committed_offset
    group = response.group_state or None
    if result.error_code != NO_ERROR:
        error = error_from_code(result.error_code, result.error_message)
        return PositionLag(topic, partition, offset, None, error, group, response.group_members)
    lag = Lag(
        result.lag, _seconds(result.lag_ms), result.lag_estimated, _seconds(result.catch_up_ms)
    )
    return PositionLag(topic, partition, offset, lag, None, group, response.group_members)


def _seconds(ms: int) -> float | None:
    return None if ms < 0 else ms / 1000
