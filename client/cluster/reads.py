"""Requests that a follower may answer, and what their answers say of where partitions end."""

from collections.abc import Iterator
from typing import Any

from ...protocol.api.log.count_by_time import CountByTimeRequest
from ...protocol.api.log.fetch import FetchRequest
from ...protocol.api.log.list_offsets import LATEST, ListOffsetsRequest
from ...protocol.api.schema import replaced
from ...protocol.errors import NO_ERROR
from .replicas import TopicPartition

Seen = dict[TopicPartition, int]
"""The largest high watermark of each partition that a client has got in an answer."""


def allowing_follower(body: Any, seen: Seen) -> Any:
    """A copy of a read that a follower may answer which has all that the client has seen."""
    if isinstance(body, CountByTimeRequest):
        seen_offset = seen.get((body.topic, body.partition), -1)
        return replaced(body, allow_follower=True, seen_offset=seen_offset)
    if isinstance(body, ListOffsetsRequest):
        topics = [
            replaced(
                topic,
                partitions=[
                    replaced(one, seen_offset=seen.get((topic.name, one.partition), -1))
                    for one in topic.partitions
                ],
            )
            for topic in body.topics
        ]
        return replaced(body, allow_follower=True, topics=topics)
    assert isinstance(body, FetchRequest)
    return replaced(body, allow_follower=True)


def note_ends(body: Any, answer: Any, seen: Seen) -> bool:
    """Take over the high watermarks of an answer; says whether it comes from a follower that
    is behind what was seen before. What the leader answers counts, even if it is less."""
    from_leader = answer.follower_heard_ms < 0
    behind = False
    for key, offset in _ends(body, answer):
        known = seen.get(key, -1)
        behind = behind or (offset < known and not from_leader)
        seen[key] = offset if from_leader else max(offset, known)
    return behind


def _ends(body: Any, answer: Any) -> Iterator[tuple[TopicPartition, int]]:
    if isinstance(body, CountByTimeRequest):
        if answer.error_code == NO_ERROR and body.end_offset < 0:
            yield (body.topic, body.partition), answer.end_offset
        return
    targets = {}
    if isinstance(body, ListOffsetsRequest):
        targets = {
            (topic.name, one.partition): one.timestamp
            for topic in body.topics
            for one in topic.partitions
        }
    for topic in answer.topics:
        for one in topic.partitions:
            key = topic.name, one.partition
            if one.error_code != NO_ERROR:
                continue
            if not targets:
                yield key, one.high_watermark
            elif targets.get(key) == LATEST:
                yield key, one.offset
