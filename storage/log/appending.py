"""Appending to a log: sets that producers send, entries that another log stored."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ...protocol.errors import MessageTooLarge, RecordListTooLarge, StorageError
from ...protocol.records.kernel import Walk, walk
from ...protocol.records.layout import NO_TIMESTAMP
from ..check.entry_rules import BATCH_MAGIC
from ..files import RETRIABLE_ERRORS, Buffer
from ..index.index_file import RELATIVE_OFFSET_MAX
from ..producers.producer_states import SentBatch
from ..read.readable_log import LogParts, ReadableLog
from .admission import Admitted, LogEnd, admit, check_stored, give_append_time
from .append_run import AppendRun
from .appended import NOTHING_APPENDED, Appended, AppendedTogether
from .bulk_admission import admit_together
from .light_sets import OPENED_BYTES, is_light
from .past_retention import PastRetention
from .rolling import roll_reason
from .segment import Segment

REFUSED: Final = "appends to this partition are refused until the broker has been restarted"


class _Heavy(Exception):
    """A set is not light."""


class AppendableLog(ReadableLog):
    """The half of `Log` that adds to it."""

    def __init__(self, parts: LogParts) -> None:
        super().__init__(parts)
        self.failure: StorageError | None = None
        """Why appends are refused until the broker has been restarted, if they are."""
        self.unflushed_since: float | None = None
        """When the oldest message that is not synced was appended, on the monotonic clock."""
        self.on_advance: Callable[[Any], None] | None = None
        """Called with the log when the high watermark moves, and when `failure` is set."""
        self.on_gaps: Callable[[Any], None] | None = None
        """Called with the log when offsets jump for the first time; to be remembered with the
        topic."""
        self._appended_at: float | None = None
        """When something was appended last, on the monotonic clock; `None` before that is known."""
        self._last_stamp_ms = parts.last_stamp_ms
        self._past_retention = PastRetention(self._seams.clock, self._observe)

    def _tell_of_old(self, newest_ms: int, now_ms: int) -> None:
        """Have messages told of that are past retention now that they come, if these are."""
        retention_ms = self.settings.retention_ms
        if 0 <= retention_ms < now_ms - newest_ms and newest_ms != NO_TIMESTAMP:
            self._past_retention.tell(newest_ms, retention_ms)

    def append(self, record_set: Buffer, *, wait_for_sync: bool = False) -> Appended:
        """Append a producer's message set: all of it, or nothing and an error.

        `wait_for_sync` keeps the set above the high watermark until it is synced. Raises what
        `admit` raises, `RecordListTooLarge`, and `StorageError` when the disk fails or the last
        segment is damaged.
        """
        (outcome,) = self.append_many((record_set,), wait_for_sync=wait_for_sync)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def append_many(
        self,
        record_sets: Sequence[Buffer],
        *,
        wait_for_sync: bool = False,
        goes_on: Callable[[], bool] | None = None,
    ) -> list[Appended | Exception]:
        """Append sets as `append` does one after the other, with one write for all that go to the
        same segment.

        For each set there is what `append` would have returned or raised. A write that fails takes
        all sets with it that it was for, and the one that would have begun the next segment.

        With `goes_on` sets are taken up to the first that is not light (`light_sets`), and as long
        as it says so: there are fewer outcomes than sets then.
        """
        run = AppendRun(self._seams.clock.now_ms(), wait_for_sync=wait_for_sync)
        for record_set in record_sets:
            outcome: Appended | Exception
            try:
                if goes_on is None:
                    outcome = self._append_to(run, record_set)
                elif goes_on():
                    outcome = self._append_light(run, record_set)
                else:
                    break
            except _Heavy:
                break
            except Exception as error:
                outcome = error
            run.outcomes.append(outcome)
        with suppress(Exception):  # it is in the outcomes
            self._commit(run)
        return run.outcomes

    def append_together(
        self, record_sets: Sequence[Buffer], *, wait_for_sync: bool = False
    ) -> AppendedTogether | None:
        """Append sets as `append_many` does, in a fraction of its time, if they are the usual ones.

        `None`, and nothing is done, unless every set is plain, good, no retry, stored as it came
        but for offsets and append times, and goes into the active segment. A single set may have
        its offsets assigned then. Raises `StorageError` for all of them.
        """
        active = self._list.active
        now_ms = self._seams.clock.now_ms()
        if self.failure is not None or active.damaged is not None or now_ms < self._last_stamp_ms:
            return None
        states = self.producers.states
        admitted = admit_together(record_sets, self.settings, active, states, now_ms)
        if admitted is None:
            return None
        data, found, first_offsets, stamp_ms, latency, runs = admitted
        run = AppendRun(now_ms, wait_for_sync=wait_for_sync)
        try:
            self._list.stage(data, found, now_ms, first_offsets)
        except OSError as error:
            raise self._not_written(error) from error
        run.first_offset = first_offsets[0]
        run.last_stamp_ms = stamp_ms
        if found.batches:
            self.producers.in_use = True
            for producer_id, epoch, last in runs:
                before = states.add_run(producer_id, epoch, last, now_ms)
                run.producers_before.append((producer_id, before))
            states.keep(self.settings.max_producer_ids)
        self._commit(run)
        self._tell_of_old(found.max_timestamp_ms, now_ms)
        end_offset = found.last_offset + 1
        return AppendedTogether(
            first_offsets, end_offset, self.log_start_offset, stamp_ms, len(data), latency
        )

    def begin_append(self, record_set: Buffer) -> Callable[[], Admitted | None]:
        """What has to be done before `end_append`: a call for any thread, with what it returns.

        Nothing else may be appended between the two. `record_set` is changed as `append` does, and
        has to stay as it is otherwise. The settings count that are in force here. Raises
        `StorageError`; the call raises what `admit` raises.
        """
        self._check_writable()
        return partial(admit, record_set, self.settings, self._target(self._seams.clock.now_ms()))

    def end_append(self, admitted: Admitted | None, *, wait_for_sync: bool = False) -> Appended:
        """Append a set that the call of `begin_append` returned, in the present.

        Raises `RecordListTooLarge` and `StorageError`, as `append`.
        """
        self._check_writable()
        if admitted is None:
            return NOTHING_APPENDED
        active = self._list.active
        if admitted.first_offset != active.next_offset:
            raise StorageError(
                f"{self.path}: the log ends at offset {active.next_offset} and ended at "
                f"{admitted.first_offset} when the message set was looked at; send it again"
            )
        run = AppendRun(self._seams.clock.now_ms(), wait_for_sync=wait_for_sync)
        if admitted.append_time_ms != NO_TIMESTAMP:
            give_append_time(admitted, self._next_stamp(run.now_ms))
        admitted.walk = self._walk_for(active, admitted.data)
        appended = self._take(run, admitted)
        self._commit(run)
        return appended

    def _append_light(self, run: AppendRun, record_set: Buffer) -> Appended:
        """As `_append_to`. Raises `_Heavy` for a set that is not light, also for some of those that
        are refused for their size."""
        if not is_light(record_set, self.settings):
            raise _Heavy
        try:
            return self._append_to(run, record_set, OPENED_BYTES)
        except MessageTooLarge:
            raise _Heavy from None

    def _append_to(
        self, run: AppendRun, record_set: Buffer, opened_max_bytes: int | None = None
    ) -> Appended:
        """Take one more set into a run."""
        self._check_writable()
        admitted = admit(record_set, self.settings, self._target(run.now_ms, opened_max_bytes))
        return NOTHING_APPENDED if admitted is None else self._take(run, admitted)

    def _target(self, now_ms: int, opened_max_bytes: int | None = None) -> LogEnd:
        active = self._list.active
        return LogEnd(
            active.next_offset,
            now_ms,
            self._next_stamp(now_ms),
            self._seams.clock.monotonic,
            active.since_bytes,
            active.largest[0],
            active.last_magic,
            active.base_offset,
            active.size_bytes,
            opened_max_bytes,
        )

    def _take(self, run: AppendRun, admitted: Admitted) -> Appended:
        """Take a set that was admitted into a run."""
        now_ms = run.now_ms
        numbered = admitted.numbered
        if numbered is not None:
            states = self.producers.states
            retried = states.check(
                numbered.producer_id, numbered.epoch, numbered.sequence, admitted.count
            )
            if retried is not None:
                return _repeated(retried)
        stamp_ms = admitted.append_time_ms
        appended_ms = stamp_ms if stamp_ms >= 0 else now_ms
        rolled = self._stage(run, admitted.data, admitted.walk, appended_ms)
        run.last_stamp_ms = stamp_ms
        self._tell_of_old(admitted.walk.max_timestamp_ms, now_ms)
        if admitted.walk.magics & 1 << BATCH_MAGIC:
            self.producers.in_use = True
        if numbered is not None:
            batch = SentBatch(
                numbered.sequence, admitted.count, admitted.first_offset, admitted.append_time_ms
            )
            before = states.add(numbered.producer_id, numbered.epoch, batch, now_ms)
            run.producers_before.append((numbered.producer_id, before))
            states.keep(self.settings.max_producer_ids)
        return Appended(
            admitted.first_offset,
            admitted.last_offset,
            stamp_ms,
            admitted.count,
            len(admitted.data),
            admitted.latency,
            rolled,
            admitted.conversion,
        )

    def append_stored(self, data: Buffer) -> Appended:
        """Append entries exactly as another log stored them, offsets and times included.

        An incomplete entry at the end is dropped. Raises `CorruptMessage`, `MessageTooLarge`,
        `InvalidRequest` for offsets that do not rise from the log end on, `StorageError`.
        """
        self._check_writable()
        found = check_stored(data, self.log_end_offset, self.settings)
        if not found.count:
            return NOTHING_APPENDED
        self._note_gaps()
        stored = memoryview(data)[: found.end]
        run = AppendRun(self._seams.clock.now_ms(), wait_for_sync=False)
        walked = self._walk_for(self._list.active, stored)
        rolled = self._stage(run, stored, walked, NO_TIMESTAMP)
        run.last_stamp_ms = found.last_append_time_ms
        self._commit(run)
        self.producers.take_stored(stored)
        return Appended(
            found.first_offset,
            found.last_offset,
            NO_TIMESTAMP,
            found.last_offset - found.first_offset + 1,
            len(stored),
            None,
            rolled,
        )

    def _check_writable(self) -> None:
        """Raise what keeps appends out: a disk that failed, or damage in front of them."""
        if self.failure is not None:
            raise self.failure
        active = self._list.active
        if active.damaged is not None:
            raise active.damaged.error(active.log_path)

    def _next_stamp(self, now_ms: int) -> int:
        """The append time: the clock, but never before the last stamp."""
        if now_ms >= self._last_stamp_ms:
            return now_ms
        if self.settings.stamps_append_time:
            self._observe("clock_behind_log", now_ms=now_ms, last_stamp_ms=self._last_stamp_ms)
        return self._last_stamp_ms

    def _observe(self, event: str, **fields: object) -> None:
        self._seams.observe(event, topic=self.topic, partition=self.partition, **fields)

    def _note_gaps(self) -> None:
        if not self._list.gaps:
            if self.on_gaps is not None:
                self.on_gaps(self)
            self._list.allow_gaps()

    def _walk_for(self, segment: Segment, data: Buffer) -> Walk:
        """The walk over checked entries, with index marks as they fall in `segment`."""
        return walk(
            data,
            0,
            len(data),
            check_crc=False,
            interval_bytes=self.settings.index_interval_bytes,
            since_bytes=segment.since_bytes,
            largest_ms=segment.largest_timestamp_ms,
            magic=segment.last_magic,
            segment_offset=segment.base_offset,
            segment_position=segment.size_bytes,
        )

    def _stage(self, run: AppendRun, data: Buffer, found: Walk, append_time_ms: int) -> str | None:
        """Take checked entries into a segment, a new one if that is due; returns why it was.

        `append_time_ms` is what is told as the time of it.
        """
        if len(data) > self.settings.segment_bytes:
            raise RecordListTooLarge(
                f"the message set takes {len(data)} bytes; a segment takes at most "
                f"{self.settings.segment_bytes} (segment.bytes)"
            )
        reason = roll_reason(
            self._list.active,
            self.settings,
            len(data),
            found.last_offset,
            found.max_timestamp_ms,
            run.now_ms,
        )
        if reason is not None:
            self._commit(run)
        try:
            if reason is not None:
                # Where offsets jump far, the new segment begins just near enough to index them.
                nearest = found.last_offset + 1 - RELATIVE_OFFSET_MAX
                self._list.roll(max(self.log_end_offset, nearest), self.settings, reason)
                # An empty first segment has given its place to one that begins later.
                self.log_start_offset = max(self.log_start_offset, self._list.first.base_offset)
                self._end_moved()
                self.producers.take_snapshot(self.log_end_offset)
                found = self._walk_for(self._list.active, data)
            first_offset = self._list.active.next_offset
            self._list.stage(data, found, append_time_ms)
        except OSError as error:
            raise self._not_written(error) from error
        except StorageError as failure:
            self._fail(failure)
            raise
        if run.first_offset is None:
            run.first_offset = first_offset
        return reason

    def _commit(self, run: AppendRun) -> None:
        """Write what is staged, and let it be seen. Raises as `append`."""
        first_offset = run.first_offset
        if first_offset is None:
            run.settle()
            return
        try:
            self._write()
        except Exception as error:
            for producer_id, before in reversed(run.producers_before):
                self.producers.states.put_back(producer_id, before)
            run.settle(error)
            raise
        run.settle()
        self._last_stamp_ms = run.last_stamp_ms
        self._appended_at = self._seams.clock.monotonic()
        if self.unflushed_since is None:
            self.unflushed_since = self._appended_at
        if run.wait_for_sync:
            self._watermark.wait_for_sync(first_offset)
        self._end_moved()

    def _write(self) -> None:
        try:
            self._list.active.commit()
        except OSError as error:
            raise self._not_written(error) from error
        except StorageError as failure:
            self._fail(failure)
            raise

    def _not_written(self, error: OSError) -> StorageError:
        """What a failed write is told as; appends end with it unless the reason may pass."""
        what = f"{self.path}: the message set could not be written ({error})"
        if error.errno in RETRIABLE_ERRORS:
            return StorageError(what)
        failure = StorageError(f"{what}; {REFUSED}")
        self._fail(failure)
        return failure

    def roll(self, reason: str = "asked") -> None:
        """Close the active segment and begin the next one; an empty one stays.

        Raises `OSError`, `StorageError`.
        """
        if self._list.active.size_bytes:
            try:
                self._list.roll(self.log_end_offset, self.settings, reason)
            except StorageError as failure:
                self._fail(failure)
                raise
            self.producers.take_snapshot(self.log_end_offset)

    def _end_moved(self) -> None:
        """The active segment ends somewhere else."""
        self.log_end_offset = self._list.active.next_offset
        self._advance()

    def _advance(self) -> None:
        if self._watermark.advance(self.log_end_offset) and self.on_advance is not None:
            self.on_advance(self)

    def hold_high_watermark(self, offset: int | None) -> None:
        """Keep the high watermark from passing `offset`; `None` lets it go."""
        self._watermark.hold(offset)
        self._advance()

    def _fail(self, failure: StorageError) -> None:
        """Refuse appends from now on; reads go on."""
        self.failure = failure
        self._observe("log_failed", error=failure.message)
        if self.on_advance is not None:
            self.on_advance(self)


def _repeated(batch: SentBatch) -> Appended:
    """The answer to a retry of a batch that is stored already."""
    return Appended(
        batch.first_offset,
        batch.last_offset,
        batch.append_time_ms,
        batch.messages,
        0,
        None,
        None,
        repeated=True,
    )
