"""list-offsets: find the offset that belongs to a time."""

from types import MappingProxyType
from typing import Final

from ...limits import MAX_OLD_STYLE_OFFSETS, MAX_PARTITIONS, MAX_TOPICS
from ..rights import each
from ..schema import (
    INT64,
    Api,
    ServedBy,
    allow_follower,
    array,
    current_leader_epoch,
    error_text,
    flexible_since,
    follower_heard_ms,
    int8,
    int16,
    int32,
    int64,
    message,
    seen_offset,
    string,
)
from ..security.acl_terms import Operation, ResourceType

LATEST: Final = -1
"""Target for the log end: the offset that the next message will get."""

EARLIEST: Final = -2
"""Target for the first offset still stored."""

LARGEST: Final = -3
"""Target for the first message with the largest timestamp."""

OF_TIERS: Final = MappingProxyType(
    {
        -4: "the first offset on the broker's own disk (earliest-local)",
        -5: "the last offset in remote storage (latest-tiered)",
    }
)
"""Kafka's targets for tiered storage."""

BY_TIMESTAMP: Final = "timestamp"
BY_APPEND: Final = "append"
"""Values of `by`: which time a search compares."""


@message
class ListOffsetsPartition:
    partition: int = int32(doc="Partition to search.")
    current_leader_epoch: int = current_leader_epoch(since=4)
    timestamp: int = int64(
        doc="Target in ms since the epoch. -1: the end. -2: the start. -3: the message with "
        "the largest timestamp."
    )
    max_num_offsets: int = int32(until=0, default=1, doc="Largest number of offsets to return.")
    by: str = string(
        native=True,
        default="",
        doc="`append`: search the first message that was appended at or after the target, by "
        "known append times; from version 1 on. `timestamp`, or empty: search by timestamps.",
    )
    seen_offset: int = seen_offset(since=2)


@message
class ListOffsetsTopic:
    name: str = string(doc="Topic.")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, max_items=MAX_PARTITIONS)


@flexible_since(6)
@message
class ListOffsetsRequest:
    replica_id: int = int32(default=-1, doc="-1 for a consumer.")
    isolation_level: int = int8(
        since=2, default=0, doc="0: read uncommitted. 1: the end (-1) is the last stable offset."
    )
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, max_items=MAX_TOPICS)
    allow_follower: bool = allow_follower(since=2)


@message
class ListOffsetsPartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 if the partition could be searched.")
    old_style_offsets: list[int] = array(
        INT64,
        max_items=MAX_OLD_STYLE_OFFSETS,
        until=0,
        default=(),
        doc="In descending order: the offset that was found, then base offsets of older segments.",
    )
    timestamp: int = int64(
        since=1,
        default=-1,
        doc="Timestamp of the message, or with `by` = `append` its append time; -1 if there "
        "is none, or if it was not requested.",
    )
    offset: int = int64(
        since=1, default=-1, doc="Offset of the first message at or after the target, or -1."
    )
    leader_epoch: int = int32(
        since=4,
        default=-1,
        doc="Leader epoch of the message that was found, or of the leader if the target is "
        "-1. -1 if not known, and at a single broker.",
    )
    error_message: str | None = error_text(native=True, default=None)
    complete_from_ms: int = int64(
        native=True,
        default=-1,
        doc="For a target that is a time, or -1, from version 1 on: the time, by `by`, from which "
        "on no message has left the partition. 0: none has left it; -1: it is not known. If the "
        "topic is a window: the same by the times of the window, and 0 if no message that left the "
        "partition was in the window.",
    )


@message
class ListOffsetsTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[ListOffsetsPartitionResult] = array(
        ListOffsetsPartitionResult, max_items=MAX_PARTITIONS
    )


@flexible_since(6)
@message
class ListOffsetsResponse:
    throttle_time_ms: int = int32(
        since=2, default=0, doc="How long the client is throttled, in ms."
    )
    topics: list[ListOffsetsTopicResult] = array(ListOffsetsTopicResult, max_items=MAX_TOPICS)
    follower_heard_ms: int = follower_heard_ms(since=2)


LIST_OFFSETS: Final = Api(
    key=2,
    name="list-offsets",
    min_version=0,
    max_version=7,
    native_max_version=2,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
    doc="Find the first message, in offset order, whose timestamp is at or after the target.",
    rights=(each(Operation.DESCRIBE, ResourceType.TOPIC),),
    served_by=ServedBy.LEADER_OR_FOLLOWER,
)
