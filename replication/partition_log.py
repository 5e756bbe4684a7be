"""What replication needs of a partition's log, and of the directory that holds the logs."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ..storage.log.epoch_history import NO_EPOCH, EpochHistory
from ..storage.replica.copy_facts import Stored
from .settings import Member

Partition = tuple[str, int]


class PartitionLog(Protocol):
    """One partition's log. Every method has completed its work when it returns.

    A power cut may lose appended messages that were not synced, from some offset on. Every other
    change must be on stable storage when its method returns: if a power cut undid a truncation,
    messages of one epoch would come back inside the range of another, and no check could find them.
    """

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def min_insync(self) -> int | None:
        """`min.insync.replicas` of the topic, which may change at any time; `None` for the metadata
        log, to which the broker's value applies."""
        ...

    @property
    def sync_for_acks_all(self) -> bool | None:
        """Whether `acks.all.durability` of the topic is `fsync`, which may change at any time;
        `None` for the metadata log, to which the broker's value applies."""
        ...

    @property
    def synced_offset(self) -> int:
        """Offset below which everything is on stable storage."""
        ...

    @property
    def high_watermark(self) -> int:
        """First offset that consumers cannot read. After an open it is that of a checkpoint, or the
        log start."""
        ...

    @property
    def damaged_from(self) -> int | None:
        """First offset that is known to be damaged: it was stored here and cannot be read any
        more."""
        ...

    @property
    def history_lost(self) -> bool:
        """Whether the epochs of the messages are unknown. A follower then copies all of them again;
        `lead` keeps them, as messages of its own epoch."""
        ...

    def set_high_watermark(self, offset: int) -> None: ...

    def lead(self, epoch: int) -> None:
        """Start to lead. Called before any other method is called for the leader."""
        ...

    @property
    def epochs(self) -> EpochHistory:
        """The epochs of the log; none starts at or beyond the log end."""
        ...

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Record an epoch whose first message follows; synced before this returns."""
        ...

    def read_stored(self, offset: int, max_bytes: int) -> Stored:
        """Read whole sets from `offset` on: at least one, unless `offset` is the log end."""
        ...

    def append_stored(self, stored: Stored) -> bool:
        """Append what another log's `read_stored` returned for this log's end. Returns false, and
        appends nothing, if the data are damaged."""
        ...

    def truncate(self, offset: int) -> None:
        """Remove the messages from `offset` on, with the epochs that start there. More are removed
        where a set contains `offset`, or where what precedes it is damaged."""
        ...

    def producers_at_start(self) -> Any:
        """Return the state of idempotent producers at the log start."""
        ...

    def truncate_fully(self, offset: int, producers: Any) -> None:
        """Remove all messages and epochs; the log continues at `offset`.

        `producers` comes from another log's `producers_at_start`. It prevents a retry of a message
        below the log start from being stored again.
        """
        ...

    def raise_log_start(self, offset: int) -> None:
        """Remove the messages below `offset`, which is not beyond the log end."""
        ...


class Identity(NamedTuple):
    """What a directory knows of itself in the cluster. Stored in one file."""

    nonce: int = 0
    """Random number, new for each entry into the ISR; 0 in a directory that never had one."""
    in_doubt: bool = False
    """Whether messages that this member confirmed may be missing."""
    highest_epoch: int = NO_EPOCH
    """The highest leader epoch that this directory has seen."""
    counted_revision: int = 0
    """The last revision of the cluster's state whose ISR this member counted as leader."""
    record: frozenset[Member] = frozenset()
    """Under manual promotion: the ISR that this broker counted last as leader."""
    next_nonce: int = 0
    """Replaces `nonce` once the ISR in the cluster's state contains it; 0 for none."""


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
        """By epoch, the member that led in it. Covers the epochs of this directory's messages, and
        perhaps others."""
        ...

    def keep_owners(self, owners: Mapping[int, Member]) -> None:
        """Replace the stored owners; synced before this returns."""
        ...

    @property
    def complete(self) -> bool:
        """Whether there is a log for each partition that is named by the committed metadata."""
        ...

    def store(self, identity: Identity) -> None:
        """Store the identity; synced before this returns."""
        ...
