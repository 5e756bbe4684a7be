"""describe-cluster, list-partition-reassignments and list-transactions, for Kafka's tools; and
elect-leaders and describe-quorum, which are refused by name, with the command to use.

describe-cluster (key 60): versions 0 to 1 (KIP-700)
     1  endpoint_type (KIP-919)
list-partition-reassignments (key 46): versions 0 (KIP-455)
list-transactions (key 66): versions 0 (KIP-664)
elect-leaders (key 43): versions 1 (KIP-183, KIP-460)
describe-quorum (key 55): versions 0 to 2 (KIP-595)
     1  times of the last fetches (KIP-836)
     2  directory ids, nodes (KIP-853)

Left out: reassignments and transactions, of which there are none, elections of single partitions,
and a quorum of controllers.
"""

from collections.abc import Iterable
from typing import Final

from ...protocol.api.broker.describe_cluster import (
    BROKERS,
    DESCRIBE_CLUSTER,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ...protocol.api.broker.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from ...protocol.api.log.list_transactions import (
    LIST_TRANSACTIONS,
    STATES,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ...protocol.api.pieces import Pieces
from ...protocol.api.rights import CLUSTER_OPERATIONS, NOT_ASKED
from ...protocol.api.security.acl_terms import CLUSTER_NAME, Operation, ResourceType
from ...protocol.api.topics.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)
from ...protocol.api.topics.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ...protocol.errors import MismatchedEndpointType, UnsupportedVersion
from ..requests import Call, PendingAnswer, in_turns
from .base import Services, allowed_bits
from .registration import handles

_NO_ELECTION: Final = (
    "leaders of single partitions are not elected in Horolog: one broker leads all partitions; "
    "`horolog cluster promote` lets another one lead"
)
_NO_QUORUM: Final = (
    "there is no quorum of controllers in Horolog; `horolog cluster status` shows the brokers"
)


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


@handles(ELECT_LEADERS)
def elect_leaders(
    services: Services, request: ElectLeadersRequest, call: Call
) -> ElectLeadersResponse | PendingAnswer:
    """Refuse the election with an error at each partition, where Kafka's clients show its text."""
    if request.topic_partitions is None and not services.directory.topics():
        raise UnsupportedVersion(_NO_ELECTION)
    return in_turns(services.work, _refused(services, request))


def _refused(services: Services, request: ElectLeadersRequest) -> Pieces[ElectLeadersResponse]:
    code, message = services.outcomes.of(UnsupportedVersion(_NO_ELECTION), api="elect-leaders")
    meant: dict[str, Iterable[int]]
    if request.topic_partitions is None:
        known = services.directory.topics()
        meant = {name: range(entry.partitions) for name, entry in known.items()}
    else:
        named = {topic.topic: dict[int, None]() for topic in request.topic_partitions}
        for topic in request.topic_partitions:
            named[topic.topic] |= dict.fromkeys(topic.partitions)
            yield
        meant = dict(named)
    topics: list[ElectLeadersTopicResult] = []
    for name, numbers in meant.items():
        results: list[ElectLeadersPartitionResult] = []
        topics.append(ElectLeadersTopicResult(topic=name, partitions=results))
        for number in numbers:
            results.append(
                ElectLeadersPartitionResult(
                    partition=number, error_code=code, error_message=message
                )
            )
            yield
    return ElectLeadersResponse(topics=topics)


@handles(DESCRIBE_QUORUM)
def describe_quorum(
    services: Services, request: DescribeQuorumRequest, call: Call
) -> DescribeQuorumResponse:
    """Raise `UnsupportedVersion`; the response has a field for the error."""
    raise UnsupportedVersion(_NO_QUORUM)
