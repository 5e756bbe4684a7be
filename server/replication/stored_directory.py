"""A broker's data directory as `replication/` sees it."""

from collections.abc import Iterator

from ...protocol.errors import HorologError, StorageError
from ...replication.partition_log import Identity, Partition
from ...storage.directory.log_directory import LogDirectory
from ...storage.events import Observer
from ...storage.log.log import Log
from .identity_file import IdentityFile
from .stored_log import StoredLog


class StoredDirectory:
    """The `Directory` of a broker; see there."""

    def __init__(
        self, directory: LogDirectory, identity: IdentityFile, broker_id: int, observe: Observer
    ) -> None:
        self.broker_id = broker_id
        self.directory = directory
        self.logs: dict[Partition, StoredLog] = {}
        self.damaged = bool(directory.missing)
        """Whether the start found that something is missing."""
        self._identity = identity
        self._observe = observe
        self._leads = False
        self._seen_changes = -1
        self.failing: dict[Partition, str] = {}
        """Partitions of which something could not be copied, and why, until it is tried again."""

    @property
    def identity(self) -> Identity:
        return self._identity.identity

    def store(self, identity: Identity) -> None:
        self._identity.store(identity)

    @property
    def may_have_lost(self) -> bool:
        """Whether what was confirmed before this start may be missing."""
        power_cut = self._identity.rebooted and not self.directory.stopped_cleanly
        return power_cut or self.damaged

    @property
    def topics_changed(self) -> bool:
        """Whether topics came or went since `changed` looked."""
        return self._seen_changes != self.directory.topic_changes

    def changed(self) -> tuple[list[Partition], list[Partition]]:
        """Partitions that came, whose logs are in `logs` now, and that went, since the last call.

        A log that cannot be opened is left out: nothing of it is copied, nor acknowledged.
        """
        self._seen_changes = self.directory.topic_changes
        there = dict.fromkeys(self.directory.partitions())
        gone = [key for key, one in self.logs.items() if not self._is_current(one, there)]
        for key in gone:
            del self.logs[key]
        return [key for key in there if key not in self.logs and self._open(key)], gone

    def _is_current(self, stored: StoredLog, there: dict[Partition, None]) -> bool:
        if stored.partition not in there:
            return False
        return self.directory.opened_log(stored.partition) is stored.log

    def _open(self, key: Partition) -> bool:
        try:
            log = self.directory.log(*key)
            stored = StoredLog(log, self)
            if log.has_epochs and log.epochs.unreadable:
                # Nobody knows what is in it: it is to be copied anew.
                self.damaged = True
                log.replica.begin_anew(log.log_start_offset)
        except (HorologError, OSError) as error:
            self.damaged = True
            self._observe(
                "partition_not_replicated", topic=key[0], partition=key[1], error=str(error)
            )
            return False
        self.logs[key] = stored
        if self._leads:
            stored.lead()
        else:
            stored.follow()
        return True

    def lead(self) -> None:
        """The broker leads from now on."""
        self._leads = True
        for stored in self.logs.values():
            stored.lead()

    def follow(self) -> None:
        """Another broker leads from now on, or none."""
        self._leads = False
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

    def raised_starts(self, known: dict[Partition, int]) -> Iterator[Partition]:
        """Partitions whose logs begin later than `known` says, which is brought up to date."""
        for key, stored in self.logs.items():
            start = stored.log.log_start_offset
            if start > known.get(key, start):
                yield key
            known[key] = start
