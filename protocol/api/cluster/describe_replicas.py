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
    address: str = string(default="", doc="Where it takes native clients; empty when not known.")
    kafka_address: str = string(default="", doc="Where it takes Kafka's clients, if anywhere.")
    state: str = string(doc="`leader`, `in-sync`, `catching-up` or `down`.")
    lag_messages: int = int64(default=NOT_KNOWN, doc="Messages that it lacks; -1: not known.")
    lag_ms: int = int64(
        default=NOT_KNOWN,
        doc="How long ago the oldest of these was appended; -1: not known.",
    )
    since_ms: int = int64(
        default=NOT_KNOWN, doc="When who answers saw it in its state first; -1: not known."
    )


@message
class LogEnd:
    topic: str = string(doc="Topic; `__metadata` for topics and positions.")
    partition: int = int32(doc="Partition.")
    end: int = int64(doc="Log end offset.")
    epoch: int = int32(doc="Leader epoch of its last message; -1: it has none.")
    contested_from: int = int64(
        since=1,
        default=NOT_KNOWN,
        doc="First offset that it has of an epoch with two leaders, or of a later epoch; -1: none.",
    )


@message
class DescribeReplicasResponse:
    cluster_id: str = string(default="", doc="Id of the cluster.")
    epoch: int = int32(doc="Leader epoch; -1 before there is one.")
    broker_id: int = int32(doc="Who answers.")
    leader: int = int32(default=NOT_KNOWN, doc="Who leads, as far as this broker knows; -1: none.")
    in_sync: list[int] = array(
        INT32, max_items=MAX_REPLICAS, default=(), doc="The in-sync replicas."
    )
    members: list[ReplicaMember] = array(
        ReplicaMember, max_items=MAX_REPLICAS, default=(), doc="The brokers that are known here."
    )
    waits_for: str = string(
        default="", doc="Why this broker does neither lead nor follow; empty if it does."
    )
    promise: str = string(
        default="", doc="Why promoting this broker may lose messages; empty where it may not."
    )
    missing_messages: int = int64(
        default=0, doc="About how many messages this broker may lack; of a follower; -1: not known."
    )
    missing_ms: int = int64(
        default=0, doc="Since when it may lack what was appended; of a follower; -1: not known."
    )
    missing: str = string(default="", doc="Both in words, or what is known instead.")
    log_ends: list[LogEnd] = array(
        LogEnd,
        max_items=MAX_PARTITIONS,
        default=(),
        doc="Where the logs of this broker end, while none leads as far as it knows.",
    )
    contested_epoch: int = int32(
        since=1, default=NOT_KNOWN, doc="An epoch that two brokers led in; -1: none is known."
    )
    contested_leader: int = int32(
        since=1, default=NOT_KNOWN, doc="Who led in it, as this broker knows it; -1: not known."
    )
    unreadable: str = string(
        since=1,
        default="",
        doc="Which partitions this broker, or the leader that it follows, cannot read or copy, and "
        "why; empty: none.",
    )


DESCRIBE_REPLICAS: Final = Api(
    key=1005,
    name="describe-replicas",
    min_version=0,
    max_version=1,
    request=DescribeReplicasRequest,
    response=DescribeReplicasResponse,
    doc="Who leads, who follows, and how far behind. Refused by a broker that is in no cluster.",
    native=True,
    rights=DESCRIBES_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)
