"""One partition's log with copies on other brokers: the operations of its leader and its followers.

Who leads, and what is committed, is decided elsewhere. For the event loop's thread, as is the log.
"""

from contextlib import suppress
from functools import partial
from struct import Struct
from typing import Any, Final, Protocol

from ...protocol.errors import CodedError, CorruptMessage, InvalidRequest, StorageError
from ...protocol.records.kernel import Walk
from ...protocol.records.layout import (
    BATCH_MAGIC,
    ENTRY_OVERHEAD,
    LEADER_EPOCH_AT,
    MAGIC_AT,
    NO_TIMESTAMP,
    SIZE_AT,
)
from ..files import Buffer
from ..log.admitted import NOTHING_APPENDED, Appended, AppendRun
from ..log.epoch_history import NO_EPOCH, EpochHistory, EpochStart, MalformedEpochs
from ..log.leader_epochs import EpochWrite
from ..log.log import Log
from ..log.trimmed import may_be_untimed
from ..producers.producer_snapshots import decode_snapshot, encode_snapshot
from .copy_facts import CopyFacts, MalformedFacts, ReceivedSets, Stored
from .copying import Copied, Reached, check_copied, reached_by, read_copy, spans_within

Partition = tuple[str, int]

_BATCHES: Final = 1 << BATCH_MAGIC
_INT32: Final = Struct(">i")

LOG_BYTES_MAX: Final = 2**31 - 1
"""Positions in a log file have 31 bits."""


class ReplicaOwner(Protocol):
    """What a log needs of the directory of all that are copied."""

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


class ReplicaLog:
    """The leader's and the follower's side of a log that is copied between brokers: the
    `PartitionLog` of a log of the broker's directory.

    Where a log begins in the middle of a compressed set, a copy of it begins with that set, and so
    `log_start_offset` is there.
    """

    __slots__ = (
        "_begins",
        "_leads",
        "_reached",
        "_replicas",
        "cuts",
        "hurt",
        "log",
        "partition",
        "topic_id",
    )

    def __init__(self, log: Log, replicas: ReplicaOwner | None = None, topic_id: str = "") -> None:
        """`replicas` are those of the same directory; a log without them is led or copied by
        itself, and raises what it meets."""
        self.log = log
        self.topic_id = topic_id
        """Another topic of that name has other messages at the same offsets."""
        self.partition: Partition = log.topic, log.partition
        self._replicas = replicas
        self._reached: Reached | None = None
        self._leads = False
        self.cuts = 0
        """How often messages at its end were removed: what was read before may be gone."""
        self.hurt = any(segment.damaged is not None for segment in log.segments)
        """Whether it is damaged, or was when damage was met last."""
        self._begins = (-1, -1)
        if replicas is not None:
            log.segment_list.on_damage = self._damage_met

    # What replication asks about it

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
        if self._replicas is not None:
            self._replicas.damage_met = True

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

    # Epochs

    @property
    def epochs(self) -> EpochHistory:
        log = self.log
        return log.epochs.history.cut(log.log_end_offset)

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last message, -1 if it has none, or if there is no message.

        Raises `StorageError` if the epochs cannot be read: the log has to be copied again.
        """
        log = self.log
        history = log.epochs.history
        if log.log_end_offset <= log.segment_list.first.base_offset:
            return NO_EPOCH
        return history.epoch_at(log.log_end_offset - 1)

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Where this broker leads. A follower's `append_stored` gets the epochs beside the
        messages, and writes them itself."""
        log = self.log
        if self._leads and log.epochs.history.last_epoch != epoch:
            self.begin_to_lead(epoch)

    def line_to_lead(self, epoch: int) -> EpochWrite | None:
        """What `begin_epoch` would write now, if anything; to be run, and noted."""
        epochs = self.log.epochs
        if not self._leads or epochs.unreadable or epochs.highest_seen >= epoch:
            return None
        return self.leading(epoch)

    def needs_lines(self, stored: Stored) -> bool:
        """Whether `append_stored` would write of epochs that are not known here."""
        stretch: ReceivedSets | None = stored.data
        if stretch is None or not stretch.facts.epochs:
            return False
        epochs = self.log.epochs
        return bool(epochs.unreadable) or stretch.facts.epochs[-1].epoch > epochs.history.last_epoch

    def lines_of(self, stored: Stored) -> EpochWrite | None:
        """What `append_stored` would write of epochs; to be run, and noted."""
        stretch: ReceivedSets | None = stored.data
        if stretch is None:
            return None
        try:
            return self.appending(stretch.records, stretch.facts)
        except CodedError:
            return None  # Appending meets the same.

    def leading(self, epoch: int) -> EpochWrite | None:
        """The first part of `begin_to_lead`: what has to be run, in any thread, before the second
        part; `None` where that was done (`LeaderEpochs.note`).

        Nothing may be appended between the two. Raises `ValueError` for an epoch that is not new,
        `StorageError` where the epochs cannot be read.
        """
        log = self.log
        history = log.epochs.history
        if epoch <= max(history.last_epoch, log.epochs.highest_seen):
            raise ValueError(
                f"{log.path}: epoch {epoch} is not new, {log.epochs.highest_seen} has been seen"
            )
        return log.epochs.writing(history.assigned(epoch, log.log_end_offset))

    def begin_to_lead(self, epoch: int, written: EpochWrite | None = None) -> None:
        """Begin to lead with `epoch`, which is above all epochs of the log. Batches appended from
        now on get this epoch, and the log expires its messages itself.

        `written` is the result of `leading`, after it was run; without it the epoch is written
        here. Open transactions are aborted. Raises `ValueError`, and `StorageError` if the epoch
        cannot be written or the epochs cannot be read.
        """
        log = self.log
        write = written or self.leading(epoch)
        if write is not None and written is None:
            try:
                write.run()
            except OSError as error:
                raise StorageError(
                    f"{log.path}: epoch {epoch} could not be written: {error}"
                ) from error
        log.epochs.take(log.epochs.history.assigned(epoch, log.log_end_offset))
        log.producers.follows = False
        log.producers.abort_open(log.log_end_offset)
        log.stamp_batches = partial(_stamp_epoch, epoch=epoch)
        log.expires = True

    # Roles

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
        """Count all messages as messages of this epoch, because their epochs are not known. No
        other log has messages of this epoch, so all others are copied anew."""
        log = self.log
        first_offset = log.segment_list.first.base_offset
        with suppress(OSError, StorageError):  # The next epoch is written all the same.
            log.epochs.clear()
            if first_offset < log.log_end_offset:
                self.begin_epoch(epoch, log.log_end_offset)
                log.epochs.keep(EpochHistory((EpochStart(epoch, first_offset),)))

    def follow(self) -> None:
        """Stop leading: this log no longer expires messages and no longer rolls by itself."""
        log = self.log
        self._leads = False
        log.stamp_batches = None
        log.expires = False
        log.producers.follows = True

    # Copying

    def read_stored(self, offset: int, max_bytes: int) -> Stored:
        """Nothing, where it cannot be read: other partitions go on."""
        try:
            copied: Copied = self.read(offset, max(max_bytes, 1))
            copied.found.check_there()
            exact = copied.next_offset >= 0
            next_offset = copied.next_offset if exact else copied.facts.times_end
            return Stored(copied, next_offset, copied.found.size, exact)
        except (CodedError, OSError) as error:
            self._failed(error)
            return Stored(None, offset, 0)

    def append_stored(self, stored: Stored) -> bool:
        """Changes nothing, where it cannot be appended: other partitions go on."""
        stretch: ReceivedSets | None = stored.data
        if stretch is None:
            return True
        due = self.log.log_end_offset
        try:
            self.append(stretch.records, stretch.facts)
        except CodedError as error:
            # Asked for ahead, it may go on behind messages that could not be appended.
            goes_on_elsewhere = stretch.facts.offset != due
            if not (goes_on_elsewhere and self._is_failing):
                self._failed(error)
            return goes_on_elsewhere or isinstance(error, StorageError)
        if len(stretch.records) and self.log.log_end_offset == due:
            text = f"{len(stretch.records)} bytes from offset {due} on have no whole entry"
            self._failed(CorruptMessage(text))
            return False
        if self._replicas is not None and self._replicas.failing:
            self._replicas.failing.pop(self.partition, None)
        return True

    def _failed(self, error: CodedError | OSError) -> None:
        """Report what could not be copied."""
        if self._replicas is None:
            raise error
        self._replicas.failed(self.log, error)

    @property
    def _is_failing(self) -> bool:
        return self._replicas is not None and self.partition in self._replicas.failing

    def read(
        self, offset: int, max_bytes: int, *, whole_first: bool = True, far: bool = True
    ) -> Copied:
        """Return what a follower gets that has everything below `offset`: stored bytes, as from
        `reader.read` but up to the log end, and the facts that go with them.

        A copy may begin below the log start, with the oldest segment. At the log end there are no
        bytes, and the facts are those of the active segment. Raises `OffsetOutOfRange`,
        `StorageError`, `OSError`. Without `far`, raises `FarAway` as `reader.read`, and if append
        times have to be loaded first (`reader.append_times_loaded`).
        """
        log = self.log
        copied = read_copy(
            log, offset, max_bytes, whole_first=whole_first, far=far, reached=self._reached
        )
        self._reached = reached_by(log, copied) or self._reached
        return copied

    def appending(self, data: Buffer, facts: CopyFacts) -> EpochWrite | None:
        """Return the write to run before `append`, in any thread, if `append` must not wait for a
        disk: the epochs that begin in `data`. Nearly always `None`: there is nothing to write.

        Changes nothing. Nothing may be appended in between. Raises as `append`.
        """
        history = self.log.epochs.history
        if all(epoch <= history.last_epoch for epoch, _ in facts.epochs):
            return None
        _, followed = self._checked(data, facts)
        return None if followed is None else self.log.epochs.writing(followed)

    def append(self, data: Buffer, facts: CopyFacts, written: EpochWrite | None = None) -> Appended:
        """Append the complete entries that the leader sent, unchanged.

        `written` is the result of `appending`, after it was run; without it epochs are written
        here. The entries get the leader's segment, append times and file times, even if there are
        no bytes. Their epochs are on stable storage before they are written. An incomplete entry at
        the end is dropped. Raises `CorruptMessage`, `UnsupportedForMessageFormat`, and
        `InvalidRequest` for entries that do not continue at the log end; nothing has changed then.
        Raises `StorageError`.
        """
        log = self.log
        self.log.appender.check_writable()
        found, history = self._checked(data, facts)
        if facts.gaps:
            log.record_gaps()
        try:
            if history is None:
                pass
            elif written is not None and written.history == history:
                log.epochs.take(history)
            else:
                log.epochs.keep(history)
        except OSError as error:
            raise self.log.appender.not_written(error) from error
        first_offset = found.first_offset if found.end else log.log_end_offset
        active = log.segment_list.active
        rolled = self._roll(facts, first_offset, found.end)
        appended = NOTHING_APPENDED
        if found.end:
            stored = memoryview(data)[: found.end]
            if log.segment_list.active is not active:
                found = self.log.appender.walk_for(log.segment_list.active, stored)
            appended = self._append_entries(stored, found, facts, rolled)
        self._take_file_times(facts)
        return appended

    def begin_at(self, log_start_offset: int) -> int:
        """Move the log start to the leader's, as far as the messages below it are on stable
        storage. Return the new log start.

        As with `Expiry.trim`, the log start has to reach stable storage next, and
        `Expiry.drop_expired` removes files.
        """
        log = self.log
        log.expiry.trim(min(log_start_offset, log.recovery_point, log.log_end_offset))
        if log.watermark.held and log.high_watermark < log.log_start_offset:
            # The leader's log begins at its own high watermark at the latest.
            log.hold_high_watermark(log.log_start_offset)
        return log.log_start_offset

    def _checked(self, data: Buffer, facts: CopyFacts) -> tuple[Walk, EpochHistory | None]:
        """Return the walk over the complete entries, placed in the active segment, and the new
        epochs, or `None` if they do not change. Changes nothing. Raises as `append`."""
        log = self.log
        due = log.log_end_offset
        if facts.offset != due:
            raise InvalidRequest(
                f"cannot append messages from offset {facts.offset} on to "
                f"{log.topic}-{log.partition}, which ends at {due}"
            )
        try:
            if not facts.decoded:
                facts.check()
        except MalformedFacts as error:
            raise InvalidRequest(f"what goes with the stretch is not good: {error}") from error
        gaps = facts.gaps or log.gaps
        found = check_copied(
            data, due, log.segment_list.active, log.settings.index_interval_bytes, gaps=gaps
        )
        base = log.segment_list.active.base_offset
        if facts.segment_base >= due:
            base = facts.segment_base
        first = found.first_offset if found.end else base
        if found.end and first < base:
            raise InvalidRequest(
                f"a stretch from offset {first} on is said to be of a segment that begins at {base}"
            )
        if base > due and not gaps:
            raise InvalidRequest(
                f"a segment begins at offset {base}, the log ends at {due}, and has no gaps"
            )
        history = log.epochs.history
        if not found.end:
            return found, None
        try:
            followed = history.followed(facts.epochs, due, found.last_offset + 1)
        except MalformedEpochs as error:
            raise InvalidRequest(f"{error}: the log has to be cut before it goes on") from error
        return found, None if followed == history else followed

    def _roll(self, facts: CopyFacts, first_offset: int, size_bytes: int) -> str | None:
        """Roll to have the same segment as the leader, as far as possible. Return the reason for a
        roll, or `None`.

        Segments that already differ from the leader's stay until the leader begins the next one.
        """
        log = self.log
        listed = log.segment_list
        active = listed.active
        base = facts.segment_base
        if base < active.base_offset and not active.size_bytes and len(listed.segments) > 1:
            self._reopen()
            active = listed.active
        elif base >= log.log_end_offset and base != active.base_offset:
            return self._begin_segment(base, "leader")
        if active.size_bytes and (
            active.size_bytes + size_bytes > LOG_BYTES_MAX
            # The leader may hold messages that are too far from its base offset for an index entry.
            or (base != active.base_offset and not active.fits(first_offset))
        ):
            return self._begin_segment(log.log_end_offset, "size")
        return None

    def _begin_segment(self, base_offset: int, reason: str) -> str:
        log = self.log
        try:
            log.segment_list.roll(base_offset, log.settings, reason)
        except OSError as error:
            raise self.log.appender.not_written(error) from error
        except StorageError as failure:
            log.fail(failure)
            raise
        self._ends_in_active()
        log.producers.take_snapshot(log.log_end_offset)
        return reason

    def _reopen(self) -> None:
        """Continue in the last segment but one: the leader has not begun the last one."""
        log = self.log
        try:
            log.segment_list.reopen(log.settings)
        except OSError as error:
            failure = StorageError(f"{log.path}: a segment could not be opened again ({error})")
            log.fail(failure)
            raise failure from error
        self._ends_in_active()

    def _ends_in_active(self) -> None:
        """Set log start and log end to those of the segments."""
        log = self.log
        log.log_start_offset = max(log.log_start_offset, log.segment_list.first.base_offset)
        log.log_end_offset = log.segment_list.active.next_offset
        log.advance()

    def _append_entries(
        self, stored: memoryview, found: Walk, facts: CopyFacts, rolled: str | None
    ) -> Appended:
        log = self.log
        listed = log.segment_list
        run = AppendRun(log.seams.clock.now_ms(), wait_for_sync=False)
        run.first_offset = listed.active.next_offset
        spans = spans_within(facts, listed.active, found.last_offset + 1)
        try:
            listed.active.stage(stored, found, NO_TIMESTAMP, append_spans=spans)
        except OSError as error:
            raise self.log.appender.not_written(error) from error
        if log.recent_appends is not None:
            known = [time_ms for _, time_ms in spans if time_ms >= 0] or [NO_TIMESTAMP]
            bounds_ms = min(known), max(known)
            log.note_append(stored, found.max_timestamp_ms, None, bounds_ms)
        run.last_stamp_ms = found.last_append_time_ms
        self.log.appender.commit_or_raise(run)
        if found.magics & _BATCHES:
            log.producers.take_stored(stored)
        return Appended(
            (found.first_offset,),
            found.last_offset,
            NO_TIMESTAMP,
            found.count,
            len(stored),
            None,
            rolled,
        )

    def _take_file_times(self, facts: CopyFacts) -> None:
        """Give closed files, and those without timestamps, the leader's file times. A failure is
        repaired with the next append."""
        log = self.log
        segments = log.segment_list.segments
        active = segments[-1]
        told = max(facts.created_ms, facts.modified_ms, facts.modified_before_ms)
        # A copy may begin in the middle of the leader's first segment.
        begun_in = len(segments) == 1 and facts.segment_base < active.base_offset
        if told < 0 or not (active.base_offset == facts.segment_base or begun_in):
            return
        files = log.seams.files
        with suppress(OSError):
            if 0 <= facts.created_ms != active.created_ms and active.first_timestamp_ms < 0:
                active.set_created(facts.created_ms)
            if facts.modified_ms >= 0 and may_be_untimed(log, active):
                files.set_modified_ms(active.log_path, facts.modified_ms)
            for before in segments[-2:-1] if facts.modified_before_ms >= 0 else ():
                files.set_modified_ms(before.log_path, facts.modified_before_ms)

    # Truncation

    def truncate(self, offset: int) -> None:
        self.cuts += 1
        if offset <= self.log_start_offset:
            # Messages below the log start may be there still, of an epoch that goes.
            producers = None
            with suppress(CodedError, OSError):  # Damage may hide what was known of them.
                producers = self.producers_at_start()
            self.begin_anew(offset, producers)
        else:
            self.cut(offset)

    def truncate_fully(self, offset: int, producers: Any) -> None:
        self.cuts += 1
        self.begin_anew(offset, producers)

    def raise_log_start(self, offset: int) -> None:
        log = self.log
        if log.recovery_point < offset:
            log.flusher.flush()
        self.begin_at(offset)
        assert self._replicas is not None
        self._replicas.secure_log_start(log)

    def cut(self, offset: int) -> int:
        """Remove the messages from `offset` on, and a batch that reaches beyond it. Return the new
        log end.

        Below the oldest segment, the log is emptied and begins at `offset`. Raises `ValueError`,
        `StorageError` as `Log.truncate`.
        """
        log = self.log
        if log.segment_list.first.base_offset <= offset < log.log_end_offset:
            try:
                offset = log.segment_list.end_before(offset)
            except OSError as error:
                raise StorageError(f"{log.path}: the log could not be read: {error}") from error
        log.truncate(offset)
        return log.log_end_offset

    def producers_at_start(self) -> Any:
        """What is known of producers from before the log start, as bytes for `begin_anew` of
        another copy; `None` for nothing."""
        log = self.log
        states = log.producers.before(log.log_start_offset)
        return encode_snapshot(states, log.log_start_offset) if len(states) else None

    def begin_anew(self, offset: int, producers: bytes | None = None) -> None:
        """Remove all messages and all epochs. The log continues at `offset`, with the leader's
        producer states at that offset.

        Raises `ValueError`, `StorageError` as `Log.truncate`, `MalformedSnapshot`; nothing has
        changed then.
        """
        states = None if producers is None else decode_snapshot(producers, offset)
        log = self.log
        if offset < 0:
            raise ValueError(f"a log cannot begin at offset {offset}; it must be 0 or more")
        log.truncate_fully(offset)
        if states is not None:
            log.producers.begin_with(states, offset)
        if log.watermark.held:
            log.watermark.hold(None)
            log.watermark.advance(offset)
            log.hold_high_watermark(offset)


def _stamp_epoch(data: bytearray | memoryview, epoch: int) -> None:
    """Write `epoch` into the batches among complete entries, in place. No CRC covers it.

    Messages of older formats have no place for it.
    """
    position, end = 0, len(data)
    while position < end:
        if data[position + MAGIC_AT] == BATCH_MAGIC:
            _INT32.pack_into(data, position + LEADER_EPOCH_AT, epoch)
        position += ENTRY_OVERHEAD + _INT32.unpack_from(data, position + SIZE_AT)[0]
