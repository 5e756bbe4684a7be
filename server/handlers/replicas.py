"""replicate, describe-replicas and promote: replication, for cluster members and operators.

replicate (key 1004): native 0 to 1
     1  owners of epochs, damage, leaving members
describe-replicas (key 1005): native 0 to 1
     1  contested epochs, unreadable metadata
promote (key 1006): native 0

Kafka has no such requests.
"""

from typing import Any

from ...protocol.api.cluster.describe_replicas import (
    DESCRIBE_REPLICAS,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
)
from ...protocol.api.cluster.promote import PROMOTE, PromoteRequest, PromoteResponse
from ...protocol.api.cluster.replicate import REPLICATE, ReplicateRequest
from ..requests import Call, PendingAnswer
from .base import Services
from .registration import handles


@handles(REPLICATE)
def replicate(services: Services, request: ReplicateRequest, call: Call) -> Any:
    return services.replication.replicate(services, request, call)


@handles(DESCRIBE_REPLICAS)
def describe(
    services: Services, request: DescribeReplicasRequest, call: Call
) -> DescribeReplicasResponse:
    return services.replication.describe(log_ends=True)


@handles(PROMOTE)
def promote(
    services: Services, request: PromoteRequest, call: Call
) -> PromoteResponse | PendingAnswer:
    return services.replication.promote(request)
