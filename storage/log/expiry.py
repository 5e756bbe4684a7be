"""Carrying out what `retention` judges: segments that are past it go, idle ones are rolled. And
what a log tells about itself, with these verdicts: to `describe-log`, the command line and the
metrics."""

from bisect import bisect_right
from contextlib import ExitStack
from typing import Final

from ...protocol.api.pieces import Pieces, finish
from ...protocol.records.layout import NO_TIMESTAMP
from ...times import format_time, later
from ...values import value_class
from ..segment.segment import Segment
from .appender import Appender
from .log_state import LogState
from .removed import removed_by
from .retention import RemovedRange, RetentionPlan, RetentionVerdict, judge, plan_retention
from .rolling import is_idle
from .trimmed import judged, largest_of, read_at_once, trimmed_segment

FUTURE_MS: Final = 60_000
"""Clocks of machines differ: only a timestamp further ahead than this counts as in the future."""

_DESCRIBED_AT_ONCE: Final = 10
"""Segments described in one step. Each may need its file opened, for its first timestamp."""


@value_class
class SegmentDescription:
    """One segment, and the verdict of retention about it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    """Counted from the log start on; -1 if no message has a time."""
    largest_offset: int
    """Offset of the first message with that timestamp; -1 if not read."""
    first_timestamp_ms: int
    created_ms: int
    modified_ms: int
    active: bool
    offset_entries: int
    time_entries: int
    verdict: str
    """`kept` or `expired`."""
    reason: str
    expires_ms: int | None
    """Time from which the segment is past `retention.ms`; `None` if that is off."""
    damage: str = ""
    """Where the segment becomes unreadable, and why; empty if no damage is known."""


@value_class
class LogDescription:
    """One log and its segments, oldest first."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    recovery_point: int
    size_bytes: int
    segments: tuple[SegmentDescription, ...]


def describe_segment(
    segment: Segment, largest: tuple[int, int], verdict: RetentionVerdict, *, active: bool
) -> SegmentDescription:
    """Describe one segment of a prepared log. `largest` is its largest timestamp from the log start
    on, as `Segment.largest`. Raises `OSError`."""
    return SegmentDescription(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        largest_timestamp_ms=largest[0],
        largest_offset=largest[1],
        first_timestamp_ms=segment.first_timestamp_ms,
        created_ms=segment.created_ms,
        modified_ms=segment.modified_ms,
        active=active,
        offset_entries=len(segment.offset_index),
        time_entries=len(segment.time_index),
        verdict="expired" if verdict.delete else "kept",
        reason=verdict.reason,
        expires_ms=verdict.expires_ms,
        damage="" if segment.damaged is None else segment.damaged.text,
    )


class Expiry:
    """Drops segments that a log no longer keeps, and closes a segment that was idle too long."""

    __slots__ = ("_appender", "_log", "_told_of_ms", "removed")

    def __init__(self, log: LogState, appender: Appender) -> None:
        self._log = log
        self._appender = appender
        self._told_of_ms = NO_TIMESTAMP
        """The last reported timestamp in the future that keeps segments."""
        self.removed: list[RemovedRange] = []
        """What the last `expire` removed."""

    def maintain(self, now_ms: int) -> RetentionPlan:
        """`expire`, then `drop_expired` at once. Raises `OSError`, `StorageError`."""
        self._log.prepare()
        read_at_once(self._log)
        plan = self.expire(now_ms)
        self.drop_expired(plan)
        return plan

    def expire(self, now_ms: int) -> RetentionPlan:
        """Roll an active segment that is past retention. Move the log start behind all segments
        that may go.

        Messages below the log start cannot be read any more; `drop_expired` removes their files. In
        between, the log start has to reach stable storage: a power cut may undo one of the renames
        but not another, and the files left must not be taken for the log. The producer states of
        the dropped messages have to be stored too (`LogProducers.write_waiting`). A follower's log
        drops nothing. Raises `OSError`, `StorageError`.
        """
        log = self._log
        log.prepare()
        self.removed = []
        if not log.expires:
            return RetentionPlan((), False)
        log.producers.expire(
            now_ms,
            log.settings.producer_id_expiration_ms,
            log.settings.max_producer_ids,
        )
        self._tell_of_pinned(now_ms)
        plan = self.plan_retention(now_ms, explain=False)
        if plan.roll_active and log.failure is None and log.segment_list.active.damaged is None:
            self._appender.roll("retention")
        count = min(plan.delete_count, log.segment_count - 1)
        self.removed = removed_by(log, plan.verdicts[:count])
        self._begin_at(log.segment_list.segments[count].base_offset)
        return plan

    def _begin_at(self, offset: int) -> None:
        """Move the log start to `offset`, if that is later."""
        log = self._log
        log.log_start_offset = max(log.log_start_offset, offset)
        if self.has_expired:
            first = log.segment_list.holding(log.log_start_offset)
            log.producers.outlive(first.base_offset, log.log_end_offset)

    def roll_if_idle(self, now_ms: int) -> bool:
        """Close the active segment if nothing was appended to it for `segment.ms`. Return whether
        it was.

        `now_ms` is used only once, if nothing was appended since the log was opened: the idle time
        then began with the last write to the file. After that the monotonic clock counts, so that a
        step of the wall clock closes nothing. Raises `OSError`, `StorageError`.
        """
        log = self._log
        active = log.segment_list.active
        sound = log.failure is None and active.damaged is None
        if not (log.expires and active.size_bytes and sound):
            return False
        now = log.seams.clock.monotonic()
        if log.appended_at is None:
            log.appended_at = now - max(now_ms - active.modified_ms, 0) / 1000
        if not is_idle(active, log.settings, round((now - log.appended_at) * 1000)):
            return False
        self._appender.roll("idle")
        return True

    def _tell_of_pinned(self, now_ms: int) -> None:
        """Report once which segment a timestamp in the future keeps, together with all behind it,
        and until when.

        A retention pass follows each roll, so it is one of the last two segments.
        """
        log = self._log
        limit_ms = now_ms + FUTURE_MS
        if log.settings.retention_ms < 0 or self._told_of_ms > limit_ms:
            return
        for segment in log.segment_list.segments[-2:]:
            newest_ms, _ = largest_of(log, segment)
            if newest_ms > limit_ms:
                self._told_of_ms = newest_ms
                log.observe(
                    "segments_pinned",
                    segment=segment.base_offset,
                    newest=format_time(newest_ms),
                    until=format_time(later(newest_ms, log.settings.retention_ms + 1)),
                    hint="horolog explain retention names the message, retention.bytes bounds the "
                    "log all the same",
                )
                return

    def roll_before(self, offset: int) -> None:
        """Roll if all messages are below `offset`, so that a `trim` to that offset removes every
        file.

        Raises `OSError`, `StorageError`.
        """
        log = self._log
        sound = log.failure is None and log.segment_list.active.damaged is None
        if log.expires and sound and offset >= log.log_end_offset:
            self._appender.roll("trimmed")

    def trim(self, offset: int) -> None:
        """Move the log start to `offset`, if that is later. Messages below it cannot be read any
        more.

        As with `expire`, `drop_expired` removes the files. `offset` is at most the high watermark,
        and everything below it is on stable storage.
        """
        self._begin_at(offset)

    @property
    def has_expired(self) -> bool:
        """Whether segments end at or below the log start."""
        log = self._log
        second = log.segment_list.segments[1:2]
        return bool(second) and second[0].base_offset <= log.log_start_offset

    def drop_expired(self, plan: RetentionPlan | None = None) -> None:
        """Drop the segments that end at or below the log start. `plan` gives the reasons. Raises
        `OSError`."""
        log = self._log
        verdicts = plan.verdicts if plan is not None else ()
        reasons = {v.base_offset: v.reason for v in verdicts if v.delete}
        with ExitStack() as following:
            # An error in one step does not skip the others. The next pass does the rest.
            following.callback(self._begin_epochs)
            following.callback(self._drop_snapshots)
            log.segment_list.drop_below(log.log_start_offset, log.settings, reasons)

    def _drop_snapshots(self) -> None:
        self._log.producers.drop_below(self._log.segment_list.first.base_offset)

    def _begin_epochs(self) -> None:
        if self._log.has_epochs:
            self._log.epochs.begin_at(self._log.segment_list.first.base_offset)

    def drop_left_over(self) -> None:
        """Drop the segments that a crash has left below the log start. Raises `OSError`."""
        if self.has_expired:
            self._begin_at(self._log.log_start_offset)
            self._log.producers.write_waiting()
            self.drop_expired()

    def plan_retention(self, now_ms: int, *, explain: bool = True) -> RetentionPlan:
        """Judge which segments may go at `now_ms`. The log has to be prepared.

        While `trimmed.unread` has a reading to do, all messages of the first segment count. Without
        `explain`, only the segments that go get a verdict, however many there are.
        """
        log = self._log
        return plan_retention(
            judged(log),
            log.settings,
            now_ms=now_ms,
            high_watermark=log.high_watermark,
            explain=explain,
        )

    def describe(self, now_ms: int) -> LogDescription:
        """Describe the log. It has to be prepared. Raises `OSError`."""
        read_at_once(self._log)
        return finish(self.describing(now_ms))

    def describing(self, now_ms: int) -> Pieces[LogDescription]:
        """Like `describe`, in pieces, with what is known of the times of a trimmed segment.
        Segments dropped meanwhile may be missing."""
        log = self._log
        segments, facts = log.segment_list.segments, judged(log)
        plan = self.plan_retention(now_ms, explain=False)
        described: list[SegmentDescription] = []
        for first in range(0, len(segments), _DESCRIBED_AT_ONCE):
            numbers = range(first, min(first + _DESCRIBED_AT_ONCE, len(segments)))
            verdicts = judge(
                plan,
                facts,
                log.settings,
                numbers,
                now_ms=now_ms,
                high_watermark=log.high_watermark,
            )
            for number, verdict in zip(numbers, verdicts, strict=True):
                segment = segments[number]
                try:
                    active = number == len(segments) - 1
                    largest = largest_of(log, segment)
                    described.append(describe_segment(segment, largest, verdict, active=active))
                except FileNotFoundError:
                    if not segment.dropped:
                        raise
            yield
        return LogDescription(
            log.log_start_offset,
            log.log_end_offset,
            log.high_watermark,
            log.recovery_point,
            log.size_bytes,
            tuple(described),
        )

    def describe_some(self, now_ms: int, numbers: range) -> list[SegmentDescription]:
        """Like `describe`, for some segments, by their numbers, counted from 0 for the oldest.

        Numbers without a segment are skipped. For logs with too many segments to describe at once.
        """
        log = self._log
        segments = log.segment_list.segments
        some = range(len(segments))[numbers.start : numbers.stop]
        verdicts = judge(
            self.plan_retention(now_ms, explain=False),
            judged(log),
            log.settings,
            some,
            now_ms=now_ms,
            high_watermark=log.high_watermark,
        )
        return [
            describe_segment(
                segments[number],
                largest_of(log, segments[number]),
                verdict,
                active=number == len(segments) - 1,
            )
            for number, verdict in zip(some, verdicts, strict=True)
        ]

    def pinned_segments(self, now_ms: int) -> int:
        """Return how many segments `retention.ms` cannot delete yet because they, or an older
        segment, hold a message with a timestamp more than a minute after `now_ms`. 0 if that is not
        known."""
        log = self._log
        if log.settings.retention_ms < 0 or not log.prepared:
            return 0
        limit_ms, segments = now_ms + FUTURE_MS, log.segment_list.segments
        trimmed = trimmed_segment(log)
        if trimmed is not None and trimmed.largest_possible_ms <= limit_ms:
            # The running maximum includes trimmed messages.
            behind = range(log.segment_list.number_of(trimmed.segment) + 1, len(segments))
            late = (one for one in behind if segments[one].largest_possible_ms > limit_ms)
            return len(segments) - next(late, len(segments))
        closed = log.segment_list.closed_max_ms
        first = bisect_right(closed, limit_ms)
        if first < len(closed):
            return log.segment_count - first
        return int(log.segment_list.active.largest_possible_ms > limit_ms)
