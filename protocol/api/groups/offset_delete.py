"""offset-delete: delete some committed offsets of a consumer group."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_TOPICS
from ..rights import each, whole
from ..schema import Api, ServedBy, array, error_text, int16, int32, message, string
from ..security.acl_terms import Operation, ResourceType


@message
class OffsetDeletePartition:
    partition: int = int32(doc="Partition whose position is deleted.")


@message
class OffsetDeleteTopic:
    name: str = string(doc="Topic.")
    partitions: list[OffsetDeletePartition] = array(OffsetDeletePartition, max_items=MAX_PARTITIONS)


@message
class OffsetDeleteRequest:
    group_id: str = string(doc="Name of the group.")
    topics: list[OffsetDeleteTopic] = array(OffsetDeleteTopic, max_items=MAX_TOPICS)


@message
class OffsetDeletePartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(
        default=0,
        doc="0 if the group has no position in the partition now; 86 if a member subscribes "
        "to the topic.",
    )
    error_message: str | None = error_text(native=True, default=None)


@message
class OffsetDeleteTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[OffsetDeletePartitionResult] = array(
        OffsetDeletePartitionResult, max_items=MAX_PARTITIONS
    )


@message
class OffsetDeleteResponse:
    error_code: int = int16(
        default=0,
        doc="69 if the group does not exist; 68 if it has members that are not consumers.",
    )
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    topics: list[OffsetDeleteTopicResult] = array(OffsetDeleteTopicResult, max_items=MAX_TOPICS)


OFFSET_DELETE: Final = Api(
    key=47,
    name="offset-delete",
    min_version=0,
    max_version=0,
    native_max_version=0,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
    doc="Delete positions of a group. The change is durable when the request is answered.",
    rights=(
        whole(Operation.DELETE, ResourceType.GROUP),
        each(Operation.READ, ResourceType.TOPIC),
    ),
    served_by=ServedBy.COORDINATOR,
)
