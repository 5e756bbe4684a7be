"""metadata: the addresses of brokers, and topics with their partitions."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_REPLICAS, MAX_TOPICS
from ..rights import CREATES_TOPIC, NOT_ASKED, How, Need, When, each, left_out
from ..schema import (
    INT32,
    Api,
    ServedBy,
    array,
    boolean,
    error_text,
    flexible_since,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    string,
)
from ..security.acl_terms import Operation, ResourceType


@message
class MetadataTopic:
    topic_uuid_high: int = int64(since=10, default=0, doc="First 8 bytes of the topic id; ignored.")
    topic_uuid_low: int = int64(since=10, default=0, doc="Last 8 bytes of the topic id; ignored.")
    name: str = string(doc="Topic.")


@flexible_since(9)
@message
class MetadataRequest:
    topics: list[MetadataTopic] | None = array(
        MetadataTopic,
        max_items=MAX_TOPICS,
        nullable=True,
        default=(),
        doc="The topics. All topics: empty in version 0, nil in later versions, where empty "
        "means none.",
    )
    allow_auto_topic_creation: bool = boolean(
        since=4,
        native_since=0,
        default=True,
        doc="Whether a topic that does not exist is created.",
    )
    include_cluster_authorized_operations: bool = boolean(since=8, default=False, doc="Ignored.")
    include_topic_authorized_operations: bool = boolean(since=8, default=False, doc="Ignored.")


@message
class MetadataBroker:
    node_id: int = int32(doc="Id of the broker.")
    host: str = string(doc="Host to connect to.")
    port: int = int32(doc="Port to connect to.")
    rack: str | None = nullable_string(since=1, default=None, doc="Always nil.")


@message
class MetadataPartition:
    error_code: int = int16(default=0, doc="0 if the partition can be served.")
    partition: int = int32(doc="Partition.")
    leader_id: int = int32(default=-1, doc="Id of the leader.")
    leader_epoch: int = int32(since=7, default=-1, doc="Leader epoch; -1 at a single broker.")
    replica_nodes: list[int] = array(
        INT32, max_items=MAX_REPLICAS, default=(), doc="Ids of brokers."
    )
    isr_nodes: list[int] = array(INT32, max_items=MAX_REPLICAS, default=(), doc="Ids of brokers.")
    offline_replicas: list[int] = array(
        INT32, max_items=MAX_REPLICAS, since=5, default=(), doc="Always empty."
    )
    error_message: str | None = error_text(native=True, default=None)


@message
class MetadataTopicResult:
    error_code: int = int16(default=0, doc="0 if the topic exists.")
    name: str = string(doc="Topic.")
    topic_uuid_high: int = int64(since=10, default=0, doc="0: not known.")
    topic_uuid_low: int = int64(since=10, default=0, doc="0: not known.")
    is_internal: bool = boolean(since=1, default=False, doc="Always false.")
    partitions: list[MetadataPartition] = array(
        MetadataPartition, max_items=MAX_PARTITIONS, default=()
    )
    topic_authorized_operations: int = int32(
        since=8, default=NOT_ASKED, doc="-2^31: not requested."
    )
    error_message: str | None = error_text(native=True, default=None)
    topic_id: str = string(
        native=True,
        default="",
        doc="Topic id, of 22 characters. A topic that is deleted and created again has "
        "another id. Empty if not known.",
    )


@flexible_since(9)
@message
class MetadataResponse:
    throttle_time_ms: int = int32(
        since=3, default=0, doc="How long the client is throttled, in ms."
    )
    brokers: list[MetadataBroker] = array(MetadataBroker, max_items=MAX_REPLICAS)
    cluster_id: str | None = nullable_string(
        since=2, native_since=0, default=None, doc="Id of the broker's data directory."
    )
    controller_id: int = int32(
        since=1, native_since=0, default=-1, doc="The controller: the leader of the cluster."
    )
    topics: list[MetadataTopicResult] = array(MetadataTopicResult, max_items=MAX_TOPICS)
    cluster_authorized_operations: int = int32(
        since=8, default=NOT_ASKED, doc="-2^31: not requested."
    )
    node_id: int = int32(
        native=True,
        default=-1,
        doc="Id of the answering broker; -1 if not known.",
    )


METADATA: Final = Api(
    key=3,
    name="metadata",
    min_version=0,
    max_version=10,
    native_max_version=0,
    offered_max_version=7,
    offered_by_several=10,
    request=MetadataRequest,
    response=MetadataResponse,
    doc="Describe brokers and topics. A named topic that does not exist is created if the "
    "broker's `auto.create.topics.enable` is on and the request allows it. Only brokers of a "
    "cluster offer versions 8 to 10, because clients trust leader epochs only from version 9 "
    "on.",
    rights=(
        each(Operation.DESCRIBE, ResourceType.TOPIC, When.NAMED),
        left_out(Operation.DESCRIBE, ResourceType.TOPIC),
        Need(CREATES_TOPIC, How.EACH, When.MADE),
    ),
    served_by=ServedBy.ANY_BROKER,
)
