"""A partition's log on disk as `replication/` sees it."""

from contextlib import suppress
from typing import Any, Protocol

from ...protocol.errors import CodedError, CorruptMessage, StorageError
from ...replication.partition_log import Partition, Stored
from ...storage.log.epoch_history import EpochHistory, EpochStart
from ...storage.log.leader_epochs import EpochWrite
from ...storage.log.log import Log
from ...storage.replica.copy_facts import CopyFacts
from ...storage.replica.copying import Copied
from ...storage.replica.replica import Replica
from ...values import value_class


@value_class
class Stretch:
    """What a follower was sent of a log: `Stored.data` on its side. A leader's is a `Copied`."""

    records: bytes | memoryview
    facts: CopyFacts


class StoredLog:
    """The `PartitionLog` of a log of the broker's directory; see there.

    Where a log begins in the middle of a compressed set, a copy of it begins with that set, and so
    `log_start_offset` is there.
    """

    __slots__ = (
        "_begins",
        "_leads",
        "_secure",
        "cuts",
        "hurt",
        "log",
        "partition",
        "replica",
        "topic_id",
    )

    def __init__(self, log: Log, directory: "Secures", topic_id: str = "") -> None:
        self.log = log
        self.replica = Replica(log)
        self.topic_id = topic_id
        """Another topic of that name has other messages at the same offsets."""
        self.partition: Partition = log.topic, log.partition
        self._secure = directory
        self._leads = False
        self.cuts = 0
        """How often messages at its end were removed: what was read before may be gone."""
        self.hurt = any(segment.damaged is not None for segment in log.segments)
        """Whether it is damaged, or was when damage was met last."""
        log.segment_list.on_damage = self._damage_met
        self._begins = (-1, -1)

    @property
    def log_start_offset(self) -> int:
        log = self.log
        visible, begins = self._begins
        if visible != log.log_start_offset:
            visible = begins = log.log_start_offset
            if log.segment_list.first.base_offset < visible < log.log_end_offset:
                begins = self._end_before(visible)
            self._begins = visible, begins
        return begins

    def _end_before(self, offset: int) -> int:
        try:
            return self.log.segment_list.end_before(offset)
        except OSError as error:
            raise StorageError(f"{self.log.path}: the log could not be read: {error}") from error

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def min_insync(self) -> int | None:
        return self.log.settings.min_insync_replicas

    @property
    def sync_for_acks_all(self) -> bool | None:
        return self.log.settings.acks_all_durability == "fsync"

    @property
    def synced_offset(self) -> int:
        return self.log.flusher.synced_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def _damage_met(self) -> None:
        self.hurt = True
        self._secure.damage_met = True

    @property
    def damaged_from(self) -> int | None:
        if not self.hurt:
            return None
        damages = [one.damaged for one in self.log.segments if one.damaged is not None]
        self.hurt = bool(damages)  # What was damaged may have been cut off.
        return min((one.offset for one in damages), default=None)

    @property
    def history_lost(self) -> bool:
        return self.log.has_epochs and bool(self.log.epochs.unreadable)

    def set_high_watermark(self, offset: int) -> None:
        self.log.hold_high_watermark(offset)

    @property
    def epochs(self) -> EpochHistory:
        log = self.log
        return log.epochs.history.cut(log.log_end_offset)

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Where this broker leads. A follower's `append_stored` gets the epochs beside the
        messages, and writes them itself."""
        log = self.log
        if self._leads and log.epochs.history.last_epoch != epoch:
            self.replica.lead(epoch)

    def line_to_lead(self, epoch: int) -> EpochWrite | None:
        """What `begin_epoch` would write now, if anything; to be run, and noted."""
        epochs = self.log.epochs
        if not self._leads or epochs.unreadable or epochs.highest_seen >= epoch:
            return None
        return self.replica.leading(epoch)

    def needs_lines(self, stored: Stored) -> bool:
        """Whether `append_stored` would write of epochs that are not known here."""
        stretch: Stretch | None = stored.data
        if stretch is None or not stretch.facts.epochs:
            return False
        epochs = self.log.epochs
        return bool(epochs.unreadable) or stretch.facts.epochs[-1].epoch > epochs.history.last_epoch

    def lines_of(self, stored: Stored) -> EpochWrite | None:
        """What `append_stored` would write of epochs; to be run, and noted."""
        stretch: Stretch | None = stored.data
        if stretch is None:
            return None
        try:
            return self.replica.appending(stretch.records, stretch.facts)
        except CodedError:
            return None  # Appending meets the same.

    def read_stored(self, offset: int, max_bytes: int) -> Stored:
        """Nothing, where it cannot be read: other partitions go on."""
        try:
            copied: Copied = self.replica.read(offset, max(max_bytes, 1))
            copied.found.check_there()
            exact = copied.next_offset >= 0
            next_offset = copied.next_offset if exact else copied.facts.times_end
            return Stored(copied, next_offset, copied.found.size, exact)
        except (CodedError, OSError) as error:
            self._secure.failed(self.log, error)
            return Stored(None, offset, 0)

    def append_stored(self, stored: Stored) -> bool:
        """Changes nothing, where it cannot be appended: other partitions go on."""
        stretch: Stretch | None = stored.data
        if stretch is None:
            return True
        due = self.log.log_end_offset
        try:
            self.replica.append(stretch.records, stretch.facts)
        except CodedError as error:
            # Asked for ahead, it may go on behind messages that could not be appended.
            goes_on_elsewhere = stretch.facts.offset != due
            if not (goes_on_elsewhere and self.partition in self._secure.failing):
                self._secure.failed(self.log, error)
            return goes_on_elsewhere or isinstance(error, StorageError)
        if len(stretch.records) and self.log.log_end_offset == due:
            text = f"{len(stretch.records)} bytes from offset {due} on have no whole entry"
            self._secure.failed(self.log, CorruptMessage(text))
            return False
        if self._secure.failing:
            self._secure.failing.pop(self.partition, None)
        return True

    def truncate(self, offset: int) -> None:
        replica = self.replica
        self.cuts += 1
        if offset <= self.log_start_offset:
            # Messages below the log start may be there still, of an epoch that goes.
            producers = None
            with suppress(CodedError, OSError):  # Damage may hide what was known of them.
                producers = replica.producers_at_start()
            replica.begin_anew(offset, producers)
        else:
            replica.truncate(offset)

    def producers_at_start(self) -> Any:
        return self.replica.producers_at_start()

    def truncate_fully(self, offset: int, producers: Any) -> None:
        self.cuts += 1
        self.replica.begin_anew(offset, producers)

    def raise_log_start(self, offset: int) -> None:
        log = self.log
        if log.recovery_point < offset:
            log.flusher.flush()
        self.replica.begin_at(offset)
        self._secure.secure_log_start(log)

    # Roles.

    def lead(self, epoch: int) -> None:
        """The broker leads: the log expires by itself, and no transaction goes on."""
        log = self.log
        self._leads = True
        if self.history_lost:
            self._take_for_own(epoch)
        log.expires = True
        log.producers.follows = False
        log.producers.abort_open(log.log_end_offset)

    def _take_for_own(self, epoch: int) -> None:
        """Nobody knows in which epochs the messages were written. They count as messages of this
        one, of which no other log has any: so all others are copied anew."""
        log = self.log
        first_offset = log.segment_list.first.base_offset
        with suppress(OSError, StorageError):  # The next epoch is written all the same.
            log.epochs.clear()
            if first_offset < log.log_end_offset:
                self.begin_epoch(epoch, log.log_end_offset)
                log.epochs.keep(EpochHistory((EpochStart(epoch, first_offset),)))

    def follow(self) -> None:
        """Another broker leads, or none."""
        self._leads = False
        self.replica.follow()


class Secures(Protocol):
    """What a log needs of its directory."""

    failing: dict[Partition, str]
    """Partitions of which something could not be copied, and why."""
    damage_met: bool
    """Set, in any thread, when a log meets damage that was not known."""

    def secure_log_start(self, log: Log) -> None:
        """Bring to stable storage where `log` begins, and drop what is before."""
        ...

    def failed(self, log: Log, error: Exception) -> None:
        """Messages of `log` could not be copied, for now."""
        ...
