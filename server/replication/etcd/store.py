"""The keys of a cluster in etcd, under `/horolog/NAME/`, and their values: JSON, each with a
version.

All keys are read together, at one revision, and changed by transactions.

| Key | |
|---|---|
| `state` | The leader, its epoch, and the in-sync replicas. |
| `leader` | On the leader's lease: exists as long as the broker leads. |
| `members/ID` | A running broker, on its own lease. |
| `removed/ID` | A broker that a person removed. Exists for a minute: other brokers forget it. |

`state`:

    {"version": 1, "cluster_id": "RKJuE-phluKdGrFdw9V7kw", "epoch": 3, "leader": [2, 77],
     "isr": [[1, 5], [2, 8]], "kept": [[3, 9, 1204]], "settled_epoch": 0}

Version 2 adds `"least_epoch": 7, "halt": [6]`: from which epoch on a broker may lead, and why none
leads now. The number in `halt` is the epoch that has two owners, or -1 if etcd went back to an
older state. Releases that do not know version 2 do not act on it.

`leader` is (broker id, number of its run) or null, `isr` has (broker id, nonce), `kept` has (broker
id, nonce, revision). The key `leader` has (broker id, number of its run):

    {"version": 1, "incarnation": [2, 77]}

`members/ID`:

    {"version": 1, "incarnation": [2, 77], "member": [2, 8], "highest_epoch": 3,
     "address": "10.0.0.2:7070", "kafka_address": "10.0.0.2:9092", "reach": null}

If the member's logs may be needed for recovery, `reach` is

    {"counted_revision": 1190, "logs": {"orders": [[0, 120, 0]]}, "history_lost": false}

with (partition, log end offset, log start offset). `history_lost` may be missing, which means
false. Unknown fields are ignored, so that a later release may add some.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from ....replication.cluster_state import (
    ClusterState,
    ClusterView,
    Halt,
    KeptMember,
    MemberInfo,
    ReplicaExtent,
)
from ....replication.effects import Transact
from ....replication.settings import Incarnation, Member
from ....storage.log.epoch_history import NO_EPOCH
from ....values import value_class
from .client import BadValue, FoundKey, Gateway, Put

VERSION: Final = 1

HALTING: Final = 2
"""Version of a state with `least_epoch` and `halt`."""

_SHOWN: Final = 80

ROOT: Final = "/horolog/"

FORGOTTEN_S: Final = 60
"""How long the key of a removed broker exists: long enough for all other brokers to read it."""


@value_class
class StoredState:
    """The value of the key `state`."""

    cluster_id: str
    state: ClusterState


@value_class
class StoredMember:
    """The value of a key `members/ID`, with the lease of the key."""

    info: MemberInfo
    address: str
    kafka_address: str


def encode_state(stored: StoredState) -> bytes:
    """Encode the value of the key `state`."""
    state = stored.state
    halt = state.halt
    later: dict[str, Any] = {}
    if halt is not None or state.least_epoch:
        halt_fields = None if halt is None else [halt.contested_epoch]
        later = {"version": HALTING, "least_epoch": state.least_epoch, "halt": halt_fields}
    return _encoded(
        **later,
        cluster_id=stored.cluster_id,
        epoch=state.epoch,
        leader=None if state.leader is None else list(state.leader),
        isr=sorted(list(member) for member in state.isr),
        kept=sorted([*kept.member, kept.revision] for kept in state.kept),
        settled_epoch=state.settled_epoch,
    )


def decode_state(key: str, value: bytes) -> StoredState:
    """Decode the value of the key `state`. Raises `BadValue`."""
    reader = _ValueReader(key, value, HALTING)
    document = reader.document
    leader, halt = document.get("leader"), document.get("halt")
    document.setdefault("least_epoch", 0)
    document.setdefault("settled_epoch", NO_EPOCH)
    return StoredState(
        reader.text("cluster_id"),
        ClusterState(
            reader.number("epoch"),
            None if leader is None else Incarnation(*reader.numbers(leader, 2)),
            frozenset(Member(*each) for each in reader.lists("isr", 2)),
            frozenset(KeptMember(Member(*each[:2]), each[2]) for each in reader.lists("kept", 3)),
            reader.number("least_epoch"),
            reader.number("settled_epoch", NO_EPOCH),
            None if halt is None else Halt(*reader.numbers(halt, 1)),
        ),
    )


def encode_leader(incarnation: Incarnation) -> bytes:
    """Encode the value of the key `leader`."""
    return _encoded(incarnation=list(incarnation))


def decode_leader(key: str, value: bytes) -> Incarnation:
    """Decode the value of the key `leader`. Raises `BadValue`."""
    reader = _ValueReader(key, value)
    return Incarnation(*reader.numbers(reader.document.get("incarnation"), 2))


def encode_member(stored: StoredMember) -> bytes:
    """Encode the value of a key `members/ID`. The lease is not part of the value."""
    info = stored.info
    return _encoded(
        incarnation=list(info.incarnation),
        member=list(info.member),
        highest_epoch=info.highest_epoch,
        address=stored.address,
        kafka_address=stored.kafka_address,
        reach=None if info.reach is None else _reach(info.reach),
    )


def _reach(reach: ReplicaExtent) -> dict[str, Any]:
    logs: dict[str, list[list[int]]] = {}
    for (topic, partition), end, start in reach.logs:
        logs.setdefault(topic, []).append([partition, end, start])
    return {
        "counted_revision": reach.counted_revision,
        "logs": logs,
        "history_lost": reach.history_lost,
    }


def decode_member(key: str, value: bytes, lease_id: int) -> StoredMember:
    """Decode the value of a key `members/ID`. Raises `BadValue`."""
    reader = _ValueReader(key, value)
    info = MemberInfo(
        Incarnation(*reader.numbers(reader.document.get("incarnation"), 2)),
        Member(*reader.numbers(reader.document.get("member"), 2)),
        reader.number("highest_epoch", -1),
        lease_id,
        reader.reach(),
    )
    return StoredMember(info, reader.text("address"), reader.text("kafka_address"))


def _encoded(**fields: Any) -> bytes:
    return json.dumps({"version": VERSION} | fields, separators=(",", ":")).encode()


class _ValueReader:
    """Reads and checks the fields of a value. Raises `BadValue`."""

    def __init__(self, key: str, value: bytes, newest: int = VERSION) -> None:
        self._key = key
        try:
            document = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"is no JSON ({str(error)[:_SHOWN]})") from error
        if not isinstance(document, dict):
            raise self.wrong("is no object")
        self.document: dict[str, Any] = document
        version = document.get("version")
        if version not in range(VERSION, newest + 1):
            raise self.wrong(
                f"is of version {str(version)[:_SHOWN]}, and this release knows version {newest}: "
                "start a later release"
            )

    def wrong(self, what: str) -> BadValue:
        return BadValue(f"the value of {self._key} in etcd {what}")

    def number(self, name: str, least: int = 0) -> int:
        value = self.document.get(name)
        if type(value) is not int or value < least:
            raise self.wrong(f"has {name} {str(value)[:_SHOWN]!r}, not a number from {least} on")
        return value

    def text(self, name: str) -> str:
        value = self.document.get(name)
        if not isinstance(value, str) or len(value) > 1000:
            raise self.wrong(f"has {name} {str(value)[:_SHOWN]!r}, not a text")
        return value

    def numbers(self, value: object, count: int) -> list[int]:
        right = isinstance(value, list) and len(value) == count
        if not right or not all(type(each) is int for each in value):  # type: ignore[attr-defined]
            raise self.wrong(f"has {str(value)[:_SHOWN]} where {count} numbers are expected")
        return value  # type: ignore[return-value]

    def lists(self, name: str, count: int) -> list[list[int]]:
        value = self.document.get(name)
        if not isinstance(value, list):
            raise self.wrong(f"has {name} {str(value)[:_SHOWN]!r}, not a list")
        return [self.numbers(each, count) for each in value]

    def reach(self) -> ReplicaExtent | None:
        value = self.document.get("reach")
        if value is None:
            return None
        if not isinstance(value, dict) or not isinstance(value.get("logs"), dict):
            raise self.wrong(f"has reach {str(value)[:_SHOWN]}")
        counted = value.get("counted_revision")
        if type(counted) is not int:
            raise self.wrong(f"has counted_revision {str(counted)[:_SHOWN]!r}, not a number")
        history_lost = value.get("history_lost", False)
        if type(history_lost) is not bool:
            raise self.wrong(f"has history_lost {str(history_lost)[:_SHOWN]!r}, not true or false")
        logs = []
        for topic, partitions in value["logs"].items():
            if not isinstance(partitions, list):
                raise self.wrong(f"has {str(partitions)[:_SHOWN]} where a list is expected")
            for each in partitions:
                partition, end, start = self.numbers(each, 3)
                logs.append(((topic, partition), end, start))
        return ReplicaExtent(counted, tuple(sorted(logs)), history_lost)


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
