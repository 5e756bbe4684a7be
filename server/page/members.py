"""The brokers that have the same data, as the one that is asked knows them."""

from ...protocol.api.cluster.describe_replicas import NOT_KNOWN, ReplicaMember
from ..handlers.base import Services
from .query import Query


async def members(services: Services, query: Query) -> dict[str, object]:
    """Who leads, who follows, since when, and how far behind; no members for a broker that is
    alone. They are `hidden` from a viewer who may not describe the cluster."""
    replication = services.replication
    hidden = replication.replicates and not query.access.cluster()
    if not replication.replicates or hidden:
        return {"now_ms": services.clock.now_ms(), "members": [], "hidden": hidden}
    found = replication.describe()
    return {
        "now_ms": services.clock.now_ms(),
        "cluster": found.cluster_id,
        "broker": found.broker_id,
        "epoch": found.epoch,
        "leader": _known(found.leader),
        "in_sync": list(found.in_sync),
        "problem": found.waits_for or replication.not_ready(),
        "members": list(map(_member, found.members)),
        "hidden": False,
    }


def _member(one: ReplicaMember) -> dict[str, object]:
    return {
        "id": one.broker_id,
        "address": one.address or None,
        "state": one.state,
        "since_ms": _known(one.since_ms),
        "lag_messages": _known(one.lag_messages),
        "lag_ms": _known(one.lag_ms),
    }


def _known(number: int) -> int | None:
    return None if number == NOT_KNOWN else number
