"""One partition's log: segments in a row, appended to at the end, dropped at the start.

A log belongs to one thread, the event loop's. Two things may run elsewhere: `prepare`, and the
`FlushWork` that `begin_flush` hands out. Opening a log is `log_opening.open_log`; what can be asked
of it is in `readable_log`, what is appended in `appending`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...protocol.errors import StorageError
from ...protocol.records.layout import NO_TIMESTAMP
from ...times import format_time, later
from ..read.readable_log import FUTURE_MS, LogParts
from .appending import REFUSED, AppendableLog
from .flush import FlushWork
from .retention import RetentionPlan
from .rolling import is_idle


class Log(AppendableLog):
    """The messages of one partition. Made by `open_log`."""

    def __init__(self, parts: LogParts) -> None:
        super().__init__(parts)
        self.on_cut: Callable[[Log], None] | None = None
        """Called before the end is cut off; the recovery point has to be remembered."""
        self._append_times_safe = parts.recovery_point
        """The append times of messages below it are on stable storage."""
        self._cuts: dict[int, int] = {}
        """Offsets in batches that went as a whole when the log was cut off there, and where the
        messages before each end; of those that may still become the recovery point."""
        self._told_of_ms = NO_TIMESTAMP
        """The time in the future that was told of last, as one that keeps segments."""
        self._closed = False
        self._closed_form = False
        self._syncs: list[FlushWork] = []
        """Handed out and not ended yet."""

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def maintain(self, now_ms: int) -> RetentionPlan:
        """`expire`, and `drop_expired` at once. Raises `OSError`, `StorageError`."""
        plan = self.expire(now_ms)
        self.drop_expired(plan)
        return plan

    def expire(self, now_ms: int) -> RetentionPlan:
        """Roll an idle segment that is past retention; begin the log behind all that may go.

        That can be read no more; its files go with `drop_expired`. Between the two the log start
        belongs on stable storage: a power cut may undo the one renaming and not the other, and
        what is left must not be taken for the log. Raises `OSError`, `StorageError`.
        """
        self.prepare()
        self.producers.expire(
            now_ms, self.settings.producer_id_expiration_ms, self.settings.max_producer_ids
        )
        self._tell_of_pinned(now_ms)
        plan = self.plan_retention(now_ms, explain=False)
        if plan.roll_active and self.failure is None and self._list.active.damaged is None:
            self.roll("retention")
        count = min(plan.delete_count, self.segment_count - 1)
        start = self._list.segments[count].base_offset
        self.log_start_offset = max(self.log_start_offset, start)
        return plan

    def roll_if_idle(self, now_ms: int) -> bool:
        """Close an active segment to which nothing was appended for `segment.ms`; whether it was.

        `now_ms` is needed once, where nothing was appended since the log was opened: the segment
        has waited since its file was last written, then. From there on the monotonic clock counts,
        so that no step of the wall clock closes anything. Raises `OSError`, `StorageError`.
        """
        active = self._list.active
        if not active.size_bytes or self.failure is not None or active.damaged is not None:
            return False
        now = self._seams.clock.monotonic()
        if self._appended_at is None:
            self._appended_at = now - max(now_ms - active.modified_ms, 0) / 1000
        if not is_idle(active, self.settings, round((now - self._appended_at) * 1000)):
            return False
        self.roll("idle")
        return True

    def _tell_of_pinned(self, now_ms: int) -> None:
        """Say once which segment a time in the future keeps, and all behind it, and until when.

        A pass follows each roll, so it is one of the last two.
        """
        limit_ms = now_ms + FUTURE_MS
        if self.settings.retention_ms < 0 or self._told_of_ms > limit_ms:
            return
        for segment in self._list.segments[-2:]:
            newest_ms = segment.largest_timestamp_ms
            if newest_ms > limit_ms:
                self._told_of_ms = newest_ms
                self._observe(
                    "segments_pinned",
                    segment=segment.base_offset,
                    newest=format_time(newest_ms),
                    until=format_time(later(newest_ms, self.settings.retention_ms + 1)),
                    hint="horolog explain retention names the message, retention.bytes bounds the "
                    "log all the same",
                )
                return

    def roll_before(self, offset: int) -> None:
        """Roll, if all messages are below `offset`: so that a `trim` there lets every file go.

        Raises `OSError`, `StorageError`.
        """
        sound = self.failure is None and self._list.active.damaged is None
        if sound and offset >= self.log_end_offset:
            self.roll("trimmed")

    def trim(self, offset: int) -> None:
        """Begin the log at `offset`, if it begins before: what is below can be read no more.

        As with `expire`, files go with `drop_expired`. `offset` is at most the high watermark, and
        everything below it on stable storage.
        """
        self.log_start_offset = max(self.log_start_offset, offset)

    @property
    def has_expired(self) -> bool:
        """Whether there are segments that end before the log begins."""
        second = self._list.segments[1:2]
        return bool(second) and second[0].base_offset <= self.log_start_offset

    def drop_expired(self, plan: RetentionPlan | None = None) -> None:
        """Drop the segments that end before the log begins; `plan` says why. Raises `OSError`."""
        verdicts = plan.verdicts if plan is not None else ()
        reasons = {v.base_offset: v.reason for v in verdicts if v.delete}
        self._list.drop_below(self.log_start_offset, self.settings, reasons)
        self.producers.drop_below(self._list.first.base_offset)

    def truncate(self, offset: int) -> None:
        """Remove the messages from `offset` on; beyond the log end nothing happens.

        A wrapper that holds `offset` goes as a whole. Raises `ValueError` for a negative offset,
        `StorageError`: then nothing is appended any more until a restart, if a cut was begun.
        """
        if offset < 0:
            raise ValueError(f"a log cannot be cut at offset {offset}; it must be 0 or more")
        if offset >= self.log_end_offset:
            return
        if offset < self._list.first.base_offset:
            self.truncate_fully(offset)
            return
        with self._all_or_fail("truncated"):
            end = self._list.end_before(offset)
        self._lower_recovery_point(offset, end)
        with self._all_or_fail("truncated"):
            self.producers.prepare_cut(offset)
            self._list.truncate(offset, self.settings)
            self.producers.load_again(self._list.segments)
            self._last_stamp_ms = self._list.last_stamp_ms(0)
            self._ends_at(offset)
            if end < offset:
                self._note_gaps()  # A wrapper went whose first messages were below `offset`.

    @property
    def safe_point(self) -> int:
        """The recovery point as it may be checkpointed: the append times below it are on stable
        storage too, and messages reach up to it, else a start would not believe it."""
        messages_end = self._cuts.get(self.recovery_point, self.recovery_point)
        return min(self._append_times_safe, messages_end)

    def _lower_recovery_point(self, offset: int, messages_end: int) -> None:
        """What comes in place of the messages from `offset` on is not synced; those that are left
        end at `messages_end`."""
        # A sync brings the recovery point to an offset that is above it, too.
        still = range(self.recovery_point, offset)
        self._cuts = {at: end for at, end in self._cuts.items() if at in still}
        if messages_end < offset:
            self._cuts[offset] = messages_end
        self.recovery_point = min(self.recovery_point, offset)
        self._append_times_safe = min(self._append_times_safe, messages_end)
        if self.on_cut is not None:
            self.on_cut(self)

    @contextmanager
    def _all_or_fail(self, done: str) -> Iterator[None]:
        """What is begun here and not finished ends all appends."""
        try:
            yield
        except OSError as error:
            failure = StorageError(f"{self.path}: the log could not be {done} ({error}); {REFUSED}")
            self._fail(failure)
            raise failure from error
        except StorageError as failure:
            self._fail(failure)
            raise

    def truncate_fully(self, offset: int) -> None:
        """Remove all messages; the log goes on at `offset`. Raises as `truncate`."""
        self._lower_recovery_point(offset, offset)
        with self._all_or_fail("emptied"):
            self.producers.prepare_cut(-1)
            self._list.restart_at(offset, self.settings)
            self.producers.load_again(self._list.segments)
        self._last_stamp_ms = NO_TIMESTAMP
        self.log_start_offset = offset
        self._ends_at(offset)

    def _ends_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        for work in self._syncs:
            # It knows nothing of what comes in place of what was cut off.
            work.target_offset = min(work.target_offset, offset)
        self._watermark.cut(offset)
        self._observe("log_truncated", offset=offset)
        self._advance()

    def begin_flush(self) -> FlushWork | None:
        """What a sync has to do now, or `None` when nothing; hand it to `end_flush` when run."""
        try:
            return self._begin_flush()
        except OSError as error:
            # Nothing was tried on the disk, so nothing is lost: the next request tries again.
            self._observe("sync_not_started", error=str(error))
            return None

    def _begin_flush(self) -> FlushWork | None:
        nothing_new = self.recovery_point >= self.log_end_offset and not self._list.names_changed
        derived_changed = self._list.checksums_changed or self.producers.to_be_written
        if self.failure is not None or (nothing_new and not derived_changed):
            return None
        work = self._list.flush_work(self.recovery_point, self.log_end_offset)
        work.snapshots = self.producers.hand_out()
        self.unflushed_since = None
        self._syncs.append(work)
        return work

    def end_flush(self, work: FlushWork, error: OSError | None = None) -> None:
        """Take in how `work` went. A failed sync is final: it is never tried again.

        One that was not begun, for want of a handle, is: the next request tries again.
        """
        self._syncs.remove(work)
        if error is not None and work.not_begun:
            self._list.take_back(work)
            self.producers.hand_back(work.snapshots)
            self.unflushed_since = self.unflushed_since or self._seams.clock.monotonic()
            self._observe("sync_not_started", error=str(error))
            return
        if error is not None:
            self._fail(StorageError(f"{self.path}: a sync failed ({error}); {REFUSED}"))
            return
        if not self._closed and not self._seams.files.exists(self._list.active.log_path):
            # A file without a name can be written and synced, and is gone when it is closed.
            self._fail(StorageError(f"{self.path}: somebody removed the log's files; {REFUSED}"))
            return
        if work.unfinished is not None:
            self._list.take_back(work)
            self._observe("checksums_not_written", error=str(work.unfinished))
        self.recovery_point = max(self.recovery_point, work.target_offset)
        self._list.release_synced(self.recovery_point)
        self._watermark.synced(self.recovery_point)
        self._advance()

    def messages_synced(self, work: FlushWork) -> None:
        """Let the messages that `work` is for be seen, before `end_flush`.

        They are safe, but the recovery point has to wait for their indexes.
        """
        if self._seams.files.exists(self._list.active.log_path):
            self._watermark.synced(work.target_offset)
            self._advance()

    def secure_append_times(self) -> None:
        """Bring the append times below the recovery point to stable storage as well.

        That is not part of a flush, because it would take a producer that waits for one twice as
        long, and nobody waits for append times. May run in a thread of its own. Raises `OSError`.
        """
        point = self.recovery_point
        if self._append_times_safe < point and self._list.sync_append_times(point):
            # A cut meanwhile has lowered both.
            self._append_times_safe = min(point, self.recovery_point)

    def flush(self) -> None:
        """Sync everything now. Raises `StorageError`."""
        try:
            work = self._begin_flush()
        except OSError as error:
            raise StorageError(f"{self.path}: a sync could not be started ({error})") from error
        if work is not None:
            try:
                work.run()
            except OSError as error:
                self.end_flush(work, error)
            else:
                self.end_flush(work)
        if self.failure is not None:
            raise self.failure
        if work is not None and work.not_begun:
            raise StorageError(f"{self.path}: a sync could not be started: no handle is free")

    def begin_close(self) -> FlushWork | None:
        """Do the first part of `close`: what has to be synced now, for `end_flush` when run.

        Nothing may be appended after that. Raises `OSError`, which `close` meets again.
        """
        if self.failure is not None:
            return None
        self._seal()
        return self.begin_flush()

    def abandon(self) -> None:
        """Close without syncing anything: the files are about to be deleted."""
        self._closed = True
        self.producers.close()
        self._list.release_all()

    def _seal(self) -> None:
        self._list.close_indexes()
        self.producers.take_snapshot(self.log_end_offset)
        self._closed_form = True

    def close(self) -> None:
        """Bring everything to its closed form and sync it. Raises `OSError`, `StorageError`."""
        try:
            if self.failure is not None:
                raise self.failure
            if not self._closed_form:
                self._seal()
            self.flush()
            self.secure_append_times()
        finally:
            self._closed = True
            self.producers.close()
            self._list.release_all()
