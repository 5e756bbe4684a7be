"""A broker's data directory as `replication/` sees it."""

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
from ...storage.metadata.snapshot import Snapshot
from ...storage.metadata.state_copy import StateCopy, StatePart, StateReading
from ...storage.names import LEADER_EPOCHS
from ...storage.replica.replica_log import ReplicaLog, ReplicaOwner
from ..work import Work
from .member_files import EpochOwnersFile, IdentityFile

METADATA: Partition = METADATA_PARTITION

HIGHEST_ADOPTED: Final = 2**31 - 1_000_001
"""There have to be epochs above."""

_start_of: Final[Callable[[ReplicaLog], int]] = attrgetter("log.log_start_offset")


UNREADABLE_MAX: Final = 3
"""Partitions that are named with what is wrong with them."""
UNREADABLE_CHARACTERS: Final = 500


class ReplicaMetadataLog(ReplicaLog):
    """The `PartitionLog` of the metadata log.

    What a copy needs that begins at the log start is the stored state, which comes in parts: the
    follower says its position again until it has all, and `truncate_fully` changes nothing before.
    """

    __slots__ = ("_copying", "_snapshot", "metadata", "moved")

    def __init__(self, metadata: MetadataLog, directory: "ReplicaOwner") -> None:
        super().__init__(metadata.log, directory)
        self.metadata = metadata
        self.moved: Callable[[], None] = _nothing
        """Called when what may be applied is not what it was."""
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
        """Why the broker cannot go by what it copies: a record that is no record. What is damaged
        here is copied again from the leader, and so does not keep it from following."""
        return None if self.damaged_from is not None else self.metadata.failure

    def begin_epoch(self, epoch: int, offset: int) -> None:
        if self._leads and self.log.epochs.history.last_epoch != epoch:
            self.metadata.lead(epoch)

    def truncate(self, offset: int) -> None:
        # Damage is all that is cut off while there is some: no position is confirmed meanwhile.
        self.metadata.truncate(offset, comes_again=self.damaged_from is not None)
        self.moved()

    def producers_at_start(self) -> "ReplicaMetadataLog":
        """Stands for the stored state, which is read for each follower by itself."""
        return self

    def reading_state(self) -> StateReading:
        """The stored state in parts. Raises `StorageError`."""
        return self.metadata.reading_state()

    def take_part(self, part: StatePart) -> None:
        """Keep a part of the leader's state. May run in any thread.

        Raises `InvalidRequest`, `StorageError`.
        """
        self._snapshot = self._copying.take(part)

    def truncate_fully(self, offset: int, producers: Any) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            if self.history_lost:
                with suppress(OSError):  # The leader's answer to that is its state.
                    self.log.epochs.clear()
        else:
            self.metadata.begin_anew(offset, self._copying, snapshot)
            self.moved()

    def raise_log_start(self, offset: int) -> None:
        """As far as the stored state reaches; the rest comes once there is another one."""
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
    """In the place of `moved` until that is set."""


class ReplicaDirectory:
    """The `Directory` of a broker; see there."""

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
        """Whether a log met damage since this was set to false."""
        self.metadata = ReplicaMetadataLog(directory.metadata, self)
        self.metadata.follow()
        self.logs: dict[Partition, ReplicaLog] = {METADATA: self.metadata}
        self._unopened: set[Partition] = set()
        """Partitions that there are, whose logs cannot be opened."""
        in_doubt = directory.metadata.in_doubt
        self.damaged = bool(directory.missing or in_doubt or self.metadata.hurt)
        """Whether the start found that something is missing."""
        self._identity = identity
        self._owners = owners
        self._observe = observe
        self._seen_changes = -1
        self.failing: dict[Partition, str] = {}
        """Partitions of which something could not be copied, and why, until something can."""

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
        """Let the loop wait for no disk when the state machine keeps these owners.

        Raises `StorageError`.
        """
        if owners != self._owners.owners:
            await work.in_reading_thread(lambda: self._owners.write(owners))

    async def store_ahead(self, coming: Identity, work: Work) -> None:
        """Let the loop wait for no disk when the state machine gets a new epoch or revision.

        Raises `StorageError`.
        """
        storing = self._identity.storing_ahead(coming)
        if storing is not None:
            await work.in_reading_thread(storing)

    @property
    def copied(self) -> bool:
        """Whether the directory is a copy, which may be older than what its broker confirmed."""
        return self._identity.copied

    @property
    def may_have_lost(self) -> bool:
        """Whether what was confirmed before this start may be missing."""
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
        """Partitions whose logs are damaged."""
        return [key for key, one in self.logs.items() if one.damaged_from is not None]

    @property
    def unreadable(self) -> str:
        """Which partitions could not be read for a follower, or copied, and why; some of many."""
        if not self.failing:
            return ""  # Every answer to a follower asks.
        texts = [
            f"{topic}-{number}: {text[:UNREADABLE_CHARACTERS]}"
            for (topic, number), text in list(self.failing.items())[:UNREADABLE_MAX]
        ]
        more = len(self.failing) - len(texts)
        return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")

    @property
    def lost_histories(self) -> str:
        """Says which logs have epochs that cannot be known, if any have."""
        lost = [f"{topic}-{n}" for (topic, n), one in self.logs.items() if one.history_lost]
        return f"{LEADER_EPOCHS} of {', '.join(lost[:3])} cannot be read here" if lost else ""

    def _find_damage(self, key: Partition, stored: ReplicaLog) -> None:
        """Note that messages are gone which were on stable storage before this start."""
        if stored.hurt or stored.log_end_offset < self.directory.ends_at_start.get(key, 0):
            self.damaged = True

    def know_epochs(self) -> None:
        """Epochs of this cluster begin above those that the logs have from elsewhere.

        Raises `StorageError`.
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
        """Whether topics were added or removed since `changed` looked."""
        return self._seen_changes != self.directory.topic_changes

    def changed(self) -> tuple[list[Partition], list[Partition]]:
        """Partitions that were added since the last call, whose logs are in `logs` now, and those
        that were removed.

        A log that cannot be opened is left out: nothing of it is copied, nor acknowledged.
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
        """Another broker leads from now on, or none."""
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
        """Partitions whose logs begin later than `known` says, which is brought up to date."""
        # Every second thousands of logs begin where they did.
        starts = list(map(_start_of, self.logs.values()))
        if starts == list(known.values()):
            return []
        found = dict(zip(self.logs, starts, strict=True))
        raised = [key for key, start in found.items() if start > known.get(key, start)]
        known.clear()
        known.update(found)
        return raised
