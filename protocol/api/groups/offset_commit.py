"""offset-commit: store committed offsets of a group."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_TOPICS
from ..rights import each, whole
from ..schema import (
    Api,
    ServedBy,
    array,
    boolean,
    error_text,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    string,
)
from ..security.acl_terms import Operation, ResourceType


@message
class OffsetCommitPartition:
    partition: int = int32(doc="Partition.")
    committed_offset: int = int64(doc="Next offset to read.")
    committed_leader_epoch: int = int32(
        since=6, default=-1, doc="Leader epoch of the last message read; -1 if not known."
    )
    commit_timestamp: int = int64(
        since=1, until=1, default=-1, doc="Time of the commit, as the client says."
    )
    committed_metadata: str | None = nullable_string(
        default="", doc="Text that is stored with the position."
    )
    timestamp_ms: int = int64(
        native=True, default=-1, doc="Timestamp of the last message read; -1 if there is none."
    )


@message
class OffsetCommitTopic:
    name: str = string(doc="Topic.")
    partitions: list[OffsetCommitPartition] = array(OffsetCommitPartition, max_items=MAX_PARTITIONS)


@message
class OffsetCommitRequest:
    group_id: str = string(doc="Name of the position, or of the group.")
    generation_id: int = int32(
        since=1,
        native_since=0,
        default=-1,
        doc="The member's generation; -1 for who is no member of a group.",
    )
    member_id: str = string(
        since=1, native_since=0, default="", doc="The member; empty for who is none."
    )
    group_instance_id: str | None = nullable_string(
        since=7,
        native_since=0,
        default=None,
        doc="`group.instance.id` of a static member; null for a dynamic one.",
    )
    retention_time_ms: int = int64(
        since=2,
        until=4,
        default=-1,
        doc="How long the positions are kept; -1: as `offsets.retention.minutes` says.",
    )
    topics: list[OffsetCommitTopic] = array(OffsetCommitTopic, max_items=MAX_TOPICS)
    keeps_retention: bool = boolean(
        native=True,
        default=False,
        doc="Keep the positions as long as those that the group has; else they are kept for ever.",
    )


@message
class OffsetCommitPartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 if the position is durable.")
    error_message: str | None = error_text(native=True, default=None)


@message
class OffsetCommitTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[OffsetCommitPartitionResult] = array(
        OffsetCommitPartitionResult, max_items=MAX_PARTITIONS
    )


@message
class OffsetCommitResponse:
    throttle_time_ms: int = int32(
        since=3, default=0, doc="How long the client is throttled, in ms."
    )
    topics: list[OffsetCommitTopicResult] = array(OffsetCommitTopicResult, max_items=MAX_TOPICS)


OFFSET_COMMIT: Final = Api(
    key=8,
    name="offset-commit",
    min_version=0,
    max_version=7,
    native_max_version=0,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    doc="Store positions under a name. They are durable when the request is answered.",
    rights=(
        whole(Operation.READ, ResourceType.GROUP),
        each(Operation.READ, ResourceType.TOPIC),
    ),
    served_by=ServedBy.COORDINATOR,
)
