"""Named positions: stored on the broker, and asked for again."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..protocol.api.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ..protocol.api.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from .cluster import Cluster
from .responses import partition_result
from .results import CommittedPosition


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read in a partition."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None = None
    """Of the last message read; None when that is not known."""
    metadata: str = ""


async def commit(cluster: Cluster, name: str, positions: Iterable[Position]) -> None:
    """Store positions under `name`; they are durable on return. Raises what is refused of one."""
    topics: dict[str, list[OffsetCommitPartition]] = {}
    for position in positions:
        topics.setdefault(position.topic, []).append(
            OffsetCommitPartition(
                partition=position.partition,
                committed_offset=position.offset,
                committed_metadata=position.metadata,
                timestamp_ms=-1 if position.timestamp_ms is None else position.timestamp_ms,
            )
        )
    request = OffsetCommitRequest(
        group_id=name,
        topics=[
            OffsetCommitTopic(name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )
    response: OffsetCommitResponse = await cluster.request(OFFSET_COMMIT, request)
    for topic, partitions in topics.items():
        for partition in partitions:
            partition_result(response.topics, topic, partition.partition)


async def committed(
    cluster: Cluster, name: str, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], CommittedPosition | None]:
    """The positions committed last under `name`; None where there is none."""
    wanted: dict[str, list[int]] = {}
    for topic, partition in partitions:
        wanted.setdefault(topic, []).append(partition)
    request = OffsetFetchRequest(
        group_id=name,
        topics=[
            OffsetFetchTopic(name=topic, partitions=numbers) for topic, numbers in wanted.items()
        ],
    )
    response: OffsetFetchResponse = await cluster.request(OFFSET_FETCH, request)
    found: dict[tuple[str, int], CommittedPosition | None] = {}
    for topic, numbers in wanted.items():
        for partition in numbers:
            result = partition_result(response.topics, topic, partition)
            found[topic, partition] = None
            if result.committed_offset != -1:
                found[topic, partition] = CommittedPosition(
                    topic,
                    partition,
                    result.committed_offset,
                    None if result.timestamp_ms == -1 else result.timestamp_ms,
                    result.commit_time_ms,
                    result.metadata or "",
                )
    return found
