"""offset-commit and offset-fetch: named positions."""

from functools import partial

from ...protocol.api.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
)
from ...protocol.api.offset_fetch import (
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
)
from ...protocol.errors import InvalidRequest, OffsetMetadataTooLarge
from ...storage.positions import Position
from .base import Call, Later, Services


def commit(
    services: Services, request: OffsetCommitRequest, call: Call
) -> OffsetCommitResponse | Later:
    """Check each position, then make the good ones durable with one write."""
    positions: list[Position] = []
    written: list[OffsetCommitPartitionResult] = []
    topics: list[OffsetCommitTopicResult] = []
    for topic in request.topics:
        results = []
        for partition in topic.partitions:
            result = OffsetCommitPartitionResult(partition=partition.partition)
            try:
                positions.append(_position(services, topic.name, partition))
                written.append(result)
            except Exception as error:
                outcome = services.outcomes.of(error, api="offset-commit")
                result.error_code, result.error_message = outcome
            results.append(result)
        topics.append(OffsetCommitTopicResult(name=topic.name, partitions=results))
    response = OffsetCommitResponse(topics=topics)
    if not positions:
        return response
    # A commit waits for the disk, so it is not made here on the loop.
    store = services.directory.positions
    ready = services.work.in_positions_thread(partial(store.commit, request.group_id, positions))

    def make() -> OffsetCommitResponse:
        error = ready.exception()
        if isinstance(error, Exception):
            outcome = services.outcomes.of(error, api="offset-commit")
            for result in written:
                result.error_code, result.error_message = outcome
        return response

    return Later(ready, make)


def _position(services: Services, topic: str, partition: OffsetCommitPartition) -> Position:
    services.logs.check_partition(topic, partition.partition)
    metadata = partition.committed_metadata or ""
    limit = services.settings.offset_metadata_max_bytes
    size = len(metadata.encode())
    if size > limit:
        raise OffsetMetadataTooLarge(
            f"the text beside the position takes {size} bytes; the limit is {limit} "
            "(offset.metadata.max.bytes)"
        )
    if partition.committed_offset < 0:
        raise InvalidRequest(f"offset {partition.committed_offset} is below 0")
    return Position(
        topic=topic,
        partition=partition.partition,
        offset=partition.committed_offset,
        timestamp_ms=partition.timestamp_ms,
        commit_time_ms=services.clock.now_ms(),
        metadata=metadata,
    )


def fetch(services: Services, request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    """The positions of a name; one that was never committed has offset -1."""
    store = services.directory.positions
    return OffsetFetchResponse(
        topics=[
            OffsetFetchTopicResult(
                name=topic.name,
                partitions=[
                    _result(partition, store.get(request.group_id, topic.name, partition))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _result(partition: int, position: Position | None) -> OffsetFetchPartitionResult:
    if position is None:
        return OffsetFetchPartitionResult(partition=partition)
    return OffsetFetchPartitionResult(
        partition=partition,
        committed_offset=position.offset,
        metadata=position.metadata,
        timestamp_ms=position.timestamp_ms,
        commit_time_ms=position.commit_time_ms,
    )
