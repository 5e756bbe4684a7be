"""describe-replicas: which broker leads, which follow, and how far behind they are. Kafka has no
such request."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_REPLICAS
from ..rights import DESCRIBES_CLUSTER
from ..schema import INT32, Api, ServedBy, array, int32, int64, message, string

NOT_KNOWN: Final = -1


@message
class DescribeReplicasRequest:
    """An empty request."""


@message
class ReplicaMember:
    broker_id: int = int32(doc="Broker.")
    address: str = string(default="", doc="Its address for native clients; empty if not known.")
    kafka_address: str = string(
        default="", doc="Its address for Kafka's clients; empty if it has none."
    )
    state: str = string(doc="`leader`, `in-sync`, `catching-up` or `down`.")
    lag_messages: int = int64(default=NOT_KNOWN, doc="Messages that it lacks; -1 if not known.")
    lag_ms: int = int64(
        default=NOT_KNOWN,
        doc="How long ago the oldest of these was appended, in ms; -1 if not known.",
    )
    since_ms: int = int64(
        default=NOT_KNOWN,
        doc="Since when the answering broker knows it in this state; -1 if not known.",
    )


@message
class LogEnd:
    topic: str = string(doc="Topic; `__metadata` is the metadata log.")
    partition: int = int32(doc="Partition.")
    end: int = int64(doc="Log end offset.")
    epoch: int = int32(doc="Leader epoch of its last message; -1 if it has none.")
    contested_from: int = int64(
        since=1,
        default=NOT_KNOWN,
        doc="Its first offset of an epoch that had two leaders, or of a later epoch; -1 if "
        "there is none.",
    )


@message
class DescribeReplicasResponse:
    cluster_id: str = string(default="", doc="Id of the cluster.")
    epoch: int = int32(doc="Leader epoch; -1 before there is one.")
    broker_id: int = int32(doc="Id of the answering broker.")
    leader: int = int32(
        default=NOT_KNOWN, doc="Id of the leader, as far as this broker knows; -1 if it knows none."
    )
    in_sync: list[int] = array(
        INT32, max_items=MAX_REPLICAS, default=(), doc="The in-sync replicas."
    )
    members: list[ReplicaMember] = array(
        ReplicaMember,
        max_items=MAX_REPLICAS,
        default=(),
        doc="The brokers that the answering broker knows.",
    )
    waits_for: str = string(
        default="", doc="Why this broker neither leads nor follows; empty if it does one of them."
    )
    promise: str = string(
        default="", doc="Why a promotion of this broker may lose messages; empty if it cannot."
    )
    missing_messages: int = int64(
        default=0, doc="For a follower: about how many messages it may lack; -1 if not known."
    )
    missing_ms: int = int64(
        default=0, doc="For a follower: since when it may lack appended messages; -1 if not known."
    )
    missing: str = string(
        default="", doc="The two fields before in words, or what is known instead of them."
    )
    log_ends: list[LogEnd] = array(
        LogEnd,
        max_items=MAX_PARTITIONS,
        default=(),
        doc="Log ends of this broker, as long as it knows no leader.",
    )
    contested_epoch: int = int32(
        since=1, default=NOT_KNOWN, doc="An epoch in which two brokers led; -1 if none is known."
    )
    contested_leader: int = int32(
        since=1,
        default=NOT_KNOWN,
        doc="The leader of that epoch, as this broker knows it; -1 if not known.",
    )
    unreadable: str = string(
        since=1,
        default="",
        doc="Partitions that this broker, or its leader, cannot read or copy, with the "
        "reasons; empty if there are none.",
    )


DESCRIBE_REPLICAS: Final = Api(
    key=1005,
    name="describe-replicas",
    min_version=0,
    max_version=1,
    request=DescribeReplicasRequest,
    response=DescribeReplicasResponse,
    doc="Describe the leader, the followers and their lag. Refused by a broker that is in no "
    "cluster.",
    native=True,
    rights=DESCRIBES_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)
