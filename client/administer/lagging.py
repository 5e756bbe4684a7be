"""How far positions are behind: as a Horolog broker knows it, one request for many of them; and in
a Kafka cluster, which does not answer that itself.

In a Kafka cluster the end of a partition is asked of its leader. The first message that was not
read is fetched from there, for its time.
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
    LIST_NAMES,
    LIST_POSITIONS,
    OFFSET_FETCH,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from ...protocol.api.log.fetch import FETCH, FetchResponse
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ...protocol.errors import NO_ERROR, CodedError, error_from_code
from ...protocol.lag import Lag, lag_seconds
from ...protocol.records.layout import TimestampType
from ..cluster.route import Route
from ..cluster.targets import CoordinatorNode, NodeById, PartitionLeader
from ..consume.fetching import FetchOptions, next_offset
from ..errors import ConnectionFailed
from ..responses import check_code, partition_result
from ..results import ConsumerRecord
from ..results import PositionLag as PositionLag
from .searching import offsets_at

_KIB: Final = 1024
_OPTIONS: Final = FetchOptions(
    min_bytes=0,
    partition_max_bytes=16 * _KIB,
    max_bytes=16 * _KIB,
    max_decompressed_bytes=64 * _KIB * _KIB,
    append_times=False,
)
"""Options of a fetch for one message. A batch above the limit is returned whole."""

_AT_A_TIME: Final = 64
"""Number of partitions asked about concurrently."""


async def position_names(cluster: Route) -> list[str]:
    """Return the names under which positions are committed, sorted."""
    if cluster.kafka:
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


async def lags_of(cluster: Route, name: str, *, now_ms: int) -> list[PositionLag]:
    """Return the lag of all positions under `name`, by topic and partition; empty when there are
    none."""
    if cluster.kafka:
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
    cluster: Route, offsets: Mapping[tuple[str, int], int], *, now_ms: int
) -> list[PositionLag]:
    """Return the lag of the given offsets, committed or not, by topic and partition.

    The reading pace is unknown, so there is no estimate of the time to catch up. A broker uses its
    own clock; for a Kafka cluster, which does not answer a lag, `now_ms` is the current time.
    """
    if cluster.kafka:
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
    moved_at_ms = None if result.moved_ms < 0 else result.moved_ms
    if result.error_code != NO_ERROR:
        error = error_from_code(result.error_code, result.error_message)
        return PositionLag(
            topic, partition, offset, None, error, group, response.group_members, None, moved_at_ms
        )
    lag = Lag(
        result.lag, _seconds(result.lag_ms), result.lag_estimated, _seconds(result.catch_up_ms)
    )
    return PositionLag(
        topic,
        partition,
        offset,
        lag,
        group=group,
        members=response.group_members,
        end_offset=None if result.end_offset < 0 else result.end_offset,
        moved_at_ms=moved_at_ms,
    )


def _seconds(ms: int) -> float | None:
    return None if ms < 0 else ms / 1000


async def group_names(cluster: Route) -> list[str]:
    """Return the names of all groups, sorted. Each broker lists the groups that it coordinates."""
    names: set[str] = set()
    for node_id in await cluster.node_ids():
        response: ListGroupsResponse = await cluster.request(
            LIST_GROUPS, ListGroupsRequest(), to=NodeById(node_id)
        )
        check_code(response.error_code)
        names |= {group.group_id for group in response.groups}
    return sorted(names)


async def group_lags(cluster: Route, name: str, now_ms: int) -> list[PositionLag]:
    """Return the lag of all positions of a group, by topic and partition."""
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
    return await _kafka_lags(cluster, dict(sorted(offsets.items())), now_ms, state, members)


def _state(groups: Sequence[DescribedGroup]) -> tuple[str | None, int]:
    """Return the group's state and number of members; None, 0 for a name that only stores
    positions."""
    for group in groups:
        check_code(group.error_code)
        if group.protocol_type or group.members:
            return group.group_state, len(group.members)
    return None, 0


async def lags_at_leaders(
    cluster: Route, offsets: Mapping[tuple[str, int], int], now_ms: int
) -> list[PositionLag]:
    """Return the lag of the given offsets, by topic and partition."""
    return await _kafka_lags(cluster, offsets, now_ms, None, 0)


async def _kafka_lags(
    cluster: Route,
    offsets: Mapping[tuple[str, int], int],
    now_ms: int,
    group: str | None,
    members: int,
) -> list[PositionLag]:
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def one(topic: str, partition: int, offset: int) -> PositionLag:
        async with turns:
            try:
                lag, end = await _kafka_lag(cluster, topic, partition, offset, now_ms)
            except CodedError as error:
                return PositionLag(topic, partition, offset, None, error, group, members)
        return PositionLag(topic, partition, offset, lag, None, group, members, end)

    asked = [one(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    return list(await asyncio.gather(*asked))


async def _kafka_lag(
    cluster: Route, topic: str, partition: int, offset: int, now_ms: int
) -> tuple[Lag, int]:
    start, end = await offsets_at(cluster, topic, partition, [EARLIEST, LATEST])
    position, end_offset = max(offset, start.offset or 0), end.offset or 0
    if position >= end_offset:
        return Lag(0, 0.0), end_offset
    first = await _first_from(cluster, topic, partition, position, end_offset)
    if first is None:  # only control batches follow
        return Lag(0, 0.0), end_offset
    first_ms = first.timestamp_ms
    estimated = first_ms is not None and first.timestamp_type is not TimestampType.LOG_APPEND_TIME
    lag = Lag(end_offset - position, lag_seconds(now_ms, first_ms), estimated)
    return lag, end_offset


async def _first_from(
    cluster: Route, topic: str, partition: int, offset: int, end_offset: int
) -> ConsumerRecord | None:
    """Return the first message at or after an offset; None if only control batches follow. Raises
    ConnectionFailed if the leader returns nothing."""
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
