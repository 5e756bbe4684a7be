"""One partition's log with copies at other brokers: what its leader and a follower do with it.

Who leads, and what is committed, is decided elsewhere. For the loop's thread, as the log is.
"""

from functools import partial
from struct import Struct
from typing import Final

from ...protocol.errors import StorageError
from ...protocol.records.layout import (
    BATCH_MAGIC,
    ENTRY_OVERHEAD,
    LEADER_EPOCH_AT,
    MAGIC_AT,
    SIZE_AT,
)
from ..files import Buffer
from ..log.admitted import Appended
from ..log.epoch_history import NO_EPOCH
from ..log.leader_epochs import EpochWrite
from ..log.log import Log
from ..producers.producer_snapshots import decode_snapshot, encode_snapshot
from .copy_facts import CopyFacts
from .copying import Copied, Reached, reached_by, read_copy
from .following import Following

_INT32: Final = Struct(">i")


class Replica:
    """The leader's and the follower's side of a log that is copied between brokers."""

    __slots__ = ("_following", "_log", "_reached")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._reached: Reached | None = None
        self._following = Following(log)

    # Epochs

    @property
    def last_epoch(self) -> int:
        """The epoch of the last message, -1 where it has none, or there is no message.

        Raises `StorageError` where the epochs cannot be read: the log has to be copied anew.
        """
        log = self._log
        history = log.epochs.history
        if log.log_end_offset <= log.segment_list.first.base_offset:
            return NO_EPOCH
        return history.epoch_at(log.log_end_offset - 1)

    def leading(self, epoch: int) -> EpochWrite | None:
        """The first part of `lead`: what has to be run, in any thread, before the second part;
        `None` where that was done (`LeaderEpochs.note`).

        Nothing may be appended between the two. Raises `ValueError` for an epoch that is not new,
        `StorageError` where the epochs cannot be read.
        """
        log = self._log
        history = log.epochs.history
        if epoch <= max(history.last_epoch, log.epochs.highest_seen):
            raise ValueError(
                f"{log.path}: epoch {epoch} is not new, {log.epochs.highest_seen} has been seen"
            )
        return log.epochs.writing(history.assigned(epoch, log.log_end_offset))

    def lead(self, epoch: int, written: EpochWrite | None = None) -> None:
        """Begin to lead with `epoch`, which is above all that the log has: batches that are
        appended from now on are stamped with it, and the log expires by itself.

        What `leading` returned has been `run`; without it that is done here. Transactions that
        have not ended never will. Raises `ValueError`, and `StorageError` where the epoch cannot be
        written or the epochs cannot be read.
        """
        log = self._log
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

    def follow(self) -> None:
        """Leave it to another broker to lead: nothing expires, and nothing is rolled, here."""
        log = self._log
        log.stamp_batches = None
        log.expires = False
        log.producers.follows = True

    # Copying

    def read(
        self, offset: int, max_bytes: int, *, whole_first: bool = True, far: bool = True
    ) -> Copied:
        """What a follower gets that has everything below `offset`: stored bytes, as `reader.read`
        gives them, but up to the log end, and what goes with them.

        A copy may begin below the log start, with the oldest segment. At the log end there are no
        bytes, and the facts are of the active segment. Raises `OffsetOutOfRange`, `StorageError`,
        `OSError`; without `far` `FarAway` as `reader.read`, and where append times have to be
        looked at first (`reader.append_times_loaded`).
        """
        log = self._log
        copied = read_copy(
            log, offset, max_bytes, whole_first=whole_first, far=far, reached=self._reached
        )
        self._reached = reached_by(log, copied) or self._reached
        return copied

    def appending(self, data: Buffer, facts: CopyFacts) -> EpochWrite | None:
        """What has to be run before `append`, in any thread, where that is to wait for no disk:
        the epochs that begin in the stretch. `None`, as nearly always, for nothing.

        Changes nothing, and nothing may be appended between the two. Raises as `append`.
        """
        return self._following.appending(data, facts)

    def append(self, data: Buffer, facts: CopyFacts, written: EpochWrite | None = None) -> Appended:
        """Append the whole entries of a stretch that the leader has read, exactly as they are.

        `written` is what `appending` gave, and was run; without it epochs are written here.

        They get the leader's segment, append times and file times, also without a byte; their
        epochs are on stable storage before they are written. An incomplete entry at the end is
        dropped. Raises `CorruptMessage`, `UnsupportedForMessageFormat`, `InvalidRequest` for what
        does not go on from the log end, and then nothing has changed; `StorageError`.
        """
        return self._following.append(data, facts, written)

    def begin_at(self, log_start_offset: int) -> int:
        """Let the log begin where the leader's does, as far as what is below is on stable storage;
        returns where it begins.

        As with `Expiry.trim`, the log start belongs on stable storage next, and files go with
        `Expiry.drop_expired`.
        """
        log = self._log
        log.expiry.trim(min(log_start_offset, log.recovery_point, log.log_end_offset))
        if log.watermark.held and log.high_watermark < log.log_start_offset:
            # The leader's log begins at its own watermark at the latest.
            log.hold_high_watermark(log.log_start_offset)
        return log.log_start_offset

    # Cutting

    def truncate(self, offset: int) -> int:
        """Remove the messages from `offset` on, and a batch that reaches beyond it; returns where
        the log ends then, safely.

        Below the oldest segment the log begins anew at `offset`. Raises `ValueError`,
        `StorageError` as `Log.truncate`.
        """
        log = self._log
        if log.segment_list.first.base_offset <= offset < log.log_end_offset:
            try:
                offset = log.segment_list.end_before(offset)
            except OSError as error:
                raise StorageError(f"{log.path}: the log could not be read: {error}") from error
        log.truncate(offset)
        return log.log_end_offset

    def producers_at_start(self) -> bytes | None:
        """What is known of producers from before the log start, for `begin_anew` of another copy;
        `None` for nothing."""
        log = self._log
        states = log.producers.before(log.log_start_offset)
        return encode_snapshot(states, log.log_start_offset) if len(states) else None

    def begin_anew(self, offset: int, producers: bytes | None = None) -> None:
        """Remove all messages, and all epochs; the log goes on at `offset`, knowing what the leader
        knew of `producers` there.

        Raises `ValueError`, `StorageError` as `Log.truncate`, `MalformedSnapshot`; then nothing has
        changed.
        """
        states = None if producers is None else decode_snapshot(producers, offset)
        log = self._log
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
    """Write `epoch` into the batches among whole entries, in place; no CRC covers it.

    Messages of older formats have no room for it.
    """
    position, end = 0, len(data)
    while position < end:
        if data[position + MAGIC_AT] == BATCH_MAGIC:
            _INT32.pack_into(data, position + LEADER_EPOCH_AT, epoch)
        position += ENTRY_OVERHEAD + _INT32.unpack_from(data, position + SIZE_AT)[0]
