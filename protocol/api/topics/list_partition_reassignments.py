"""list-partition-reassignments: list partitions whose replicas are being moved."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_REPLICAS, MAX_TOPICS
from ..rights import DESCRIBES_CLUSTER
from ..schema import (
    INT32,
    Api,
    ServedBy,
    array,
    error_text,
    flexible,
    int16,
    int32,
    message,
    string,
)


@message
class ListPartitionReassignmentsTopic:
    name: str = string(doc="Topic.")
    partition_indexes: list[int] = array(INT32, max_items=MAX_PARTITIONS, doc="Partitions.")


@flexible
@message
class ListPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60_000, doc="Ignored: the answer never waits.")
    topics: list[ListPartitionReassignmentsTopic] | None = array(
        ListPartitionReassignmentsTopic,
        max_items=MAX_TOPICS,
        nullable=True,
        default=None,
        doc="Null for all.",
    )


@message
class OngoingPartitionReassignment:
    partition_index: int = int32(doc="Partition.")
    replicas: list[int] = array(INT32, max_items=MAX_REPLICAS, doc="Brokers that have a replica.")
    adding_replicas: list[int] = array(
        INT32, max_items=MAX_REPLICAS, doc="Brokers that get a replica."
    )
    removing_replicas: list[int] = array(
        INT32, max_items=MAX_REPLICAS, doc="Brokers that lose their replica."
    )


@message
class OngoingTopicReassignment:
    name: str = string(doc="Topic.")
    partitions: list[OngoingPartitionReassignment] = array(
        OngoingPartitionReassignment, max_items=MAX_PARTITIONS
    )


@flexible
@message
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    error_code: int = int16(default=0, doc="0.")
    error_message: str | None = error_text(default=None)
    topics: list[OngoingTopicReassignment] = array(
        OngoingTopicReassignment,
        max_items=MAX_TOPICS,
        default=(),
        doc="Always empty: every broker of a cluster has every partition.",
    )


LIST_PARTITION_REASSIGNMENTS: Final = Api(
    key=46,
    name="list-partition-reassignments",
    min_version=0,
    max_version=0,
    native_max_version=-1,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
    doc="List the partitions whose replicas are being moved: there are never any.",
    rights=DESCRIBES_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)
