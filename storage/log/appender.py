"""Appends message sets from producers to a log. `admission` says where times are stamped."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ...clock import Clock
from ...protocol.errors import MessageTooLarge, RecordListTooLarge, StorageError
from ...protocol.records.kernel import Walk, walk
from ...protocol.records.layout import NO_TIMESTAMP
from ...times import format_time
from ..files import RETRIABLE_ERRORS, Buffer
from ..index.time_map import SetSpans, SetTimes
from ..producers.producer_states import ProducerBatch, ProducerRun
from ..segment.segment import Segment
from ..segment.write_ahead import WriteAhead
from .admission import (
    LARGE_SET_BYTES,
    OPENED_BYTES,
    admit,
    admit_fast,
    give_append_time,
    takes_long,
)
from .admitted import NOTHING_APPENDED, Admitted, Appended, AppendRun, AppendTarget
from .log_state import REFUSED, LogState, RefusedWrites
from .rolling import roll_reason

_PAUSE_SECONDS: Final = 3600
"""Seconds between two such events of one log. A replay of old data brings many such messages."""


class _PastRetention:
    """Reports messages that are already past retention when they are appended to a log."""

    __slots__ = ("_clock", "_not_before", "_observe")

    def __init__(self, clock: Clock, observe: Callable[..., Any]) -> None:
        self._clock = clock
        self._observe = observe
        self._not_before = 0.0

    def report(self, newest_ms: int, retention_ms: int) -> None:
        """Report a set whose newest message is past `retention_ms`, at most once an hour."""
        moment = self._clock.monotonic()
        if moment < self._not_before:
            return
        self._not_before = moment + _PAUSE_SECONDS
        self._observe(
            "messages_past_retention",
            newest=format_time(newest_ms),
            retention_ms=retention_ms,
            hint="retention deletes them soon; retention.ms=-1 on the topic keeps them, "
            "message.timestamp.before.max.ms refuses such messages",
        )


AHEAD_BYTES: Final = 4 << 20
"""Minimum size in bytes of a set that a thread writes. If the kernel has to find memory for the
file, a write of 60 MB takes 0.1 s."""

ALONE_MAX: Final = 16
"""Number of sets that may fall through the fast path. The rest of a run is then admitted one by
one, because each set would be walked twice."""


class _TakesLong(Exception):
    """A set is too large to be appended now: it is appended later."""


class Appender:
    """Appends message sets to a log."""

    __slots__ = ("_log", "_past_retention", "_stamped_ahead")

    def __init__(self, log: LogState) -> None:
        self._log = log
        self._stamped_ahead: Callable[[bytearray | memoryview], None] | None = None
        """`stamp_batches` of the log at the time of `write_ahead`: it wrote the leader epoch."""
        self._past_retention = _PastRetention(log.seams.clock, log.observe)

    def append(self, record_set: Buffer, *, wait_for_sync: bool = False) -> Appended:
        """Append a producer's message set: either all of it, or nothing and an error.

        `wait_for_sync` keeps the set above the high watermark until it is synced. Raises what
        `admit` raises, `RecordListTooLarge`, and `StorageError` if the disk fails or the last
        segment is damaged.
        """
        (outcome,) = self.append_sets((record_set,), wait_for_sync=wait_for_sync)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def append_sets(
        self,
        record_sets: Sequence[Buffer],
        *,
        wait_for_sync: bool = False,
        goes_on: Callable[[], bool] | None = None,
    ) -> list[Appended | Exception]:
        """Append sets one after the other, as `append` does, with one write for all sets that go to
        the same segment.

        The outcomes are in the order of the sets. An outcome covers as many sets as it has first
        offsets; an exception covers one set. If a write fails, all its sets fail, and so does the
        set that would have begun the next segment.

        With `goes_on`, the run stops at the first of these: a set that misses the fast path and
        `takes_long`, `goes_on` returning false, or a set above `LARGE_SET_BYTES`. The remaining
        sets have no outcomes then.
        """
        log = self._log
        run = AppendRun(log.seams.clock.now_ms(), wait_for_sync=wait_for_sync)
        count, done, alone = len(record_sets), 0, 0
        while done < count:
            if goes_on is not None and len(record_sets[done]) > LARGE_SET_BYTES:
                break
            outcome: Appended | Exception
            sets = 1
            try:
                active = log.segment_list.active
                if log.failure is not None or active.damaged is not None:
                    self.check_writable()
                admitted = None
                if alone < ALONE_MAX and run.now_ms >= log.last_stamp_ms:
                    left = record_sets[done:] if done else record_sets
                    states = log.producers.states
                    admitted = admit_fast(left, log.settings, active, states, run.now_ms)
                if admitted is None:
                    alone += 1
                    admitted = self._admit_alone(run, record_sets[done], goes_on)
                else:
                    sets = len(admitted.first_offsets)
                outcome = NOTHING_APPENDED if admitted is None else self._take(run, admitted)
            except _TakesLong:
                break
            except Exception as error:
                outcome = error
            if isinstance(outcome, Exception):
                run.outcomes += [outcome] * sets
            else:
                run.outcomes.append(outcome)
            done += sets
        self._commit(run)
        return run.outcomes

    def _admit_alone(
        self, run: AppendRun, record_set: Buffer, goes_on: Callable[[], bool] | None
    ) -> Admitted | None:
        """Admit one set of a run with `admit`. Raises `_TakesLong` if `goes_on` is given and the
        set takes too long; this includes some sets that `admit` would refuse for their size."""
        log = self._log
        if goes_on is None:
            return admit(record_set, log.settings, self._log_end(run.now_ms))
        if not goes_on() or takes_long(record_set, log.settings):
            raise _TakesLong
        try:
            return admit(record_set, log.settings, self._log_end(run.now_ms, OPENED_BYTES))
        except MessageTooLarge:
            raise _TakesLong from None

    def begin_append(self, record_set: Buffer) -> Callable[[], Admitted | None]:
        """Prepare `end_append`: return a call for any thread; `end_append` takes its result.

        Nothing else may be appended in between. `record_set` is changed as `append` changes it, and
        the caller must leave it unchanged. The present settings apply. Raises `StorageError`; the
        call raises what `admit` raises.
        """
        log = self._log
        self.check_writable()
        return partial(admit, record_set, log.settings, self._log_end(log.seams.clock.now_ms()))

    def write_ahead(self, admitted: Admitted | None) -> WriteAhead | None:
        """Prepare the write of a large set before `end_append`, for any thread. Returns `None` for
        a small set. `admitted` is the result of the call from `begin_append`. `end_write` has to
        follow.

        The set gets its append time here. Raises as `end_append`.
        """
        log = self._log
        if admitted is None or len(admitted.data) < AHEAD_BYTES:
            return None
        self._check_at_end(admitted)
        run = AppendRun(log.seams.clock.now_ms(), wait_for_sync=False)
        self._give_append_time(run, admitted)
        admitted.rolled = self._make_room(run, admitted)
        if admitted.walk.batches and log.stamp_batches is not None:
            log.stamp_batches(admitted.data)
        self._stamped_ahead = log.stamp_batches
        try:
            return log.segment_list.active.write_ahead(admitted.data)
        except OSError as error:
            raise self.not_written(error) from error

    def end_write(self) -> None:
        """Remove what `write_ahead` wrote, unless `end_append` has used it. Raises `StorageError`;
        further appends are refused then."""
        log = self._log
        if log.failure is None:
            try:
                log.segment_list.active.drop_ahead()
            except StorageError as failure:
                log.fail(failure)
                raise

    def end_append(self, admitted: Admitted | None, *, wait_for_sync: bool = False) -> Appended:
        """Append a set that the call from `begin_append` returned, with the present time.

        Raises `RecordListTooLarge` and `StorageError`, as `append`.
        """
        log = self._log
        self.check_writable()
        if admitted is None:
            return NOTHING_APPENDED
        self._check_at_end(admitted)
        run = AppendRun(log.seams.clock.now_ms(), wait_for_sync=wait_for_sync)
        active = log.segment_list.active
        if not active.has_ahead(admitted.data):
            self._give_append_time(run, admitted)
        elif admitted.walk.batches and log.stamp_batches is not self._stamped_ahead:
            self.end_write()  # The bytes name an epoch in which this broker leads no more.
        admitted.walk = self.walk_for(active, admitted.data)
        appended = self._take(run, admitted)
        self.commit_or_raise(run)
        return appended

    def _check_at_end(self, admitted: Admitted) -> None:
        """Raise `StorageError` if the log end has moved since the set was admitted."""
        log = self._log
        end_offset = log.segment_list.active.next_offset
        if admitted.first_offsets[0] != end_offset:
            raise StorageError(
                f"{log.path}: the log ends at offset {end_offset} and ended at "
                f"{admitted.first_offsets[0]} when the message set was looked at; send it again"
            )

    def _give_append_time(self, run: AppendRun, admitted: Admitted) -> None:
        if admitted.append_time_ms != NO_TIMESTAMP:
            give_append_time(admitted, self._next_stamp(run.now_ms))

    def _log_end(self, now_ms: int, opened_max_bytes: int | None = None) -> AppendTarget:
        log = self._log
        active = log.segment_list.active
        return AppendTarget(
            active.next_offset,
            now_ms,
            self._next_stamp(now_ms),
            log.seams.clock.monotonic,
            active.since_bytes,
            active.largest[0],
            active.last_magic,
            active.base_offset,
            active.size_bytes,
            opened_max_bytes,
        )

    def _take(self, run: AppendRun, admitted: Admitted) -> Appended:
        """Stage an admitted set as part of a run."""
        log = self._log
        states, runs, first_offsets = log.producers.states, admitted.runs, admitted.first_offsets
        stamp_ms, found = admitted.append_time_ms, admitted.walk
        count = admitted.last_offset - first_offsets[0] + 1
        one = admitted.numbered
        if one is not None:
            retried = states.check(one.producer_id, one.epoch, one.sequence, count)
            if retried is not None:
                return _repeated(retried)
            batch = ProducerBatch(one.sequence, count, first_offsets[0], stamp_ms)
            runs = (ProducerRun(one.producer_id, one.epoch, (batch,)),)
        if found.batches and log.stamp_batches is not None:
            log.stamp_batches(admitted.data)
        rolled = None if admitted.fits else self._make_room(run, admitted)
        appended_ms = stamp_ms if stamp_ms >= 0 else run.now_ms
        times = _times(admitted)
        try:
            log.segment_list.active.stage(
                admitted.data, admitted.walk, appended_ms, first_offsets, times
            )
        except OSError as error:
            raise self.not_written(error) from error
        bounds_ms = appended_ms, appended_ms
        log.note_append(admitted.data, found.max_timestamp_ms, times, bounds_ms)
        if run.first_offset is None:
            run.first_offset = first_offsets[0]
        run.last_stamp_ms = stamp_ms
        retention_ms, newest_ms = log.settings.retention_ms, found.max_timestamp_ms
        if 0 <= retention_ms < run.now_ms - newest_ms and newest_ms != NO_TIMESTAMP:
            self._past_retention.report(newest_ms, retention_ms)
        if found.batches:
            log.producers.in_use = True
            for producer_id, epoch, last in runs:
                before = states.add_run(producer_id, epoch, last, run.now_ms)
                run.producers_before.append((producer_id, before))
            if runs:
                states.keep(log.settings.max_producer_ids)
        return Appended(
            first_offsets,
            admitted.last_offset,
            stamp_ms,
            count,
            len(admitted.data),
            admitted.latency,
            rolled,
            admitted.conversion,
        )

    def check_writable(self) -> None:
        """Raise what prevents appends: a failed disk, or a damaged active segment."""
        log = self._log
        if log.failure is not None:
            raise log.failure
        active = log.segment_list.active
        if active.damaged is not None:
            raise active.damaged.error(active.log_path)

    def _next_stamp(self, now_ms: int) -> int:
        """Return the append time: the clock, but never earlier than the last append time."""
        log = self._log
        if now_ms >= log.last_stamp_ms:
            return now_ms
        if log.settings.stamps_append_time:
            log.observe("clock_behind_log", now_ms=now_ms, last_stamp_ms=log.last_stamp_ms)
        return log.last_stamp_ms

    def walk_for(self, segment: Segment, data: Buffer) -> Walk:
        """Walk over checked entries, with index marks placed for `segment`."""
        return walk(
            data,
            0,
            len(data),
            check_crc=False,
            interval_bytes=self._log.settings.index_interval_bytes,
            since_bytes=segment.since_bytes,
            largest_ms=segment.largest_timestamp_ms,
            magic=segment.last_magic,
            segment_offset=segment.base_offset,
            segment_position=segment.size_bytes,
        )

    def _make_room(self, run: AppendRun, admitted: Admitted) -> str | None:
        """Begin a new segment if the set needs one. Return the reason, or `None`."""
        log = self._log
        size_bytes, found = len(admitted.data), admitted.walk
        if size_bytes > log.settings.segment_bytes:
            raise RecordListTooLarge(
                f"the message set takes {size_bytes} bytes; a segment takes at most "
                f"{log.settings.segment_bytes} (segment.bytes)"
            )
        reason = roll_reason(
            log.segment_list.active,
            log.settings,
            size_bytes,
            found.last_offset,
            found.max_timestamp_ms,
            run.now_ms,
        )
        if reason is None:
            return admitted.rolled
        self.commit_or_raise(run)
        active = log.segment_list.active
        try:
            active.check_end(active.size_bytes)
            log.segment_list.roll(log.log_end_offset, log.settings, reason)
        except OSError as error:
            raise self.not_written(error) from error
        except StorageError as failure:
            if active.damaged is None:
                log.fail(failure)
            raise
        log.producers.take_snapshot(log.log_end_offset)
        admitted.walk = self.walk_for(log.segment_list.active, admitted.data)
        return reason

    def _commit(self, run: AppendRun) -> Exception | None:
        """Write what is staged and move the log end. Return the failure, which becomes the outcome
        of the staged sets."""
        log = self._log
        first_offset = run.first_offset
        if first_offset is None:
            return None
        active = log.segment_list.active
        try:
            active.commit()
        except Exception as error:
            failure = self.not_written(error)
            log.recent_appends = None
            for producer_id, before in reversed(run.producers_before):
                log.producers.states.put_back(producer_id, before)
            run.complete(failure)
            return failure
        log.refused_writes = None
        log.last_stamp_ms = run.last_stamp_ms
        log.appended_at = log.seams.clock.monotonic()
        if log.unflushed_since is None:
            log.unflushed_since = log.appended_at
        if run.wait_for_sync:
            log.watermark.wait_for_sync(first_offset)
        log.log_end_offset = active.next_offset
        log.advance()
        return None

    def commit_or_raise(self, run: AppendRun) -> None:
        """Write what is staged and mark its outcomes as final. Raises on failure."""
        failure = self._commit(run)
        if failure is not None:
            raise failure
        run.complete()

    def not_written(self, error: Exception) -> Exception:
        """Return the error of a failed write. Refuse further appends unless the cause may pass."""
        log = self._log
        if isinstance(error, OSError):
            what = f"{log.path}: the message set could not be written ({error})"
            passes = error.errno in RETRIABLE_ERRORS
            failure = StorageError(what if passes else f"{what}; {REFUSED}")
            failure.__cause__ = error
            if passes:
                now = log.seams.clock.monotonic()
                first = now if log.refused_writes is None else log.refused_writes.first
                log.refused_writes = RefusedWrites(first, now)
            else:
                log.fail(failure)
            return failure
        if isinstance(error, StorageError) and log.segment_list.active.damaged is None:
            log.fail(error)
        return error

    def roll(self, reason: str = "asked") -> None:
        """Close the active segment and begin the next one. Does nothing if the active segment is
        empty.

        Raises `OSError`, `StorageError`.
        """
        log = self._log
        if log.segment_list.active.size_bytes:
            try:
                log.segment_list.roll(log.log_end_offset, log.settings, reason)
            except StorageError as failure:
                log.fail(failure)
                raise
            log.producers.take_snapshot(log.log_end_offset)


def _times(admitted: Admitted) -> SetTimes | SetSpans | bytes | None:
    """Message times of the set as stored: the append time if the broker stamped it, no times for
    format v0."""
    times, stamp_ms = admitted.times, admitted.append_time_ms
    if admitted.spans and stamp_ms < 0:
        return admitted.spans
    if admitted.walk.magics & 1:
        only_v0 = times is not None and admitted.walk.magics == 1
        return (NO_TIMESTAMP, NO_TIMESTAMP, admitted.count) if only_v0 else None
    return times if stamp_ms < 0 else (stamp_ms, stamp_ms, admitted.count)


def _repeated(batch: ProducerBatch) -> Appended:
    """Return the result for a retry of a batch that is stored already."""
    return Appended(
        (batch.first_offset,),
        batch.last_offset,
        batch.append_time_ms,
        batch.messages,
        0,
        None,
        None,
        repeated=True,
    )
