"""The metadata log on disk as `replication/` sees it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...protocol.errors import StorageError
from ...replication.partition_log import Partition
from ...storage.metadata.folder import METADATA_PARTITION
from ...storage.metadata.metadata_log import MetadataLog
from ...storage.metadata.snapshot import Snapshot
from ...storage.metadata.state_copy import StateCopy, StatePart, StateReading
from .stored_log import Secures, StoredLog

METADATA: Partition = METADATA_PARTITION


class StoredMetadata(StoredLog):
    """The `PartitionLog` of the metadata log.

    What a copy needs that begins at the log start is the stored state, which comes in parts: the
    follower says its position again until it has all, and `truncate_fully` changes nothing before.
    """

    __slots__ = ("_copying", "_snapshot", "metadata", "moved")

    def __init__(self, metadata: MetadataLog, directory: "Secures") -> None:
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

    def producers_at_start(self) -> "StoredMetadata":
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
