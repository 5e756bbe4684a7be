"""One partition's log: segments in a row, appended to at the end, dropped at the start.

A log belongs to one thread, the event loop's. Two things may run elsewhere: `prepare`, and the
`FlushWork` that `Flusher.begin_flush` hands out: what a sync has to do. What is known once it is
done, the loop's thread learns. Opening a log is `log_opening.open_log`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ...protocol.errors import StorageError
from ...protocol.records.layout import NO_TIMESTAMP
from .appender import Appender
from .expiry import Expiry
from .flush import FlushWork
from .log_state import REFUSED, LogParts, LogState
from .removed import removed_by_cut


class Flusher:
    """Tracks how far a log is on stable storage."""

    __slots__ = ("_append_times_safe", "_cuts", "_log", "_messages_safe", "_syncs", "closed")

    def __init__(self, log: LogState) -> None:
        self._log = log
        self._append_times_safe = log.recovery_point
        """Append times of the messages below it are on stable storage."""
        self._messages_safe = log.recovery_point
        """Messages below it are on stable storage. The recovery point may be lower while their
        indexes are not synced."""
        self._cuts: dict[int, int] = {}
        """Truncation offsets inside a batch that was removed as a whole, each with the end of the
        messages before it. Only those that may still become the recovery point."""
        self.closed = False
        """Whether the log was closed, so that its files may be gone."""
        self._syncs: list[FlushWork] = []
        """Syncs that were begun and not ended yet."""

    @property
    def safe_point(self) -> int:
        """The recovery point that may be checkpointed. The append times below it are also on stable
        storage, and messages reach up to it: otherwise the next start would not trust it."""
        log = self._log
        messages_end = self._cuts.get(log.recovery_point, log.recovery_point)
        return min(self._append_times_safe, messages_end)

    @property
    def synced_offset(self) -> int:
        """Messages below it are on stable storage."""
        log = self._log
        return min(max(self._messages_safe, log.recovery_point), log.log_end_offset)

    def lower_recovery_point(self, offset: int, messages_end: int) -> None:
        """Lower the recovery point for a truncation at `offset`, because later messages from there
        on are not synced. The messages that are left end at `messages_end`."""
        log = self._log
        # A running sync may still raise the recovery point to one of these offsets.
        still = range(log.recovery_point, offset)
        self._cuts = {at: end for at, end in self._cuts.items() if at in still}
        if messages_end < offset:
            self._cuts[offset] = messages_end
        log.recovery_point = min(log.recovery_point, offset)
        self._append_times_safe = min(self._append_times_safe, messages_end)
        self._messages_safe = min(self._messages_safe, messages_end)
        if log.on_cut is not None:
            log.on_cut(self._log)

    def end_at(self, offset: int) -> None:
        """Lower the targets of running syncs: the log ends at `offset`, and they do not cover what
        follows."""
        for work in self._syncs:
            work.target_offset = min(work.target_offset, offset)

    def begin_flush(self, *, closed_only: bool = False) -> FlushWork | None:
        """Return the work of a sync, or `None` if there is nothing to do. Pass it to `end_flush`
        once run.

        With `closed_only`, the active segment is left out: appends wait while its file is synced,
        and after a roll no request waits for that sync (R-13).
        """
        log = self._log
        end = log.segment_list.active.base_offset if closed_only else log.log_end_offset
        try:
            return self._begin_flush(end)
        except OSError as error:
            # Nothing was attempted on the disk, so nothing is lost. The next request tries again.
            self._log.observe("sync_not_started", error=str(error))
            return None

    def _begin_flush(self, end: int) -> FlushWork | None:
        log = self._log
        listed = log.segment_list
        nothing_new = log.recovery_point >= end and not listed.names_changed
        derived_changed = (
            listed.checksums_changed or listed.segments_dropped or log.producers.to_be_written
        )
        if self.closed or log.failure is not None or (nothing_new and not derived_changed):
            return None
        safe_offset = max(self._messages_safe, log.recovery_point)
        work = listed.flush_work(safe_offset, end)
        work.snapshots = log.producers.hand_out()
        if end >= log.log_end_offset:
            log.unflushed_since = None
        self._syncs.append(work)
        return work

    def end_flush(self, work: FlushWork, error: OSError | None = None) -> None:
        """Handle the outcome of `work`. A failed sync is final: it is never tried again.

        A sync that was not begun, because no handle was free, is tried again by the next request.
        """
        log = self._log
        self._syncs.remove(work)
        if error is not None and self.closed:
            return  # The log was deleted meanwhile.
        if error is not None and work.not_begun:
            log.segment_list.take_back(work)
            log.producers.hand_back(work.snapshots)
            log.unflushed_since = log.unflushed_since or log.seams.clock.monotonic()
            log.observe("sync_not_started", error=str(error))
            return
        if error is not None:
            log.fail(StorageError(f"{log.path}: a sync failed ({error}); {REFUSED}"))
            return
        if not self.closed and not log.seams.files.exists(log.segment_list.active.log_path):
            # A file without a name can still be written and synced, but it disappears when it is
            # closed.
            log.fail(StorageError(f"{log.path}: somebody removed the log's files; {REFUSED}"))
            return
        if work.unfinished is not None:
            log.segment_list.take_back(work)
            log.producers.hand_back(work.snapshots)
            log.observe("checksums_not_written", error=str(work.unfinished))
        log.recovery_point = max(log.recovery_point, work.target_offset)
        log.segment_list.release_synced(log.recovery_point)
        log.watermark.synced(log.recovery_point)
        log.advance()
        if log.on_synced is not None:
            log.on_synced(log)

    def messages_synced(self, work: FlushWork) -> None:
        """Let consumers read the messages that `work` synced, before `end_flush`.

        The messages are safe, but the recovery point has to wait for their indexes.
        """
        log = self._log
        self._messages_safe = max(self._messages_safe, work.target_offset)
        if not self.closed and log.seams.files.exists(log.segment_list.active.log_path):
            log.watermark.synced(work.target_offset)
            log.advance()
            if log.on_synced is not None:
                log.on_synced(log)

    def secure_append_times(self) -> None:
        """Sync the append times below the recovery point as well.

        This is not part of a flush: it would double the time that a producer waits for its flush,
        and no producer waits for append times. May run in another thread. Raises `OSError`.
        """
        log = self._log
        point = log.recovery_point
        if self._append_times_safe < point and log.segment_list.sync_append_times(point):
            # A truncation in the meantime has lowered both.
            self._append_times_safe = min(point, log.recovery_point)

    def flush(self) -> None:
        """Sync everything now. Raises `StorageError`."""
        log = self._log
        try:
            work = self._begin_flush(log.log_end_offset)
        except OSError as error:
            raise StorageError(f"{log.path}: a sync could not be started ({error})") from error
        if work is not None:
            try:
                work.run()
            except OSError as error:
                self.end_flush(work, error)
            else:
                self.end_flush(work)
        if log.failure is not None:
            raise log.failure
        if work is not None and work.not_begun:
            raise StorageError(f"{log.path}: a sync could not be started: no handle is free")


class Log(LogState):
    """The messages of one partition. Made by `open_log`.

    Its parts hold most operations: appender, expiry, flusher. This class has those that concern all
    parts.
    """

    # An instance with more than thirty attributes does not share the keys of its dictionary with
    # other instances. It would take five times the memory, and a broker has thousands of logs.
    __slots__ = (
        "_closed_form",
        "appender",
        "expiry",
        "flusher",
    )

    def __init__(self, parts: LogParts) -> None:
        super().__init__(parts)
        self.appender = Appender(self)
        self.expiry = Expiry(self, self.appender)
        self.flusher = Flusher(self)
        self._closed_form = False

    def truncate(self, offset: int) -> None:
        """Remove the messages from `offset` on. Does nothing if `offset` is beyond the log end.

        A wrapper message that contains `offset` is removed as a whole. Raises `ValueError` for a
        negative offset, `StorageError` on failure: if truncation had begun, appends are refused
        until a restart.
        """
        if offset < 0:
            raise ValueError(f"a log cannot be cut at offset {offset}; it must be 0 or more")
        if offset >= self.log_end_offset:
            return
        if offset < self.segment_list.first.base_offset:
            self.truncate_fully(offset)
            return
        self._tell_of_cut(offset)
        with self._all_or_fail("truncated"):
            end = self.segment_list.end_before(offset)
        if self.segment_list.holding(offset).damaged is not None:
            offset = end  # Nothing of a damaged segment is kept.
        # The checkpoint is written now and includes this value: messages appended in place of the
        # removed ones must not be below the log start.
        self.log_start_offset = min(self.log_start_offset, offset)
        self.flusher.lower_recovery_point(offset, end)
        with self._all_or_fail("truncated"):
            self.producers.prepare_cut(offset)
            self.segment_list.truncate(offset, self.settings)
            self.producers.load_again(self.segment_list.segments)
            self.last_stamp_ms = self.segment_list.last_stamp_ms(0)
            self._ends_at(offset)
            if end < offset:
                self.record_gaps()  # A wrapper was removed that began below `offset`.
            if self.has_epochs:
                self.epochs.cut(offset)

    def _tell_of_cut(self, offset: int) -> None:
        removed = removed_by_cut(self, offset, "to follow its leader")
        if removed is not None and self.on_truncate is not None:
            self.on_truncate(self.topic, self.partition, removed)

    @contextmanager
    def _all_or_fail(self, done: str) -> Iterator[None]:
        """Refuse all further appends if the block raises."""
        try:
            yield
        except OSError as error:
            failure = StorageError(f"{self.path}: the log could not be {done} ({error}); {REFUSED}")
            self.fail(failure)
            raise failure from error
        except StorageError as failure:
            self.fail(failure)
            raise

    def truncate_fully(self, offset: int) -> None:
        """Remove all messages. The log continues at `offset`. Raises as `truncate`."""
        # A power cut may keep any of the segments, so the recovery point is lowered below all of
        # them.
        self._tell_of_cut(-1)
        lowest = min(offset, self.segment_list.first.base_offset)
        recovery_point = min(offset, self.recovery_point)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.flusher.lower_recovery_point(lowest, lowest)
        with self._all_or_fail("emptied"):
            self.producers.prepare_cut(-1)
            self.segment_list.restart_at(offset, self.settings)
            self.producers.load_again(self.segment_list.segments)
            if self.has_epochs:
                self.epochs.clear()
        self.recovery_point = recovery_point
        self.last_stamp_ms = NO_TIMESTAMP
        self.log_start_offset = offset
        self._ends_at(offset)

    def _ends_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.window_knowledge = self.recent_appends = None
        self.flusher.end_at(offset)
        self.watermark.cut(offset)
        self.observe("log_truncated", offset=offset)
        self.advance()

    def begin_close(self) -> FlushWork | None:
        """Do the first part of `close`: return the work to sync now, to be passed to `end_flush`
        once run.

        Nothing may be appended after that. An `OSError` raised here is met again by `close`.
        """
        if self.failure is not None:
            return None
        self._seal()
        return self.flusher.begin_flush()

    def abandon(self) -> None:
        """Close without syncing: the files are about to be deleted. From now on the log opens none,
        and a read of it raises `UnknownTopicOrPartition`."""
        self._release()
        self.deletion.deleted = True

    def _release(self) -> None:
        self.flusher.closed = True
        self.producers.close()
        self.segment_list.release_all()

    def _seal(self) -> None:
        self.segment_list.close_indexes(stops=True)
        self.producers.take_snapshot(self.log_end_offset)
        self._closed_form = True

    def close(self) -> None:
        """Write the closed form of all files and sync them. Raises `OSError`, `StorageError`."""
        try:
            if self.failure is not None:
                raise self.failure
            if not self._closed_form:
                self._seal()
            self.flusher.flush()
            self.flusher.secure_append_times()
        finally:
            self._release()
