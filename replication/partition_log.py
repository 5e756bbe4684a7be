"""What replication needs of a partition's log and of the directory that holds the logs."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ..storage.log.epoch_history import NO_EPOCH, EpochHistory
from ..storage.replica.copy_facts import Stored
from .settings import Member

Partition = tuple[str, int]


class PartitionLog(Protocol):
    """One partition's log. Every method is finished when it returns.

    What was appended and not synced may be lost at a power cut, from some offset on. All else must
    be on stable storage when its method returns: a cut that a power cut undoes would bring messages
    of one epoch back below the line of another one, and no question would find them.
    """

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def min_insync(self) -> int | None:
        """`min.insync.replicas` of its topic, which may change at any time; `None`: the broker's
        counts."""
        ...

    @property
    def sync_for_acks_all(self) -> bool | None:
        """Whether `acks.all.durability` of its topic is `fsync`, which may change at any time;
        `None`: the broker's counts."""
        ...

    @property
    def synced_offset(self) -> int:
        """Everything below it is on stable storage."""
        ...

    @property
    def high_watermark(self) -> int:
        """First offset that consumers do not see. Opened at a checkpoint or at the log start."""
        ...

    @property
    def damaged_from(self) -> int | None:
        """First offset that was stored here and cannot be read any more, as far as is known."""
        ...

    @property
    def history_lost(self) -> bool:
        """Whether it cannot be known in which epochs its messages were written. A follower asks for
        all of them again; `lead` keeps them, as messages of its own epoch."""
        ...

    def set_high_watermark(self, offset: int) -> None: ...

    def lead(self, epoch: int) -> None:
        """This broker leads from now on. Called before anything is asked by it as the leader."""
        ...

    @property
    def epochs(self) -> EpochHistory:
        """None at or beyond the log end."""
        ...

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Write the line of an epoch whose first message follows; synced before it returns."""
        ...

    def read_stored(self, offset: int, max_bytes: int) -> Stored:
        """Whole sets from `offset` on; at least one, unless that is the log end."""
        ...

    def append_stored(self, stored: Stored) -> bool:
        """Append what another log's `read_stored` gave at this log's end; false where that is
        damaged, and nothing is appended."""
        ...

    def truncate(self, offset: int) -> None:
        """Remove the messages from `offset` on, with the epochs that began there; more where a set
        holds `offset`, or what is in front of it is damaged."""
        ...

    def producers_at_start(self) -> Any:
        """What is known at the log start of producers that number their batches."""
        ...

    def truncate_fully(self, offset: int, producers: Any) -> None:
        """Remove all messages and epochs; the log goes on at `offset`.

        `producers` is what another log's `producers_at_start` gave: a retry of a message that is
        below the log start is not to be stored again.
        """
        ...

    def raise_log_start(self, offset: int) -> None:
        """Remove the messages below `offset`, which is not beyond the log end."""
        ...


class Identity(NamedTuple):
    """What a directory knows of itself in the cluster. Kept in one file."""

    nonce: int = 0
    """Made anew for each entry into the ISR; 0 in a directory that never had one."""
    in_doubt: bool = False
    """Whether something that this member confirmed may be missing."""
    highest_epoch: int = NO_EPOCH
    """The highest leader epoch that this directory has seen."""
    counted_revision: int = 0
    """The last revision of the cluster's state whose ISR this member counted as its leader."""
    record: frozenset[Member] = frozenset()
    """By hand: the ISR that this broker counted last as a leader."""
    next_nonce: int = 0
    """Takes the place of `nonce` once the cluster's state has it in the ISR; 0 for none."""


class Directory(Protocol):
    """A broker's data directory."""

    @property
    def broker_id(self) -> int: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def logs(self) -> Mapping[Partition, PartitionLog]: ...

    @property
    def owners(self) -> Mapping[int, Member]:
        """By epoch, the member that led in it: of epochs that this directory has messages of, and
        perhaps of others."""
        ...

    def keep_owners(self, owners: Mapping[int, Member]) -> None:
        """Know these from now on; synced before it returns."""
        ...

    @property
    def complete(self) -> bool:
        """Whether there is a log of each partition that the metadata below their watermark name."""
        ...

    def store(self, identity: Identity) -> None:
        """Keep it; synced before it returns."""
        ...
