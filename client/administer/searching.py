"""Requests for offsets by time, used by consumer and admin."""

from collections.abc import Sequence
from typing import Literal

from ...protocol.api.log.list_offsets import (
    BY_APPEND,
    BY_TIMESTAMP,
    LARGEST,
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ...protocol.errors import UnsupportedVersion
from ..cluster.route import Route
from ..cluster.targets import PartitionLeader
from ..responses import partition_result
from ..results import AfterEnd, FindResult, Found, NoTimestamps, OffsetAt
from .gone import removed_since

By = Literal["timestamp", "append"]
"""The time that a search compares: messages' timestamps, or their append times."""


async def offsets_at(
    cluster: Route,
    topic: str,
    partition: int,
    targets: Sequence[int],
    *,
    by: By = BY_TIMESTAMP,
) -> list[OffsetAt]:
    """Return one answer for each target (epoch milliseconds or a sentinel). The broker serves the
    targets in this order.

    Raises UnsupportedVersion for a search that a Kafka cluster does not support.
    """
    if by not in (BY_TIMESTAMP, BY_APPEND):
        raise ValueError(f"a search goes by {BY_TIMESTAMP!r} or {BY_APPEND!r}, not {by!r}")
    if cluster.kafka and by == BY_APPEND:
        raise UnsupportedVersion(
            "Kafka's protocol has no search by append time; on a topic with "
            "message.timestamp.type=LogAppendTime the messages' own times are append times"
        )
    if cluster.kafka and LARGEST in targets:
        raise UnsupportedVersion(
            "the list-offsets requests of Kafka's protocol that are spoken here (versions 1 to "
            f"{LIST_OFFSETS.max_version}) do not ask for the message with the largest time"
        )
    # A broker of an earlier version does not know the field `by`.
    named_by = "" if by == BY_TIMESTAMP else by
    bodies = [
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition=partition, timestamp=target, by=named_by)
                    ],
                )
            ]
        )
        for target in targets
    ]
    answers = []
    leader = PartitionLeader(topic, partition)
    for response in await cluster.request_all(LIST_OFFSETS, bodies, to=leader):
        result = partition_result(response.topics, topic, partition)
        answers.append(
            OffsetAt(
                _known(result.offset), _known(result.timestamp), _known(result.complete_from_ms)
            )
        )
    return answers


def _known(number: int) -> int | None:
    return None if number == -1 else number


async def find_offset(
    cluster: Route,
    topic: str,
    partition: int,
    target_ms: int,
    *,
    by: By = BY_TIMESTAMP,
) -> FindResult:
    """Find the first message at or after a time, or the reason why there is none.

    The end is requested before the search: a caller that continues at the end does not miss a
    message appended between the two requests.
    """
    any_time = LARGEST if by == BY_TIMESTAMP and not cluster.kafka else 0
    targets = (LATEST, target_ms, any_time)
    end, found, with_time = await offsets_at(cluster, topic, partition, targets, by=by)
    complete_from_ms = found.complete_from_ms
    removed = await removed_since(
        *(cluster, topic, {partition: complete_from_ms}, target_ms), by_append=by == BY_APPEND
    )
    if found.offset is not None and found.timestamp_ms is not None:
        return Found(found.offset, found.timestamp_ms, complete_from_ms, removed)
    if with_time.offset is None:
        return NoTimestamps(complete_from_ms, removed)
    return AfterEnd(end.offset or 0, complete_from_ms, removed)
