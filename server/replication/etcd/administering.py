"""Commands of an operator that work on etcd directly: create a cluster, and remove a member."""

from pathlib import Path
from random import SystemRandom

from ....protocol.errors import PolicyViolation, StorageError
from ....replication.cluster_state import ClusterState
from ....replication.partition_log import Identity
from ....replication.settings import Member
from ....storage.directory.known_files import IDENTITY_FILE
from ....storage.directory.lock import DirectoryLock
from ....storage.directory.log_directory import load_cluster_id
from ....storage.files import SystemFiles
from ....storage.log.epoch_history import NO_EPOCH, MalformedEpochs, decode_epochs
from ....storage.names import LEADER_EPOCHS
from ....values import value_class
from ..member_files import IdentityFile, decode_identity
from ..replica_directory import HIGHEST_ADOPTED
from .client import Access, EtcdClient, Gateway
from .store import ClusterKeys, ClusterStore

WITHIN_S = 10.0
"""How long a command waits for an answer of etcd."""


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
