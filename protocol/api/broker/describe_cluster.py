"""describe-cluster: the brokers of the cluster, without topics."""

from typing import Final

from ...limits import MAX_REPLICAS
from ..rights import NO_RIGHTS, NOT_ASKED
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
        default=False,
        doc="Whether the answer says which operations the client may do on the cluster.",
    )
    endpoint_type: int = int8(
        since=1, default=BROKERS, doc="1: brokers. 2 (controllers) is refused: there are none."
    )


@message
class DescribeClusterBroker:
    broker_id: int = int32(doc="Id of the broker.")
    host: str = string(doc="Its host.")
    port: int = int32(doc="Its port.")
    rack: str | None = nullable_string(default=None, doc="Always null.")


@flexible
@message
class DescribeClusterResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    error_code: int = int16(default=0, doc="0; 114 if the endpoint type is not 1.")
    error_message: str | None = error_text(default=None)
    endpoint_type: int = int8(since=1, default=BROKERS, doc="1: brokers.")
    cluster_id: str = string(default="", doc="Id of the broker's data directory, as in metadata.")
    controller_id: int = int32(default=-1, doc="The controller: the leader of the cluster.")
    brokers: list[DescribeClusterBroker] = array(
        DescribeClusterBroker,
        max_items=MAX_REPLICAS,
        default=(),
        doc="The brokers, as in metadata.",
    )
    cluster_authorized_operations: int = int32(
        default=NOT_ASKED,
        doc="The allowed operations: one bit for each ACL operation of Kafka. -2^31 if not "
        "requested; 0 without the right to describe the cluster.",
    )


DESCRIBE_CLUSTER: Final = Api(
    key=60,
    name="describe-cluster",
    min_version=0,
    max_version=1,
    native_max_version=-1,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
    doc="List the brokers of the cluster, and its leader.",
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
)
