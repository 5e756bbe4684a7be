"""How far positions are behind in a Kafka cluster, which does not answer that itself.

The end of a partition is asked of its leader. The first message that was not read is fetched from
there, for its time.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from ...protocol.api.groups.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ...protocol.api.groups.list_groups import LIST_GROUPS, ListGroupsRequest, ListGroupsResponse
from ...protocol.api.groups.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ...protocol.api.log.fetch import FETCH, FetchResponse
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ...protocol.errors import CodedError
from ...protocol.lag import Lag, lag_seconds
from ...protocol.records.layout import TimestampType
from ..cluster.kafka_cluster import KafkaCluster
from ..cluster.targets import CoordinatorNode, NodeById, PartitionLeader
from ..consume.fetching import FetchOptions, next_offset
from ..errors import ConnectionFailed
from ..responses import check_code, partition_result
from ..results import ConsumerRecord, PositionLag
from .searching import offsets_at

_KIB: Final = 1024
_OPTIONS: Final = FetchOptions(
    min_bytes=0,
    partition_max_bytes=16 * _KIB,
    max_bytes=16 * _KIB,
    max_decompressed_bytes=64 * _KIB * _KIB,
    append_times=False,
)
"""Enough for a message; a batch that is larger comes whole."""

_AT_A_TIME: Final = 64
"""Partitions that are asked about at the same time."""


async def group_names(cluster: KafkaCluster) -> list[str]:
    """The names of all groups, sorted; each broker knows its own."""
    names: set[str] = set()
    for node_id in await cluster.node_ids():
        response: ListGroupsResponse = await cluster.request(
            LIST_GROUPS, ListGroupsRequest(), to=NodeById(node_id)
        )
        check_code(response.error_code)
        names |= {group.group_id for group in response.groups}
    return sorted(names)


async def group_lags(cluster: KafkaCluster, name: str, now_ms: int) -> list[PositionLag]:
    """All positions of a group, by topic and partition."""
    at = CoordinatorNode(name)
    response: OffsetFetchResponse = await cluster.request(
        OFFSET_FETCH, OffsetFetchRequest(group_id=name, topics=None), to=at
    )
    check_code(response.error_code)
    offsets = {
        (topic.name, result.partition): result.committed_offset
        for topic in response.topics
        for result in topic.partitions
        if result.committed_offset >= 0
    }
    described: DescribeGroupsResponse = await cluster.request(
        DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[name]), to=at
    )
    state, members = _state(described.groups)
    return await _lags(cluster, dict(sorted(offsets.items())), now_ms, state, members)


def _state(groups: Sequence[DescribedGroup]) -> tuple[str | None, int]:
    """State and number of members; None for what is only the name of positions."""
    for group in groups:
        check_code(group.error_code)
        if group.protocol_type or group.members:
            return group.group_state, len(group.members)
    return None, 0


async def lags_at_leaders(
    cluster: KafkaCluster, offsets: Mapping[tuple[str, int], int], now_ms: int
) -> list[PositionLag]:
    """Of offsets by topic and partition."""
    return await _lags(cluster, offsets, now_ms, None, 0)


async def _lags(
    cluster: KafkaCluster,
    offsets: Mapping[tuple[str, int], int],
    now_ms: int,
    group: str | None,
    members: int,
) -> list[PositionLag]:
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def one(topic: str, partition: int, offset: int) -> PositionLag:
        async with turns:
            try:
                lag = await _lag(cluster, topic, partition, offset, now_ms)
            except CodedError as error:
                return PositionLag(topic, partition, offset, None, error, group, members)
        return PositionLag(topic, partition, offset, lag, None, group, members)

    asked = [one(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    return list(await asyncio.gather(*asked))


async def _lag(cluster: KafkaCluster, topic: str, partition: int, offset: int, now_ms: int) -> Lag:
    start, end = await offsets_at(cluster, topic, partition, [EARLIEST, LATEST])
    position, end_offset = max(offset, start.offset or 0), end.offset or 0
    if position >= end_offset:
        return Lag(0, 0.0)
    first = await _first_from(cluster, topic, partition, position, end_offset)
    if first is None:  # only control batches are left
        return Lag(0, 0.0)
    first_ms = first.timestamp_ms
    estimated = first_ms is not None and first.timestamp_type is not TimestampType.LOG_APPEND_TIME
    return Lag(end_offset - position, lag_seconds(now_ms, first_ms), estimated)


async def _first_from(
    cluster: KafkaCluster, topic: str, partition: int, offset: int, end_offset: int
) -> ConsumerRecord | None:
    """The first message at or behind an offset."""
    while offset < end_offset:
        response: FetchResponse = await cluster.request(
            FETCH,
            _OPTIONS.request({(topic, partition): offset}, 0),
            to=PartitionLeader(topic, partition),
        )
        result = partition_result(response.topics, topic, partition)
        for record in _OPTIONS.records(topic, result, offset):
            return record
        behind = next_offset(result, offset)
        if behind == offset:
            raise ConnectionFailed(
                f"the leader of {topic}-{partition} gave nothing from offset {offset} on, and its "
                f"end is {end_offset}"
            )
        offset = behind
    return None
