"""fetch: read message sets from partitions, waiting for data when asked to."""

from typing import Final

from ..limits import MAX_APPEND_TIMES, MAX_PARTITIONS, MAX_TOPICS
from .schema import (
    Api,
    array,
    boolean,
    error_text,
    int16,
    int32,
    int64,
    message,
    records,
    string,
)


@message
class FetchPartition:
    partition: int = int32(doc="Partition to read.")
    fetch_offset: int = int64(doc="First offset wanted.")
    partition_max_bytes: int = int32(default=1 << 20, doc="Most bytes of this partition.")


@message
class FetchTopic:
    name: str = string(doc="Topic.")
    partitions: list[FetchPartition] = array(FetchPartition, max_items=MAX_PARTITIONS)


@message
class FetchRequest:
    replica_id: int = int32(default=-1, doc="-1 for a consumer.")
    max_wait_ms: int = int32(default=0, doc="How long to wait for `min_bytes`.")
    min_bytes: int = int32(default=0, doc="Answer as soon as this much is readable.")
    max_bytes: int = int32(since=3, default=0x7FFF_FFFF, doc="Most bytes of the response.")
    topics: list[FetchTopic] = array(
        FetchTopic, max_items=MAX_TOPICS, doc="From version 3 on served in this order."
    )
    include_append_times: bool = boolean(
        native=True,
        default=False,
        doc="Say when the messages were appended. The response has the messages of fewer than "
        f"{MAX_APPEND_TIMES:,} sets then.",
    )


@message
class AppendTime:
    offset: int = int64(doc="It holds from this offset on, up to that of the next item.")
    append_time_ms: int = int64(doc="When these messages were appended; -1 when not known.")


@message
class FetchPartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 when it could be read.")
    high_watermark: int = int64(default=-1, doc="First offset not yet readable; -1 on error.")
    records: bytes | None = records(
        default=b"",
        doc="Messages. May begin below `fetch_offset` (compressed sets) and end in the "
        "middle of a message; the reader drops both.",
    )
    error_message: str | None = error_text(native=True, default=None)
    append_times: list[AppendTime] = array(
        AppendTime,
        max_items=MAX_APPEND_TIMES,
        native=True,
        default=(),
        doc="In order of their offsets. The first is at or below the first message; the last may "
        "be above the last message. Empty unless asked for.",
    )


@message
class FetchTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[FetchPartitionResult] = array(FetchPartitionResult, max_items=MAX_PARTITIONS)


@message
class FetchResponse:
    throttle_time_ms: int = int32(since=1, default=0, doc="Always 0.")
    topics: list[FetchTopicResult] = array(FetchTopicResult, max_items=MAX_TOPICS)


FETCH: Final = Api(
    key=1,
    name="fetch",
    min_version=0,
    max_version=3,
    request=FetchRequest,
    response=FetchResponse,
    doc="Read messages. Versions 0 and 1 give message format v0 and convert what is stored as "
    "v1; 2 and 3 give what is stored, one format in an answer. In version 3 the first "
    "non-empty partition gives its first message whole, however large.",
)
