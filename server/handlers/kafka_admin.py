"""describe-cluster, list-partition-reassignments and list-transactions, for Kafka's tools.

describe-cluster (key 60): versions 0 to 1 (KIP-700)
     1  endpoint_type (KIP-919)
list-partition-reassignments (key 46): versions 0 (KIP-455)
list-transactions (key 66): versions 0 (KIP-664)

Left out: reassignments and transactions, of which there are none.
"""

from ...protocol.api.broker.describe_cluster import (
    BROKERS,
    DESCRIBE_CLUSTER,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ...protocol.api.log.list_transactions import (
    LIST_TRANSACTIONS,
    STATES,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ...protocol.api.rights import CLUSTER_OPERATIONS, NOT_ASKED
from ...protocol.api.security.acl_terms import CLUSTER_NAME, Operation, ResourceType
from ...protocol.api.topics.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ...protocol.errors import MismatchedEndpointType
from ..requests import Call
from .base import Services, allowed_bits
from .registration import handles


@handles(DESCRIBE_CLUSTER)
def describe_cluster(
    services: Services, request: DescribeClusterRequest, call: Call
) -> DescribeClusterResponse:
    """Answer with this broker, under the same address as in metadata. Raises
    `MismatchedEndpointType`."""
    if request.endpoint_type != BROKERS:
        raise MismatchedEndpointType(
            f"endpoint_type is {request.endpoint_type}; it must be {BROKERS}, brokers: there are "
            "no controllers in Horolog"
        )
    host, port = call.local_address
    node_id = services.settings.broker_id
    allowed = NOT_ASKED
    if request.include_cluster_authorized_operations:
        allowed = allowed_bits(
            services, call, ResourceType.CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS
        )
        if not allowed >> Operation.DESCRIBE & 1:
            allowed = 0
    return DescribeClusterResponse(
        cluster_id=services.directory.cluster_id(),
        controller_id=node_id,
        brokers=[DescribeClusterBroker(broker_id=node_id, host=host, port=port)],
        cluster_authorized_operations=allowed,
    )


@handles(LIST_PARTITION_REASSIGNMENTS)
def list_reassignments(
    services: Services, request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    """Answer that there are no reassignments: every broker has every partition."""
    return ListPartitionReassignmentsResponse()


@handles(LIST_TRANSACTIONS)
def list_transactions(
    services: Services, request: ListTransactionsRequest, call: Call
) -> ListTransactionsResponse:
    """Answer that there are no transactions, with the state filters that Kafka does not know."""
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)
