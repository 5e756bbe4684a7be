"""describe-quorum: KRaft's state, which Horolog does not have and refuses to describe."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_REPLICAS, MAX_TOPICS
from ..rights import DESCRIBES_CLUSTER
from ..schema import (
    Api,
    ServedBy,
    array,
    error_text,
    flexible,
    int16,
    int32,
    int64,
    message,
    string,
)


@message
class DescribeQuorumPartition:
    partition_index: int = int32(doc="Partition.")


@message
class DescribeQuorumTopic:
    topic_name: str = string(doc="Topic.")
    partitions: list[DescribeQuorumPartition] = array(
        DescribeQuorumPartition, max_items=MAX_PARTITIONS
    )


@flexible
@message
class DescribeQuorumRequest:
    topics: list[DescribeQuorumTopic] = array(DescribeQuorumTopic, max_items=MAX_TOPICS)


@message
class QuorumReplica:
    replica_id: int = int32(doc="Broker.")
    replica_directory_high: int = int64(
        since=2, default=0, doc="Id of its directory: the first 8 bytes."
    )
    replica_directory_low: int = int64(
        since=2, default=0, doc="Id of its directory: the last 8 bytes."
    )
    log_end_offset: int = int64(doc="Its log end offset.")
    last_fetch_timestamp: int = int64(since=1, default=-1, doc="Time of its last fetch.")
    last_caught_up_timestamp: int = int64(since=1, default=-1, doc="When it last had all messages.")


@message
class QuorumPartition:
    partition_index: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 if the partition has a quorum.")
    error_message: str | None = error_text(since=2, default=None)
    leader_id: int = int32(default=-1, doc="Its leader.")
    leader_epoch: int = int32(default=-1, doc="The leader's epoch.")
    high_watermark: int = int64(default=-1, doc="The high watermark.")
    current_voters: list[QuorumReplica] = array(QuorumReplica, max_items=MAX_REPLICAS, default=())
    observers: list[QuorumReplica] = array(QuorumReplica, max_items=MAX_REPLICAS, default=())


@message
class QuorumTopic:
    topic_name: str = string(doc="Topic.")
    partitions: list[QuorumPartition] = array(QuorumPartition, max_items=MAX_PARTITIONS)


@message
class QuorumListener:
    name: str = string(doc="Name of the listener.")
    host: str = string(doc="Its host.")
    port: int = int16(doc="Its port.")


@message
class QuorumNode:
    node_id: int = int32(doc="Broker.")
    listeners: list[QuorumListener] = array(QuorumListener, max_items=MAX_REPLICAS)


@flexible
@message
class DescribeQuorumResponse:
    error_code: int = int16(default=0, doc="35: this is refused.")
    error_message: str | None = error_text(since=2, default=None)
    topics: list[QuorumTopic] = array(
        QuorumTopic, max_items=MAX_TOPICS, default=(), doc="Always empty."
    )
    nodes: list[QuorumNode] = array(
        QuorumNode, max_items=MAX_REPLICAS, since=2, default=(), doc="Always empty."
    )


DESCRIBE_QUORUM: Final = Api(
    key=55,
    name="describe-quorum",
    min_version=0,
    max_version=2,  # The first version with an error text.
    native_max_version=-1,
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
    doc="Refused: there is no quorum of controllers. `horolog cluster status` shows the brokers.",
    rights=DESCRIBES_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)
