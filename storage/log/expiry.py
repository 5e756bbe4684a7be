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
from .retention import RetentionPlan, RetentionVerdict, judge, plan_retention
from .rolling import is_idle
from .trimmed import judged, largest_of, read_at_once, trimmed_segment

FUTURE_MS: Final = 60_000
"""Clocks of machines differ; only a time further ahead than this is one from the future."""

_DESCRIBED_AT_ONCE: Final = 10
"""Segments. Each may need its file opened, for its first timestamp."""


@value_class
class SegmentDescription:
    """One segment, and what retention says of it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    """From the log start on; -1 when no message has a time."""
    largest_offset: int
    """The first message that has it; -1 when that has not been read."""
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
    """From when on it is past `retention.ms`; `None` when that is off."""
    damage: str = ""
    """From where on it cannot be read, and why; empty when no damage is known."""


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
    """Describe one segment of a prepared log. `largest` is its largest time from the log start on,
    as `Segment.largest`. Raises `OSError`."""
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
    """Drops what a log keeps no longer, and closes what waits too long for more."""

    __slots__ = ("_appender", "_log", "_told_of_ms")

    def __init__(self, log: LogState, appender: Appender) -> None:
        self._log = log
        self._appender = appender
        self._told_of_ms = NO_TIMESTAMP
        """The time in the future that was reported last, as one that keeps segments."""

    def maintain(self, now_ms: int) -> RetentionPlan:
        """`expire`, and `drop_expired` at once. Raises `OSError`, `StorageError`."""
        self._log.prepare()
        read_at_once(self._log)
        plan = self.expire(now_ms)
        self.drop_expired(plan)
        return plan

    def expire(self, now_ms: int) -> RetentionPlan:
        """Roll an idle segment that is past retention; begin the log behind all that may go.

        That can be read no more; its files go with `drop_expired`. Between the two the log start
        belongs on stable storage: a power cut may undo the one renaming and not the other, and
        what is left must not be taken for the log. So does what is known of the producers of what
        goes (`LogProducers.write_waiting`). A follower's log keeps all. Raises `OSError`,
        `StorageError`.
        """
        log = self._log
        log.prepare()
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
        self._begin_at(log.segment_list.segments[count].base_offset)
        return plan

    def _begin_at(self, offset: int) -> None:
        """Let the log begin at `offset`, if it begins before."""
        log = self._log
        log.log_start_offset = max(log.log_start_offset, offset)
        if self.has_expired:
            first = log.segment_list.holding(log.log_start_offset)
            log.producers.outlive(first.base_offset, log.log_end_offset)

    def roll_if_idle(self, now_ms: int) -> bool:
        """Close an active segment to which nothing was appended for `segment.ms`; whether it was.

        `now_ms` is needed once, where nothing was appended since the log was opened: the segment
        has waited since its file was last written, then. From there on the monotonic clock counts,
        so that no step of the wall clock closes anything. Raises `OSError`, `StorageError`.
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
        """Say once which segment a time in the future keeps, and all behind it, and until when.

        A pass follows each roll, so it is one of the last two.
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
        """Roll, if all messages are below `offset`: so that a `trim` there lets every file go.

        Raises `OSError`, `StorageError`.
        """
        log = self._log
        sound = log.failure is None and log.segment_list.active.damaged is None
        if log.expires and sound and offset >= log.log_end_offset:
            self._appender.roll("trimmed")

    def trim(self, offset: int) -> None:
        """Begin the log at `offset`, if it begins before: what is below can be read no more.

        As with `expire`, files go with `drop_expired`. `offset` is at most the high watermark, and
        everything below it on stable storage.
        """
        self._begin_at(offset)

    @property
    def has_expired(self) -> bool:
        """Whether there are segments that end before the log begins."""
        log = self._log
        second = log.segment_list.segments[1:2]
        return bool(second) and second[0].base_offset <= log.log_start_offset

    def drop_expired(self, plan: RetentionPlan | None = None) -> None:
        """Drop the segments that end before the log begins; `plan` says why. Raises `OSError`."""
        log = self._log
        verdicts = plan.verdicts if plan is not None else ()
        reasons = {v.base_offset: v.reason for v in verdicts if v.delete}
        with ExitStack() as following:
            # An error of one leaves out none of the others; the next pass does the rest.
            following.callback(self._begin_epochs)
            following.callback(self._drop_snapshots)
            log.segment_list.drop_below(log.log_start_offset, log.settings, reasons)

    def _drop_snapshots(self) -> None:
        self._log.producers.drop_below(self._log.segment_list.first.base_offset)

    def _begin_epochs(self) -> None:
        if self._log.has_epochs:
            self._log.epochs.begin_at(self._log.segment_list.first.base_offset)

    def drop_left_over(self) -> None:
        """Drop what a crash has left in front of the log start. Raises `OSError`."""
        if self.has_expired:
            self._begin_at(self._log.log_start_offset)
            self._log.producers.write_waiting()
            self.drop_expired()

    def plan_retention(self, now_ms: int, *, explain: bool = True) -> RetentionPlan:
        """Judge which segments may go at `now_ms`. Needs the log to be prepared.

        What is `trimmed.unread` keeps the first segment as all of its messages would.
        Without `explain` those that stay are not spoken of, however many there are.
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
        """Everything there is to tell about the log. Needs it to be prepared. Raises `OSError`."""
        read_at_once(self._log)
        return finish(self.describing(now_ms))

    def describing(self, now_ms: int) -> Pieces[LogDescription]:
        """As `describe`, in pieces, by what was read of the times of a trimmed segment. Segments
        that are dropped meanwhile may be left out."""
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
        """As `describe`, of some segments: by their numbers, from 0 for the oldest on.

        Numbers that no segment has are left out. For logs with so many that all take too long.
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
        """How many segments `retention.ms` cannot delete yet because of a message in them, or in an
        older one, whose time is more than a minute after `now_ms`; 0 when nothing is known."""
        log = self._log
        if log.settings.retention_ms < 0 or not log.prepared:
            return 0
        limit_ms, segments = now_ms + FUTURE_MS, log.segment_list.segments
        trimmed = trimmed_segment(log)
        if trimmed is not None and trimmed.largest_possible_ms <= limit_ms:
            # The running maximum counts what was trimmed.
            behind = range(log.segment_list.number_of(trimmed.segment) + 1, len(segments))
            late = (one for one in behind if segments[one].largest_possible_ms > limit_ms)
            return len(segments) - next(late, len(segments))
        closed = log.segment_list.closed_max_ms
        first = bisect_right(closed, limit_ms)
        if first < len(closed):
            return log.segment_count - first
        return int(log.segment_list.active.largest_possible_ms > limit_ms)
