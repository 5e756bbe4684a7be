"""The data directory of a cluster member, behind the interfaces of `replication/`."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final

from ...protocol.errors import HorologError, StorageError
from ...replication.partition_log import Identity, Partition
from ...replication.settings import Member
from ...storage.directory.log_directory import LogDirectory
from ...storage.events import Observer
from ...storage.log.epoch_history import NO_EPOCH
from ...storage.log.log import Log
from ...storage.metadata.folder import METADATA_PARTITION
from ...storage.metadata.metadata_log import MetadataLog
from ...storage.metadata.snapshot import Snapshot, StateCopy, StatePart, StateReading
from ...storage.names import LEADER_EPOCHS
from ...storage.replica.replica_log import ReplicaLog, ReplicaOwner
from ..work import Work
from .member_files import EpochOwnersFile, IdentityFile

METADATA: Partition = METADATA_PARTITION

HIGHEST_ADOPTED: Final = 2**31 - 1_000_001
"""The highest leader epoch of existing logs with which a broker may join: the cluster needs epochs
above it."""

_start_of: Final[Callable[[ReplicaLog], int]] = attrgetter("log.log_start_offset")


UNREADABLE_MAX: Final = 3
"""How many partitions that cannot be copied are named, each with its error."""
UNREADABLE_CHARACTERS: Final = 500


class ReplicaMetadataLog(ReplicaLog):
    """The `PartitionLog` of the metadata log.

    A follower whose copy begins at the log start needs the stored state, which the leader sends in
    parts: the follower repeats its position until it has all parts, and `truncate_fully` changes
    nothing before that.
    """

    __slots__ = ("_copying", "_snapshot", "metadata", "moved")

    def __init__(self, metadata: MetadataLog, directory: "ReplicaOwner") -> None:
        super().__init__(metadata.log, directory)
        self.metadata = metadata
        self.moved: Callable[[], None] = _nothing
        """Called when other records than before may be applied."""
        self._copying: StateCopy = metadata.copying_state()
        self._snapshot: Snapshot | None = None

    @property
    def min_insync(self) -> None:
        return None

    @property
    def sync_for_acks_all(self) -> None:
        return None

    @property
    def blocks(self) -> StorageError | None:
        """Why this broker cannot follow: a record of the metadata log cannot be read. Damage of the
        local copy does not count, because the leader sends the records again."""
        return None if self.damaged_from is not None else self.metadata.failure

    def begin_epoch(self, epoch: int, offset: int) -> None:
        if self._leads and self.log.epochs.history.last_epoch != epoch:
            self.metadata.lead(epoch)

    def truncate(self, offset: int) -> None:
        # While the log is damaged, no position is confirmed, and only the damage is cut off.
        self.metadata.truncate(offset, comes_again=self.damaged_from is not None)
        self.moved()

    def producers_at_start(self) -> "ReplicaMetadataLog":
        """Return this log in place of the stored state, which is read for each follower
        separately."""
        return self

    def reading_state(self) -> StateReading:
        """Return a reader of the stored state, in parts. Raises `StorageError`."""
        return self.metadata.reading_state()

    def take_part(self, part: StatePart) -> None:
        """Store a part of the leader's state. Any thread.

        Raises `InvalidRequest`, `StorageError`.
        """
        self._snapshot = self._copying.take(part)

    def truncate_fully(self, offset: int, producers: Any) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            if self.history_lost:
                with suppress(OSError):  # Without epochs the leader sends its state.
                    self.log.epochs.clear()
        else:
            self.metadata.begin_anew(offset, self._copying, snapshot)
            self.moved()

    def raise_log_start(self, offset: int) -> None:
        """Move the log start to `offset`, at most to the end of the stored state. The rest follows
        once a new state is written."""
        if self.log.recovery_point < offset:
            self.log.flusher.flush()
        self.metadata.begin_at(offset)
        self.moved()

    def lead(self, epoch: int) -> None:
        self._leads = True
        self.metadata.begin_to_lead()
        if self.history_lost:
            self._take_for_own(epoch)

    def follow(self) -> None:
        self._leads = False
        self.metadata.follow()


def _nothing() -> None:
    """Do nothing: the default of `moved`."""


class ReplicaDirectory:
    """The `Directory` of a cluster member."""

    def __init__(
        self,
        directory: LogDirectory,
        identity: IdentityFile,
        owners: EpochOwnersFile,
        broker_id: int,
        observe: Observer,
    ) -> None:
        self.broker_id = broker_id
        self.directory = directory
        self.damage_met = False
        """Whether a log found damage since this was last set to false."""
        self.metadata = ReplicaMetadataLog(directory.metadata, self)
        self.metadata.follow()
        self.logs: dict[Partition, ReplicaLog] = {METADATA: self.metadata}
        self._unopened: set[Partition] = set()
        """Existing partitions whose logs cannot be opened."""
        in_doubt = directory.metadata.in_doubt
        self.damaged = bool(directory.missing or in_doubt or self.metadata.hurt)
        """Whether messages or records are missing that this broker had before the start."""
        self._identity = identity
        self._owners = owners
        self._observe = observe
        self._seen_changes = -1
        self.failing: dict[Partition, str] = {}
        """Partitions that could not be copied, or read for a follower, with the error."""

    @property
    def identity(self) -> Identity:
        return self._identity.identity

    def store(self, identity: Identity) -> None:
        self._identity.store(identity)

    @property
    def owners(self) -> Mapping[int, Member]:
        return self._owners.owners

    def keep_owners(self, owners: Mapping[int, Member]) -> None:
        self._owners.store(owners)

    async def write_owners_ahead(self, owners: Mapping[int, Member], work: Work) -> None:
        """Write these owners in a thread, so that the event loop does not wait for the disk when
        the state machine stores them.

        Raises `StorageError`.
        """
        if owners != self._owners.owners:
            await work.in_reading_thread(lambda: self._owners.write(owners))

    async def store_ahead(self, coming: Identity, work: Work) -> None:
        """Write a new epoch or revision in a thread, so that the event loop does not wait for the
        disk when the state machine stores it.

        Raises `StorageError`.
        """
        storing = self._identity.storing_ahead(coming)
        if storing is not None:
            await work.in_reading_thread(storing)

    @property
    def copied(self) -> bool:
        """Whether the directory is a copy, which may lack messages that its broker confirmed."""
        return self._identity.copied

    @property
    def may_have_lost(self) -> bool:
        """Whether messages that were confirmed before this start may be missing."""
        power_cut = self._identity.rebooted and not self.directory.stopped_cleanly
        return power_cut or self.damaged

    @property
    def complete(self) -> bool:
        metadata = self.metadata.metadata
        known = metadata.failure is None and metadata.applied >= metadata.log.high_watermark
        if not known or self.topics_changed or self._unopened:
            return False
        return not self.hurt()

    def hurt(self) -> list[Partition]:
        """Return the partitions whose logs are damaged."""
        return [key for key, one in self.logs.items() if one.damaged_from is not None]

    @property
    def unreadable(self) -> str:
        """Text with the partitions that could not be read for a follower, or copied, and the
        errors; only the first of many."""
        if not self.failing:
            return ""  # Nearly always, and needed for every answer to a follower.
        texts = [
            f"{topic}-{number}: {text[:UNREADABLE_CHARACTERS]}"
            for (topic, number), text in list(self.failing.items())[:UNREADABLE_MAX]
        ]
        more = len(self.failing) - len(texts)
        return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")

    @property
    def lost_histories(self) -> str:
        """Text with the logs whose leader epochs cannot be read; empty if there are none."""
        lost = [f"{topic}-{n}" for (topic, n), one in self.logs.items() if one.history_lost]
        return f"{LEADER_EPOCHS} of {', '.join(lost[:3])} cannot be read here" if lost else ""

    def _find_damage(self, key: Partition, stored: ReplicaLog) -> None:
        """Record whether a log lacks messages that were on stable storage before this start."""
        if stored.hurt or stored.log_end_offset < self.directory.ends_at_start.get(key, 0):
            self.damaged = True

    def know_epochs(self) -> None:
        """Raise the known epoch to the highest epoch in the logs, so that epochs of this cluster
        begin above those that the logs have from elsewhere.

        Raises `StorageError` if no epochs are left above.
        """
        highest = NO_EPOCH
        for stored in self.logs.values():
            epochs = stored.log.epochs
            highest = max(highest, epochs.highest_seen)
        if highest > HIGHEST_ADOPTED:
            raise StorageError(
                f"{self.metadata.log.path.parent.parent} has messages of leader epoch {highest}; "
                f"a broker of a cluster goes on from {HIGHEST_ADOPTED} at most"
            )
        if highest > self.identity.highest_epoch:
            self.store(self.identity._replace(highest_epoch=highest))

    @property
    def topics_changed(self) -> bool:
        """Whether topics were added or removed since the last call of `changed`."""
        return self._seen_changes != self.directory.topic_changes

    def changed(self) -> tuple[list[Partition], list[Partition]]:
        """Update `logs`. Returns the partitions that were added since the last call, and those that
        were removed.

        A log that cannot be opened is left out: its messages are neither copied nor acknowledged.
        """
        self._seen_changes = self.directory.topic_changes
        there = dict.fromkeys((METADATA, *self.directory.partitions()))
        gone = [key for key, one in self.logs.items() if not self._is_current(one, there)]
        for key in gone:
            del self.logs[key]
            self.failing.pop(key, None)
        added = [key for key in there if key not in self.logs and self._open(key)]
        self._unopened = there.keys() - self.logs.keys()
        return added, gone

    def _is_current(self, stored: ReplicaLog, there: dict[Partition, None]) -> bool:
        if stored.partition not in there or stored is self.metadata:
            return stored is self.metadata
        return self.directory.opened_log(stored.partition) is stored.log

    def _open(self, key: Partition) -> bool:
        try:
            log = self.directory.log(*key)
            stored = ReplicaLog(log, self, self.directory.topics()[key[0]].topic_id)
            self._find_damage(key, stored)
            if stored.history_lost:
                self.damaged = True
        except (HorologError, OSError) as error:
            self.damaged = True
            self._observe(
                "partition_not_replicated", topic=key[0], partition=key[1], error=str(error)
            )
            return False
        stored.follow()
        self.logs[key] = stored
        return True

    def follow(self) -> None:
        """Have all logs follow: another broker leads from now on, or none."""
        self.failing.clear()
        for stored in self.logs.values():
            stored.follow()

    def secure_log_start(self, log: Log) -> None:
        self.directory.secure_log_starts([log])
        try:
            self.directory.reserve.retrying(log.expiry.drop_expired)
        except OSError as error:
            raise StorageError(f"{log.path}: old segments could not be dropped: {error}") from error

    def failed(self, log: Log, error: Exception) -> None:
        partition, text = (log.topic, log.partition), str(error)
        if self.failing.get(partition) != text:
            self.failing[partition] = text
            self._observe(
                "partition_not_replicated", topic=log.topic, partition=log.partition, error=text
            )

    def raised_starts(self, known: dict[Partition, int]) -> list[Partition]:
        """Return the partitions whose log start is above the one in `known`, and update
        `known`."""
        # Called every second for thousands of logs, of which most have not changed.
        starts = list(map(_start_of, self.logs.values()))
        if starts == list(known.values()):
            return []
        found = dict(zip(self.logs, starts, strict=True))
        raised = [key for key, start in found.items() if start > known.get(key, start)]
        known.clear()
        known.update(found)
        return raised
