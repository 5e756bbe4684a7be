"""describe-cluster: the brokers of the cluster, without topics."""

from typing import Final

from ...limits import MAX_REPLICAS
from ..operations import NOT_ASKED
from ..rights import NO_RIGHTS
from ..schema import (
    Api,
    ServedBy,
    array,
    boolean,
    error_text,
    flexible,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    string,
)

BROKERS: Final = 1
"""Endpoint type: brokers, not controllers."""


@flexible
@message
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean(
        default=False, doc="Say what the client may do with the cluster."
    )
    endpoint_type: int = int8(
        since=1, default=BROKERS, doc="1: brokers. 2, controllers, is refused: there are none."
    )


@message
class DescribeClusterBroker:
    broker_id: int = int32(doc="Id of the broker.")
    host: str = string(doc="Where it is.")
    port: int = int32(doc="Where it is.")
    rack: str | None = nullable_string(default=None, doc="Always null.")


@flexible
@message
class DescribeClusterResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is not listened to.")
    error_code: int = int16(default=0, doc="0; 114 for another endpoint type than 1.")
    error_message: str | None = error_text(default=None)
    endpoint_type: int = int8(since=1, default=BROKERS, doc="1: brokers.")
    cluster_id: str = string(default="", doc="Id of the broker's data directory, as in metadata.")
    controller_id: int = int32(default=-1, doc="Broker that creates topics: the leader.")
    brokers: list[DescribeClusterBroker] = array(
        DescribeClusterBroker, max_items=MAX_REPLICAS, default=(), doc="As in metadata."
    )
    cluster_authorized_operations: int = int32(
        default=NOT_ASKED,
        doc="One bit for each operation of Kafka's access rules; -2^31: not asked for. 0 without "
        "the right to describe the cluster.",
    )


DESCRIBE_CLUSTER: Final = Api(
    key=60,
    name="describe-cluster",
    min_version=0,
    max_version=1,
    native_max_version=-1,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
    doc="The brokers of the cluster, and which of them leads.",
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
)
