"""replicate, describe-replicas and promote: replication, for cluster members and operators.

replicate (key 1004): native 0 to 1
     1  owners of epochs, damage, leaving members
describe-replicas (key 1005): native 0 to 1
     1  contested epochs, unreadable metadata
promote (key 1006): native 0

Kafka has no such requests.
"""

from typing import TYPE_CHECKING, Any

from ...protocol.api.cluster.describe_replicas import DESCRIBE_REPLICAS, NOT_KNOWN
from ...protocol.api.cluster.promote import PROMOTE
from ...protocol.api.cluster.replicate import REPLICATE, Says
from ...protocol.errors import InvalidRequest
from ..replication.missing import log_ends
from ..requests import Call
from .base import Services
from .registration import handles

if TYPE_CHECKING:
    from ..replication.cluster import Cluster


@handles(REPLICATE)
def replicate(services: Services, request: Any, call: Call) -> Any:
    cluster = _cluster(services)
    if request.says == Says.MAKE:
        return cluster.forwarded_creation.make_for_others(services, request)
    return cluster.followers.handle(request, call)


@handles(DESCRIBE_REPLICAS)
def describe(services: Services, request: Any, call: Call) -> Any:
    cluster = _cluster(services)
    response = cluster.admin.describe()
    if response.leader == NOT_KNOWN:
        response.log_ends = log_ends(cluster.stored.logs, response.contested_epoch)
    return response


@handles(PROMOTE)
def promote(services: Services, request: Any, call: Call) -> Any:
    return _cluster(services).admin.promote(request)


def _cluster(services: Services) -> "Cluster":
    if services.cluster is None:
        raise InvalidRequest(
            "this broker is alone: it belongs to no cluster, and no broker can follow it. Start it "
            "with --broker-id N --create-cluster to let others follow it"
        )
    return services.cluster
