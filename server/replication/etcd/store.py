"""The keys of a cluster in etcd, under `/horolog/NAME/`.

All keys are read together, at one revision, and changed by transactions.

| Key | |
|---|---|
| `state` | The leader, its epoch, and the in-sync replicas. |
| `leader` | On the leader's lease: exists as long as the broker leads. |
| `members/ID` | A running broker, on its own lease. |
| `removed/ID` | A broker that a person removed. Exists for a minute: other brokers forget it. |
"""

from collections.abc import Mapping
from typing import Final

from ....replication.cluster_state import ClusterState, ClusterView
from ....replication.effects import Transact
from ....replication.settings import Incarnation
from ....values import value_class
from .client import BadValue, FoundKey, Gateway, Put
from .values import (
    StoredMember,
    StoredState,
    decode_leader,
    decode_member,
    decode_state,
    encode_leader,
    encode_member,
    encode_state,
)

ROOT: Final = "/horolog/"

FORGOTTEN_S: Final = 60
"""How long the key of a removed broker exists: long enough for all other brokers to read it."""


@value_class
class ClusterKeys:
    """All keys of a cluster, at one revision."""

    revision: int
    cluster_id: str
    """Empty if the cluster does not exist (yet)."""
    view: ClusterView | None
    members: Mapping[int, StoredMember]
    member_revisions: Mapping[int, int]
    removed: frozenset[int] = frozenset()
    """Brokers that were removed in the last minute."""


class ClusterStore:
    """The keys of one cluster. All calls raise `EtcdError`."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        self.gateway = gateway
        self.name = name
        self._prefix = f"{ROOT}{name}/"
        self._state = f"{self._prefix}state"
        self._leader = f"{self._prefix}leader"
        self._members = f"{self._prefix}members/"
        self._removed = f"{self._prefix}removed/"

    async def read(self) -> ClusterKeys:
        """Read all keys of the cluster, linearizably."""
        return self._seen(await self.gateway.range(self._prefix))

    async def transact(self, change: Transact, cluster_id: str) -> ClusterKeys:
        """Change the state unless another member has changed it. Returns the keys after that."""
        unchanged = [(self._state, change.state_revision)]
        puts = [Put(self._state, encode_state(StoredState(cluster_id, change.state)))]
        if change.lead_on_lease is not None:
            assert change.state.leader is not None
            unchanged.append((self._leader, change.leader_revision))
            leader = encode_leader(change.state.leader)
            puts.append(Put(self._leader, leader, change.lead_on_lease))
        return self._seen(await self.gateway.transact(unchanged, puts, read=self._prefix))

    async def register(self, member: StoredMember, revision: int) -> ClusterKeys:
        """Write a member's key, on its lease, if the key still has `revision` (0: does not exist).
        Returns the keys after that."""
        info = member.info
        key = self._member(info.member.broker_id)
        put = Put(key, encode_member(member), info.lease_id)
        found = await self.gateway.transact([(key, revision)], [put], read=self._prefix)
        return self._seen(found)

    async def create(self, cluster_id: str, state: ClusterState, revision: int = 0) -> ClusterKeys:
        """Write the first state of the cluster, if the state still has `revision` (0: does not
        exist). Returns the keys after that."""
        put = Put(self._state, encode_state(StoredState(cluster_id, state)))
        found = await self.gateway.transact([(self._state, revision)], [put], read=self._prefix)
        return self._seen(found)

    async def change(self, seen: ClusterKeys, state: ClusterState) -> tuple[bool, ClusterKeys]:
        """Replace the state if it is still the one in `seen`. Returns whether it was, and the keys
        after that."""
        assert seen.view is not None
        put = Put(self._state, encode_state(StoredState(seen.cluster_id, state)))
        unchanged = [(self._state, seen.view.state_revision)]
        found = await self.gateway.transact(unchanged, [put], read=self._prefix)
        return found.succeeded, self._seen(found)

    async def forget(self, broker_id: int) -> None:
        """Tell the running brokers to forget a broker that does not run."""
        lease_id, _ = await self.gateway.grant(FORGOTTEN_S)
        key = f"{self._removed}{broker_id}"
        await self.gateway.transact([], [Put(key, b"", lease_id)], read=key)

    def _member(self, broker_id: int) -> str:
        return f"{self._members}{broker_id}"

    def _seen(self, found: FoundKey) -> ClusterKeys:
        """Decode the keys that were read. Raises `BadValue`."""
        stored: StoredState | None = None
        leader: Incarnation | None = None
        state_revision = leader_revision = leader_lease = 0
        members: dict[int, StoredMember] = {}
        revisions: dict[int, int] = {}
        removed: set[int] = set()
        for each in found.values:
            if each.key == self._state:
                stored, state_revision = decode_state(each.key, each.value), each.revision
            elif each.key == self._leader:
                leader = decode_leader(each.key, each.value)
                leader_revision, leader_lease = each.revision, each.lease_id
            elif each.key.startswith(self._members):
                member = decode_member(each.key, each.value, each.lease_id)
                broker_id = member.info.member.broker_id
                if each.key != self._member(broker_id):
                    raise BadValue(f"the value of {each.key} in etcd is of broker {broker_id}")
                members[broker_id], revisions[broker_id] = member, each.revision
            elif each.key.startswith(self._removed):
                number = each.key.removeprefix(self._removed)
                removed |= {int(number)} if number.isascii() and number.isdigit() else set()
        if stored is None:
            return ClusterKeys(found.revision, "", None, members, revisions)
        view = ClusterView(
            found.revision,
            stored.state,
            state_revision,
            leader,
            leader_revision,
            leader_lease,
            {broker_id: member.info for broker_id, member in members.items()},
        )
        return ClusterKeys(
            found.revision, stored.cluster_id, view, members, revisions, frozenset(removed)
        )
