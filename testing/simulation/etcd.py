"""A model of etcd: requests one after the other, and leases on its own clock."""

from dataclasses import dataclass, field, replace
from typing import Any

from ...replication.cluster_state import ClusterState, ClusterView, MemberInfo
from ...replication.effects import (
    GrantLease,
    ReadCluster,
    Register,
    RenewLease,
    RevokeLease,
    Transact,
)
from ...replication.settings import Incarnation

Request = ReadCluster | GrantLease | RenewLease | RevokeLease | Register | Transact


@dataclass(slots=True)
class _Leased:
    value: Any
    lease_id: int
    revision: int


@dataclass(slots=True)
class EtcdModel:
    """The keys of one cluster. All times are those of etcd's own clock."""

    state: ClusterState
    ttl_s: float
    revision: int = 1
    state_revision: int = 1
    leases: dict[int, float] = field(default_factory=dict)
    """End of each lease, by lease id, in seconds of etcd's clock."""
    leader: _Leased | None = None
    members: dict[int, _Leased] = field(default_factory=dict)
    _last_lease: int = 0

    def handle(self, now_s: float, request: Request) -> object:
        """Carry out a request. Returns a view, (lease id, seconds), or `None`."""
        self.expire(now_s)
        if isinstance(request, ReadCluster):
            return self.view()
        if isinstance(request, RenewLease):
            if request.lease_id not in self.leases:
                return None
            self.leases[request.lease_id] = now_s + self.ttl_s
            return request.lease_id, self.ttl_s
        if isinstance(request, Transact):
            return self._transact(request)
        if isinstance(request, Register):
            if request.lease_id in self.leases:
                self.revision += 1
                member = _Leased(request.info, request.lease_id, self.revision)
                self.members[request.info.member.broker_id] = member
            return None
        if isinstance(request, GrantLease):
            self._last_lease += 1
            self.leases[self._last_lease] = now_s + self.ttl_s
            return self._last_lease, self.ttl_s
        self._end(request.lease_id)
        return None

    def view(self) -> ClusterView:
        leader = self.leader
        members: dict[int, MemberInfo] = {name: it.value for name, it in self.members.items()}
        leads: Incarnation | None = leader.value if leader else None
        return ClusterView(
            self.revision,
            self.state,
            self.state_revision,
            leads,
            leader.revision if leader else 0,
            leader.lease_id if leader else 0,
            members,
        )

    def _transact(self, request: Transact) -> ClusterView:
        takes_lead = request.lead_on_lease is not None
        held = self.leader.revision if self.leader else 0
        if request.state_revision == self.state_revision and (
            not takes_lead
            or (held == request.leader_revision and request.lead_on_lease in self.leases)
        ):
            self.revision += 1
            self.state = request.state
            self.state_revision = self.revision
            if request.lead_on_lease is not None:
                self.leader = _Leased(request.state.leader, request.lead_on_lease, self.revision)
        return self.view()

    def expire(self, now_s: float) -> None:
        for lease_id, until_s in list(self.leases.items()):
            if until_s <= now_s:
                self._end(lease_id)

    def _end(self, lease_id: int) -> None:
        if self.leases.pop(lease_id, None) is None:
            return
        self.revision += 1
        if self.leader is not None and self.leader.lease_id == lease_id:
            self.leader = None
        self.members = {name: it for name, it in self.members.items() if it.lease_id != lease_id}

    def saved(self) -> "EtcdModel":
        """Return a snapshot of all keys and leases."""
        return replace(self, leases=dict(self.leases), members=dict(self.members))

    def restore(self, saved: "EtcdModel", now_s: float) -> None:
        """Restore a snapshot. Lease ids given out since then are not used again."""
        self.state, self.leader = saved.state, saved.leader
        self.revision, self.state_revision = saved.revision, saved.state_revision
        self.members = dict(saved.members)
        self.leases = dict.fromkeys(saved.leases, now_s + self.ttl_s)

    def create(self, state: ClusterState) -> None:
        """Make the state anew, as an operator does while no broker runs."""
        self.revision += 1
        self.state, self.state_revision = state, self.revision
        self.leader = None
        self.members.clear()
        self.leases.clear()

    def remove(self, broker_id: int) -> bool:
        """Remove a broker for good, as an operator does if the broker is not registered and another
        in-sync member is. Returns whether the broker was removed."""
        state = self.state.removed(broker_id)
        live = {member.value.member for member in self.members.values()}
        if broker_id in self.members or state == self.state or not state.isr & live:
            return False
        self.revision += 1
        self.state, self.state_revision = state, self.revision
        return True

    def restart(self, now_s: float) -> None:
        """Renew the leases that have not ended, as etcd does when it gets a new leader."""
        self.expire(now_s)
        self.leases = dict.fromkeys(self.leases, now_s + self.ttl_s)
