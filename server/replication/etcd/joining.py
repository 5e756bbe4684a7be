"""Whether what etcd says is of this broker's cluster, and whether the broker may act on it."""

from ....protocol.errors import HorologError
from ....replication.cluster_state import ClusterState
from ....replication.settings import Incarnation, Member
from ....storage.directory.log_directory import LogDirectory
from ....storage.log.epoch_history import NO_EPOCH
from ..replica_directory import ReplicaDirectory
from .store import Seen


class EtcdJoining:
    """Why a broker takes no part, if it does not."""

    def __init__(
        self, name: str, directory: LogDirectory, stored: ReplicaDirectory, me: Incarnation
    ) -> None:
        self._name = name
        self._directory = directory
        self._stored = stored
        self._me = me
        self._was_there = False
        """Whether this cluster has been in etcd since the start."""
        self._registered = False
        """Whether this run has been seen in etcd."""
        self.refused = self.taken = False
        """Whether it is not to start so: at all, or as long as another broker has its id."""
        self.joined = False

    def first_state(self) -> ClusterState:
        """Of a cluster that begins with this broker's data: it is in sync, and none leads yet."""
        epoch = max(0, self._stored.identity.highest_epoch)
        member = Member(self._stored.broker_id, self._stored.identity.nonce)
        return ClusterState(epoch, None, frozenset({member}), settled_epoch=epoch)

    @property
    def never_joined(self) -> bool:
        """Whether this directory has not been in a cluster yet.

        It may have epochs all the same, of the Kafka that wrote its logs. The nonce is kept just
        before the cluster is made, the epoch when that is read back.
        """
        identity = self._stored.identity
        return not identity.nonce or identity.highest_epoch == NO_EPOCH

    def check(self, seen: Seen) -> str:
        """Look at what was read; returns why this broker must not act on it, empty if it may."""
        self.refused = self.taken = False
        if seen.view is None:
            return self._missing()
        self._was_there = True
        other = self._other_data(seen, seen.view.state)
        taken = self._taken(seen)
        self.refused, self.taken = bool(other), bool(taken)
        return other or taken

    def _missing(self) -> str:
        if self._was_there or not self.never_joined:
            return (
                f"cluster {self._name} is not in etcd (any more), and this broker has been in a "
                "cluster: where the one is that led last, stopped, run "
                f"`horolog cluster create {self._name}`"
            )
        return (
            f"cluster {self._name} is not in etcd yet: start the broker whose data counts with "
            f"--create-cluster, or run `horolog cluster create {self._name}` where its data is"
        )

    def _other_data(self, seen: Seen, state: ClusterState) -> str:
        if self.joined:
            return ""
        directory, member = self._directory, Member(self._me.broker_id, self._stored.identity.nonce)
        if not self.never_joined or member in state.isr:
            ours = directory.cluster_id()
            if ours != seen.cluster_id:
                return (
                    f"this directory has the data of cluster {ours}, and {self._name} in etcd is "
                    f"cluster {seen.cluster_id}: start with another data directory (--data-dir), "
                    "or once with --discard, which sets this data aside"
                )
        elif directory.topics():
            return (
                "this directory has topics that are not of the cluster "
                f"{self._name}: start with an empty data directory (--data-dir), or with "
                "--discard, which sets them aside"
            )
        try:
            directory.keep_cluster_id(seen.cluster_id)
        except HorologError as error:
            return error.message
        self.joined = True
        return ""

    def _taken(self, seen: Seen) -> str:
        there = seen.members.get(self._me.broker_id)
        if there is None:
            return ""
        if there.info.incarnation == self._me:
            self._registered = True
            return ""
        nonce = self._stored.identity.nonce
        if nonce and there.info.member.nonce == nonce and not self._registered:
            return ""  # An earlier run with this very directory, which is locked by this one now.
        return (
            f"another broker with broker.id {self._me.broker_id} is at "
            f"{there.address}, or was until a moment ago: each has its own (--broker-id)"
        )
