"""offset-for-leader-epoch: the offset at which a leader epoch ends in a log. A client detects with
it whether messages that it has read were truncated since."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_TOPICS
from ..rights import How, Need, Right
from ..schema import Api, array, current_leader_epoch, int16, int32, int64, message, string
from ..security.acl_terms import Operation, ResourceType

UNDEFINED: Final = -1
"""An unknown epoch, or an unknown end of one."""


@message
class OffsetForLeaderEpochPartition:
    partition: int = int32(doc="Partition.")
    current_leader_epoch: int = current_leader_epoch(since=2)
    leader_epoch: int = int32(doc="The epoch whose end is requested.")


@message
class OffsetForLeaderEpochTopic:
    name: str = string(doc="Topic.")
    partitions: list[OffsetForLeaderEpochPartition] = array(
        OffsetForLeaderEpochPartition, max_items=MAX_PARTITIONS
    )


@message
class OffsetForLeaderEpochRequest:
    replica_id: int = int32(since=3, default=-2, doc="-1 for a consumer; ignored.")
    topics: list[OffsetForLeaderEpochTopic] = array(OffsetForLeaderEpochTopic, max_items=MAX_TOPICS)


@message
class OffsetForLeaderEpochPartitionResult:
    error_code: int = int16(default=0, doc="0 if the log could be read.")
    partition: int = int32(doc="Partition.")
    leader_epoch: int = int32(
        since=1,
        default=UNDEFINED,
        doc="The greatest epoch of the log that is not above the requested one. If all are "
        "above it: the requested one. -1 if the requested one is above all.",
    )
    end_offset: int = int64(
        default=UNDEFINED,
        doc="The offset after the last message of that epoch; -1 if there is no such epoch.",
    )


@message
class OffsetForLeaderEpochTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[OffsetForLeaderEpochPartitionResult] = array(
        OffsetForLeaderEpochPartitionResult, max_items=MAX_PARTITIONS
    )


@message
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32(
        since=2, default=0, doc="How long the client is throttled, in ms."
    )
    topics: list[OffsetForLeaderEpochTopicResult] = array(
        OffsetForLeaderEpochTopicResult, max_items=MAX_TOPICS
    )


OFFSET_FOR_LEADER_EPOCH: Final = Api(
    key=23,
    name="offset-for-leader-epoch",
    min_version=0,
    max_version=3,
    native_max_version=-1,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
    doc="Find the end offset of a leader epoch in a log. A single broker has no epochs of its "
    "own; it knows the epochs of a log that a cluster wrote before.",
    rights=(
        Need(
            (
                Right(Operation.DESCRIBE, ResourceType.TOPIC),
                Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
            ),
            How.EACH,
        ),
    ),
)
