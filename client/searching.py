"""Offsets by time, for consumers and administration alike."""

from collections.abc import Sequence

from ..protocol.api.list_offsets import (
    LARGEST,
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from .cluster import Cluster
from .responses import partition_result
from .results import AfterEnd, FindResult, Found, NoTimestamps, OffsetAt


async def offsets_at(
    cluster: Cluster, topic: str, partition: int, targets: Sequence[int]
) -> list[OffsetAt]:
    """One answer for each target (epoch ms or a sentinel), served in this order."""
    bodies = [
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition=partition, timestamp=target)],
                )
            ]
        )
        for target in targets
    ]
    answers = []
    for response in await cluster.request_all(LIST_OFFSETS, bodies):
        result = partition_result(response.topics, topic, partition)
        answers.append(OffsetAt(_known(result.offset), _known(result.timestamp)))
    return answers


def _known(number: int) -> int | None:
    return None if number == -1 else number


async def find_offset(cluster: Cluster, topic: str, partition: int, target_ms: int) -> FindResult:
    """The first message at or after a time, or why there is none.

    The end is asked for before the search: a message appended between the two is then not
    skipped by who reads on from the end.
    """
    end, found, largest = await offsets_at(cluster, topic, partition, (LATEST, target_ms, LARGEST))
    if found.offset is not None and found.timestamp_ms is not None:
        return Found(found.offset, found.timestamp_ms)
    if largest.offset is None:
        return NoTimestamps()
    return AfterEnd(end.offset or 0)
