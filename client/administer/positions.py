"""Committed positions: the requests that commit and fetch them.

A Kafka cluster stores them as the offsets of the group with that name. It has no field for a
message's time, so the time is put in front of the offset's metadata text.
"""

from collections.abc import Iterable
from typing import Final

from ...protocol.api.groups.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ...protocol.api.groups.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from ...values import value_class
from ..cluster.route import Route
from ..cluster.targets import CoordinatorNode
from ..responses import check_code, partition_result
from ..results import CommittedPosition

_TIME: Final = "horolog:timestamp_ms="


@value_class
class Position:
    """Position in a partition: the next offset to read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None = None
    """Timestamp of the last message read; None if unknown."""
    metadata: str = ""


@value_class
class CommittingMember:
    """The member of a consumer group that commits; the defaults are for positions that no group
    guards."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


_NO_MEMBER: Final = CommittingMember()


async def commit(
    cluster: Route,
    name: str,
    positions: Iterable[Position],
    *,
    committer: CommittingMember = _NO_MEMBER,
) -> None:
    """Commit positions under `name`. They are durable on return. Raises the error of the first
    position that was refused."""
    topics: dict[str, list[OffsetCommitPartition]] = {}
    for position in positions:
        topics.setdefault(position.topic, []).append(
            OffsetCommitPartition(
                partition=position.partition,
                committed_offset=position.offset,
                committed_metadata=_text(position) if cluster.kafka else position.metadata,
                timestamp_ms=-1 if position.timestamp_ms is None else position.timestamp_ms,
            )
        )
    request = OffsetCommitRequest(
        group_id=name,
        generation_id=committer.generation,
        member_id=committer.member_id,
        group_instance_id=committer.instance_id,
        topics=[
            OffsetCommitTopic(name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )
    response: OffsetCommitResponse = await cluster.request(
        OFFSET_COMMIT, request, to=CoordinatorNode(name)
    )
    for topic, partitions in topics.items():
        for partition in partitions:
            partition_result(response.topics, topic, partition.partition)


async def committed(
    cluster: Route, name: str, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], CommittedPosition | None]:
    """Return the last positions committed under `name`; None for a partition without one."""
    wanted: dict[str, list[int]] = {}
    for topic, partition in partitions:
        wanted.setdefault(topic, []).append(partition)
    request = OffsetFetchRequest(
        group_id=name,
        topics=[
            OffsetFetchTopic(name=topic, partitions=numbers) for topic, numbers in wanted.items()
        ],
    )
    response: OffsetFetchResponse = await cluster.request(
        OFFSET_FETCH, request, to=CoordinatorNode(name)
    )
    check_code(response.error_code)
    found: dict[tuple[str, int], CommittedPosition | None] = {}
    for topic, numbers in wanted.items():
        for partition in numbers:
            result = partition_result(response.topics, topic, partition)
            found[topic, partition] = None
            if result.committed_offset != -1:
                found[topic, partition] = _position(topic, result, kafka=cluster.kafka)
    return found


def _position(topic: str, result: OffsetFetchPartitionResult, *, kafka: bool) -> CommittedPosition:
    text = result.metadata or ""
    if kafka:
        timestamp_ms, text = _split(text)
        return CommittedPosition(
            topic, result.partition, result.committed_offset, timestamp_ms, None, text
        )
    return CommittedPosition(
        topic,
        result.partition,
        result.committed_offset,
        None if result.timestamp_ms == -1 else result.timestamp_ms,
        result.commit_time_ms,
        text,
    )


def _text(position: Position) -> str:
    if position.timestamp_ms is None:
        return position.metadata
    return f"{_TIME}{position.timestamp_ms};{position.metadata}"


def _split(text: str) -> tuple[int | None, str]:
    """Split the metadata text into the time of the last message read and the application's text."""
    number, end, rest = text.removeprefix(_TIME).partition(";")
    if not text.startswith(_TIME) or not end or not number.isascii() or not number.isdigit():
        return None, text
    return int(number), rest
