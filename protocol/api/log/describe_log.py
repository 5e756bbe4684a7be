"""describe-log: the segments of a partition, their times, and what retention will do with each.
Kafka has no such request."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_SEGMENTS, MAX_TOPICS
from ..rights import each
from ..schema import (
    INT32,
    Api,
    ServedBy,
    array,
    boolean,
    error_text,
    int16,
    int32,
    int64,
    message,
    string,
)
from ..security.acl_terms import Operation, ResourceType


@message
class DescribeLogTopic:
    name: str = string(doc="Topic.")
    partitions: list[int] = array(INT32, max_items=MAX_PARTITIONS, doc="Partitions.")


@message
class DescribeLogRequest:
    topics: list[DescribeLogTopic] = array(DescribeLogTopic, max_items=MAX_TOPICS)
    at_ms: int = int64(
        default=-1,
        doc="A time to search for. The answer then has the steps of the search. -1: no search.",
    )


@message
class DescribedSegment:
    base_offset: int = int64(doc="Base offset of the segment.")
    next_offset: int = int64(doc="First offset after the segment.")
    size_bytes: int = int64(doc="Size of the log file.")
    largest_timestamp_ms: int = int64(
        doc="Largest timestamp of its messages from the log start on; -1 if none has a time."
    )
    largest_offset: int = int64(
        doc="Offset of the message with that timestamp; -1 if there is none."
    )
    first_timestamp_ms: int = int64(doc="Timestamp of its first message; -1 if it has none.")
    created_ms: int = int64(doc="When the segment was created.")
    modified_ms: int = int64(doc="When its log file was last written.")
    active: bool = boolean(doc="Whether this is the active segment.")
    offset_entries: int = int32(doc="Number of entries in the offset index.")
    time_entries: int = int32(doc="Number of entries in the time index.")
    verdict: str = string(doc="Verdict of retention: `kept`, `expired`, ...")
    reason: str = string(doc="Reason of the verdict.")
    expires_ms: int = int64(default=-1, doc="When it will expire by time; -1: never.")
    damage: str = string(
        default="",
        doc="The offset from which on it cannot be read, and why; empty if no damage is known.",
    )


@message
class DescribedSearch:
    offset: int = int64(
        doc="Offset of the first message, in offset order, with that time or a later one; -1 "
        "if there is none."
    )
    timestamp_ms: int = int64(doc="Its timestamp; -1 if there is none.")
    segments: int = int32(doc="Number of segments of the log.")
    ruled_out: int = int32(
        doc="How many of the oldest segments have no message of that time or later."
    )
    base_offset: int = int64(
        default=-1,
        doc="Base offset of the segment with the message; -1 if there is none, as in all "
        "fields below.",
    )
    entry_timestamp_ms: int = int64(
        default=-1,
        doc="Timestamp of the entry of its time index that was used; -1 if none was used.",
    )
    entry_offset: int = int64(
        default=-1, doc="No message below this offset is later than the entry's timestamp."
    )
    start_offset: int = int64(default=-1, doc="Offset at which reading began.")
    start_position: int = int64(default=-1, doc="Position in the log file at which reading began.")
    read_bytes: int = int64(default=-1, doc="Bytes from that position to the message.")


@message
class DescribeLogPartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 if the log could be described.")
    error_message: str | None = error_text(default=None)
    log_start_offset: int = int64(default=-1, doc="Log start offset.")
    log_end_offset: int = int64(default=-1, doc="Log end offset: the offset of the next message.")
    high_watermark: int = int64(
        default=-1, doc="High watermark: the first offset that consumers cannot read."
    )
    recovery_point: int = int64(default=-1, doc="Recovery point: everything below it is synced.")
    size_bytes: int = int64(default=-1, doc="Size of all segments.")
    segments: list[DescribedSegment] = array(
        DescribedSegment, max_items=MAX_SEGMENTS, default=(), doc="Oldest first."
    )
    now_ms: int = int64(default=-1, doc="The time that retention uses.")
    check_interval_ms: int = int64(
        default=-1, doc="How often retention checks the log (`log.retention.check.interval.ms`)."
    )
    search: list[DescribedSearch] = array(
        DescribedSearch,
        max_items=1,
        default=(),
        doc="The steps of the search for `at_ms`, if requested.",
    )


@message
class DescribeLogTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[DescribeLogPartitionResult] = array(
        DescribeLogPartitionResult, max_items=MAX_PARTITIONS
    )
    topic_id: str = string(
        default="", doc="Topic id, as in metadata; empty if the topic does not exist."
    )


@message
class DescribeLogResponse:
    topics: list[DescribeLogTopicResult] = array(DescribeLogTopicResult, max_items=MAX_TOPICS)


DESCRIBE_LOG: Final = Api(
    key=1000,
    name="describe-log",
    min_version=0,
    max_version=0,
    request=DescribeLogRequest,
    response=DescribeLogResponse,
    doc="Describe offsets, segments and retention verdicts of partitions.",
    native=True,
    rights=(each(Operation.DESCRIBE, ResourceType.TOPIC),),
    served_by=ServedBy.ANY_BROKER,
)
