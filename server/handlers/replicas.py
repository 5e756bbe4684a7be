"""replicate, describe-replicas and promote: for brokers that are one of several."""

from typing import TYPE_CHECKING, Any

from ...protocol.api.cluster.describe_replicas import NOT_KNOWN
from ...protocol.api.cluster.replicate import Says
from ...protocol.errors import InvalidRequest
from ..replication.missing import log_ends
from .base import Call, Services

if TYPE_CHECKING:
    from ..replication.cluster import Cluster


def replicate(services: Services, request: Any, call: Call) -> Any:
    cluster = _cluster(services)
    if request.says == Says.MAKE:
        return cluster.forwarded_creation.make_for_others(services, request)
    return cluster.followers.handle(request, call)


def describe(services: Services, request: Any, call: Call) -> Any:
    cluster = _cluster(services)
    response = cluster.admin.describe()
    if response.leader == NOT_KNOWN:
        response.log_ends = log_ends(cluster.stored.logs, response.contested_epoch)
    return response


def promote(services: Services, request: Any, call: Call) -> Any:
    return _cluster(services).admin.promote(request)


def _cluster(services: Services) -> "Cluster":
    if services.cluster is None:
        raise InvalidRequest(
            "this broker is alone: it belongs to no cluster, and no broker can follow it. Start it "
            "with --broker-id N --create-cluster to let others follow it"
        )
    return services.cluster
