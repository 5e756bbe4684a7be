"""offset-fetch: named positions as last committed."""

from typing import Final

from ..limits import MAX_PARTITIONS, MAX_TOPICS
from .schema import (
    INT32,
    Api,
    array,
    error_text,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    string,
)


@message
class OffsetFetchTopic:
    name: str = string(doc="Topic.")
    partitions: list[int] = array(INT32, max_items=MAX_PARTITIONS, doc="Partitions.")


@message
class OffsetFetchRequest:
    group_id: str = string(doc="Name of the position.")
    topics: list[OffsetFetchTopic] = array(OffsetFetchTopic, max_items=MAX_TOPICS)


@message
class OffsetFetchPartitionResult:
    partition: int = int32(doc="Partition.")
    committed_offset: int = int64(default=-1, doc="Next offset to read; -1 when none is stored.")
    metadata: str | None = nullable_string(default="", doc="Text kept beside it.")
    error_code: int = int16(default=0, doc="0, also when none is stored.")
    timestamp_ms: int = int64(
        native=True, default=-1, doc="Timestamp of the last message read; -1 when none."
    )
    commit_time_ms: int = int64(native=True, default=-1, doc="When it was committed; -1 when none.")
    error_message: str | None = error_text(native=True, default=None)


@message
class OffsetFetchTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[OffsetFetchPartitionResult] = array(
        OffsetFetchPartitionResult, max_items=MAX_PARTITIONS
    )


@message
class OffsetFetchResponse:
    topics: list[OffsetFetchTopicResult] = array(OffsetFetchTopicResult, max_items=MAX_TOPICS)


OFFSET_FETCH: Final = Api(
    key=9,
    name="offset-fetch",
    min_version=0,
    max_version=0,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    doc="A name's positions.",
)
