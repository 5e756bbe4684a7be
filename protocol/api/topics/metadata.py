"""metadata: the addresses of brokers, and topics with their partitions."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_REPLICAS, MAX_TOPICS
from ..operations import NOT_ASKED
from ..rights import CREATES_TOPIC, How, Need, When, each, left_out
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
    topic_uuid_high: int = int64(since=10, default=0, doc="Not looked at: the first 8 bytes.")
    topic_uuid_low: int = int64(since=10, default=0, doc="Not looked at: the other 8.")
    name: str = string(doc="Topic asked about.")


@flexible_since(9)
@message
class MetadataRequest:
    topics: list[MetadataTopic] | None = array(
        MetadataTopic,
        max_items=MAX_TOPICS,
        nullable=True,
        default=(),
        doc="In version 0 empty for all topics; later ones have nil for that, and empty for none.",
    )
    allow_auto_topic_creation: bool = boolean(
        since=4,
        native_since=0,
        default=True,
        doc="False: a topic that does not exist is not created.",
    )
    include_cluster_authorized_operations: bool = boolean(
        since=8, default=False, doc="Not looked at."
    )
    include_topic_authorized_operations: bool = boolean(
        since=8, default=False, doc="Not looked at."
    )


@message
class MetadataBroker:
    node_id: int = int32(doc="Id of the broker.")
    host: str = string(doc="Host to connect to.")
    port: int = int32(doc="Port to connect to.")
    rack: str | None = nullable_string(since=1, default=None, doc="Always nil.")


@message
class MetadataPartition:
    error_code: int = int16(default=0, doc="0 when the partition can be served.")
    partition: int = int32(doc="Partition.")
    leader_id: int = int32(default=-1, doc="Id of the broker that serves it.")
    leader_epoch: int = int32(
        since=7, default=-1, doc="Of the leader; -1 at a broker that is alone."
    )
    replica_nodes: list[int] = array(INT32, max_items=MAX_REPLICAS, default=(), doc="Broker ids.")
    isr_nodes: list[int] = array(INT32, max_items=MAX_REPLICAS, default=(), doc="Broker ids.")
    offline_replicas: list[int] = array(
        INT32, max_items=MAX_REPLICAS, since=5, default=(), doc="Always empty."
    )
    error_message: str | None = error_text(native=True, default=None)


@message
class MetadataTopicResult:
    error_code: int = int16(default=0, doc="0 when the topic exists.")
    name: str = string(doc="Topic.")
    topic_uuid_high: int = int64(since=10, default=0, doc="0: not known.")
    topic_uuid_low: int = int64(since=10, default=0, doc="0: not known.")
    is_internal: bool = boolean(since=1, default=False, doc="Always false.")
    partitions: list[MetadataPartition] = array(
        MetadataPartition, max_items=MAX_PARTITIONS, default=()
    )
    topic_authorized_operations: int = int32(
        since=8, default=NOT_ASKED, doc="-2^31: not asked for."
    )
    error_message: str | None = error_text(native=True, default=None)
    topic_id: str = string(
        native=True,
        default="",
        doc="22 characters; a topic that is deleted and made again has another. Empty: not known.",
    )


@flexible_since(9)
@message
class MetadataResponse:
    throttle_time_ms: int = int32(since=3, default=0, doc="How long the client is not listened to.")
    brokers: list[MetadataBroker] = array(MetadataBroker, max_items=MAX_REPLICAS)
    cluster_id: str | None = nullable_string(
        since=2, native_since=0, default=None, doc="Id of the broker's data directory."
    )
    controller_id: int = int32(
        since=1, native_since=0, default=-1, doc="Broker that creates topics: the leader."
    )
    topics: list[MetadataTopicResult] = array(MetadataTopicResult, max_items=MAX_TOPICS)
    cluster_authorized_operations: int = int32(
        since=8, default=NOT_ASKED, doc="-2^31: not asked for."
    )
    node_id: int = int32(
        native=True,
        default=-1,
        doc="Id of the broker that answers. -1: not known.",
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
    doc="Brokers and topics. Naming a topic that does not exist creates it when the broker's "
    "`auto.create.topics.enable` is on and the request does not forbid it. Versions 8 to 10 are "
    "offered by brokers of a cluster: clients trust leader epochs from version 9 on only.",
    rights=(
        each(Operation.DESCRIBE, ResourceType.TOPIC, When.NAMED),
        left_out(Operation.DESCRIBE, ResourceType.TOPIC),
        Need(CREATES_TOPIC, How.EACH, When.MADE),
    ),
    served_by=ServedBy.ANY_BROKER,
)
