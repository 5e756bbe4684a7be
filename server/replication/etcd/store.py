"""The keys of a cluster in etcd, under `/horolog/NAME/`; their values, versioned JSON; and the
commands of an operator that change them: create a cluster, and remove a member.

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
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from ....protocol.errors import PolicyViolation, StorageError
from ....replication.cluster_state import (
    ClusterState,
    ClusterView,
    Halt,
    KeptMember,
    MemberInfo,
    ReplicaExtent,
)
from ....replication.effects import Transact
from ....replication.partition_log import Identity
from ....replication.settings import Incarnation, Member
from ....storage.directory.known_files import IDENTITY_FILE
from ....storage.directory.lock import DirectoryLock
from ....storage.directory.log_directory import load_cluster_id
from ....storage.files import SystemFiles
from ....storage.log.epoch_history import NO_EPOCH, MalformedEpochs, decode_epochs
from ....storage.names import LEADER_EPOCHS
from ....values import value_class
from ..member_files import IdentityFile, decode_identity
from ..replica_directory import HIGHEST_ADOPTED
from .client import Access, BadValue, EtcdClient, FoundKey, Gateway, Put

WITHIN_S = 10.0
"""How long a command waits for an answer of etcd."""

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


@value_class
class Created:
    """A cluster that was created."""

    cluster_id: str
    broker_id: int
    epoch: int
    """The epochs of the cluster's leaders are above this one."""


async def create(
    access: Access, name: str, data_dir: Path, broker_id: int | None, *, replace: bool
) -> Created:
    """Create a cluster in etcd with the data in `data_dir`: its broker is the only one in sync.

    The broker must not run. `broker_id` is for a directory without one. With `replace` an existing
    state of the cluster is replaced. Raises `CodedError`, `EtcdError`, `OSError`.
    """
    files = SystemFiles()
    lock = DirectoryLock(files, data_dir, advice="stop that broker first")
    try:
        broker_id = _broker_id(data_dir, broker_id)
        identity = IdentityFile(files, data_dir, broker_id)
        cluster_id = load_cluster_id(files, data_dir, SystemRandom())
        epoch = max(0, identity.identity.highest_epoch, *_epochs(data_dir))
        if epoch > HIGHEST_ADOPTED:
            raise StorageError(
                f"{data_dir} has messages of leader epoch {epoch}; a broker of a cluster goes on "
                f"from {HIGHEST_ADOPTED} at most"
            )
        async with EtcdClient(access, WITHIN_S) as client:
            store = ClusterStore(Gateway(client), name)
            seen = await store.read()
            if seen.view is not None and not replace:
                raise PolicyViolation(
                    f"cluster {name} is in etcd already (epoch {seen.view.state.epoch}); --replace "
                    "makes it anew from this directory, and the other brokers discard messages "
                    "that this directory does not have"
                )
            _check_none_runs(name, seen)
            if seen.view is not None:
                epoch = max(epoch, seen.view.state.epoch, seen.view.state.least_epoch - 1)
            # A new nonce, for a new entry into the ISR: stored before any broker can read it.
            nonce = SystemRandom().getrandbits(62) + 1
            identity.store(Identity(nonce, highest_epoch=epoch))
            members = frozenset({Member(broker_id, nonce)})
            state = ClusterState(epoch, None, members, settled_epoch=epoch)
            revision = 0 if seen.view is None else seen.view.state_revision
            made = await store.create(cluster_id, state, revision)
            if made.view is None or made.view.state != state:
                raise PolicyViolation(f"cluster {name} was made by another command just now")
    finally:
        lock.release()
    return Created(cluster_id, broker_id, epoch)


def _broker_id(data_dir: Path, given: int | None) -> int:
    path = data_dir / IDENTITY_FILE
    if not path.exists():
        return given or 1
    try:
        known = decode_identity(path.read_bytes()).broker_id
    except ValueError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    if given not in (None, known):
        raise PolicyViolation(
            f"{path} says that this is the data of broker {known}, and --broker-id is {given}"
        )
    return known


def _epochs(data_dir: Path) -> list[int]:
    """Return the leader epochs in all logs, including logs that Kafka wrote."""
    found = [NO_EPOCH]
    for path in sorted(data_dir.glob(f"**/{LEADER_EPOCHS}")):
        try:
            found += [one.epoch for one in decode_epochs(path.read_bytes()).starts]
        except MalformedEpochs as error:
            raise StorageError(f"{path} cannot be read: {error}") from error
    return found


def _check_none_runs(name: str, seen: ClusterKeys) -> None:
    if seen.members:
        raise PolicyViolation(
            f"brokers {sorted(seen.members)} of cluster {name} run, or did until a moment ago: "
            "stop them all, and try again when their leases have expired"
        )


async def remove(access: Access, name: str, broker_id: int, *, accept_loss: bool) -> bool:
    """Remove a broker that does not come back from the state, and have the other brokers forget it.
    Returns whether it was in the state.

    Raises `CodedError`, `EtcdError`.
    """
    async with EtcdClient(access, WITHIN_S) as client:
        store = ClusterStore(Gateway(client), name)
        for _ in range(5):
            seen = await store.read()
            view = seen.view
            if view is None:
                raise PolicyViolation(f"cluster {name} is not in etcd")
            if broker_id in seen.members:
                raise PolicyViolation(
                    f"broker {broker_id} runs at {seen.members[broker_id].address}, or did until a "
                    "moment ago: stop it, and try again after the time of a lease"
                )
            state = view.state.removed(broker_id)
            if state == view.state:
                await store.forget(broker_id)
                return False
            live = {member.info.member for member in seen.members.values()}
            was_in_sync = any(one.broker_id == broker_id for one in view.state.isr)
            alone = not state.isr or (was_in_sync and not state.isr & live)
            if alone and not accept_loss:
                raise PolicyViolation(
                    f"messages may be lost that only broker {broker_id} has: no other broker in "
                    "sync runs. --accept-loss takes it out all the same"
                )
            done, _ = await store.change(seen, state)
            if done:
                await store.forget(broker_id)
                return True
    raise PolicyViolation(f"the state of cluster {name} changes all the time; try again")
