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
        doc="A time to search; the answer has the steps of the search. -1 searches nothing.",
    )


@message
class DescribedSegment:
    base_offset: int = int64(doc="First offset the segment may hold.")
    next_offset: int = int64(doc="First offset after it.")
    size_bytes: int = int64(doc="Size of the log file.")
    largest_timestamp_ms: int = int64(
        doc="Largest timestamp of its messages from the log start on; -1 when none."
    )
    largest_offset: int = int64(doc="Offset of the message that has it; -1 when none.")
    first_timestamp_ms: int = int64(doc="Timestamp of its first message; -1 when none.")
    created_ms: int = int64(doc="When the segment was created.")
    modified_ms: int = int64(doc="When its log file was last written.")
    active: bool = boolean(doc="True for the segment that is appended to.")
    offset_entries: int = int32(doc="Entries of the offset index.")
    time_entries: int = int32(doc="Entries of the time index.")
    verdict: str = string(doc="What retention does with it: `kept`, `expired`, ...")
    reason: str = string(doc="Why.")
    expires_ms: int = int64(default=-1, doc="When it will expire by time; -1 when never.")
    damage: str = string(
        default="", doc="From where on it cannot be read, and why; empty when no damage is known."
    )


@message
class DescribedSearch:
    offset: int = int64(
        doc="First message of the time or later, in offset order; -1 when there is none."
    )
    timestamp_ms: int = int64(doc="Its timestamp; -1 when there is none.")
    segments: int = int32(doc="How many segments the log has.")
    ruled_out: int = int32(
        doc="How many of them, the oldest, have no message of that time or later."
    )
    base_offset: int = int64(
        default=-1, doc="The segment that has the message; -1 when there is none, as in all below."
    )
    entry_timestamp_ms: int = int64(
        default=-1, doc="The entry of its time index that was used; -1 when none was."
    )
    entry_offset: int = int64(
        default=-1, doc="No message below this offset is later than the entry's timestamp."
    )
    start_offset: int = int64(default=-1, doc="Where reading began.")
    start_position: int = int64(default=-1, doc="The same as a byte of the log file.")
    read_bytes: int = int64(default=-1, doc="Bytes from there to the message.")


@message
class DescribeLogPartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 when the log could be described.")
    error_message: str | None = error_text(default=None)
    log_start_offset: int = int64(default=-1, doc="First offset stored.")
    log_end_offset: int = int64(default=-1, doc="Offset that the next message will get.")
    high_watermark: int = int64(default=-1, doc="First offset not yet readable.")
    recovery_point: int = int64(default=-1, doc="Everything below it is on disk.")
    size_bytes: int = int64(default=-1, doc="Size of all segments.")
    segments: list[DescribedSegment] = array(
        DescribedSegment, max_items=MAX_SEGMENTS, default=(), doc="Oldest first."
    )
    now_ms: int = int64(default=-1, doc="The time that retention goes by.")
    check_interval_ms: int = int64(
        default=-1, doc="How often retention looks at the log (`log.retention.check.interval.ms`)."
    )
    search: list[DescribedSearch] = array(
        DescribedSearch, max_items=1, default=(), doc="How the search for `at_ms` went, if asked."
    )


@message
class DescribeLogTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[DescribeLogPartitionResult] = array(
        DescribeLogPartitionResult, max_items=MAX_PARTITIONS
    )
    topic_id: str = string(default="", doc="As in metadata; empty when there is no such topic.")


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
    doc="Offsets, segments and retention verdicts of partitions.",
    native=True,
    rights=(each(Operation.DESCRIBE, ResourceType.TOPIC),),
    served_by=ServedBy.ANY_BROKER,
)
