"""offset-commit: remember named positions."""

from typing import Final

from ..limits import MAX_PARTITIONS, MAX_TOPICS
from .schema import Api, array, error_text, int16, int32, int64, message, nullable_string, string


@message
class OffsetCommitPartition:
    partition: int = int32(doc="Partition.")
    committed_offset: int = int64(doc="Next offset to read.")
    committed_metadata: str | None = nullable_string(default="", doc="Text kept beside it.")
    timestamp_ms: int = int64(
        native=True, default=-1, doc="Timestamp of the last message read; -1 when none."
    )


@message
class OffsetCommitTopic:
    name: str = string(doc="Topic.")
    partitions: list[OffsetCommitPartition] = array(OffsetCommitPartition, max_items=MAX_PARTITIONS)


@message
class OffsetCommitRequest:
    group_id: str = string(doc="Name of the position.")
    topics: list[OffsetCommitTopic] = array(OffsetCommitTopic, max_items=MAX_TOPICS)


@message
class OffsetCommitPartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 when the position is durable.")
    error_message: str | None = error_text(native=True, default=None)


@message
class OffsetCommitTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[OffsetCommitPartitionResult] = array(
        OffsetCommitPartitionResult, max_items=MAX_PARTITIONS
    )


@message
class OffsetCommitResponse:
    topics: list[OffsetCommitTopicResult] = array(OffsetCommitTopicResult, max_items=MAX_TOPICS)


OFFSET_COMMIT: Final = Api(
    key=8,
    name="offset-commit",
    min_version=0,
    max_version=0,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    doc="Store a reader's positions under a name; durable when answered.",
)
