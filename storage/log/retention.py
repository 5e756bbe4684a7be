"""Which segments a log may drop: a pure judgement. `expiry` carries it out."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ...config.topic import TopicSettings
from ...times import format_time, later
from ...values import value_class


class SegmentFacts(Protocol):
    """The facts of a segment that retention needs."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def largest_timestamp_ms(self) -> int:
        """Largest message timestamp, -1 if no message has one."""

    @property
    def age_from_ms(self) -> int:
        """The time that decides: the largest timestamp, else the time of the file."""


@value_class
class RetentionVerdict:
    """Whether one segment is kept or deleted, and why."""

    base_offset: int
    delete: bool
    reason: str
    expires_ms: int | None
    """Time from which the segment is past `retention.ms`; `None` if that is off."""
    rule: str = ""
    """The setting that deletes the segment, with its value; empty if the segment is kept."""


@value_class
class RetentionPlan:
    """The verdicts, oldest segment first."""

    verdicts: tuple[RetentionVerdict, ...]
    roll_active: bool
    """Whether to close the active segment first: its newest message is past retention."""

    @property
    def delete_count(self) -> int:
        """Number of segments to delete, from the oldest on."""
        return sum(verdict.delete for verdict in self.verdicts)


class RemovedRange(NamedTuple):
    """Messages that one rule removed from the start of a log, or a truncation from its end."""

    rule: str
    """The setting with its value, as `retention.ms=604800000`; empty for a trim."""
    first_offset: int
    end_offset: int
    """The offset after the last message."""
    messages: int
    """Number of messages; -1 if it is not known, as in a log that may have gaps."""
    first_timestamp_ms: int
    """Timestamp of the first message; -1 if it has none or is not known."""
    largest_timestamp_ms: int
    """Largest timestamp of the messages; -1 if none has one, or it is not known."""


def plan_retention(
    segments: Sequence[SegmentFacts],
    settings: TopicSettings,
    *,
    now_ms: int,
    high_watermark: int,
    explain: bool = True,
) -> RetentionPlan:
    """Judge all segments of a log, oldest first. The last one is active.

    Time is judged first, then size. Each stops at the first segment that it keeps. A segment that
    reaches beyond the high watermark stays, and so does an empty active one. Without `explain`,
    only segments to delete get a verdict.
    """
    active = segments[-1]
    verdicts: list[RetentionVerdict] = []
    for segment in segments:
        reason = _past_time(segment, settings, now_ms)
        if reason is None or not _may_go(segment, active, high_watermark):
            break
        rule = f"retention.ms={settings.retention_ms}"
        expires_ms = _expires_ms(segment, settings)
        verdicts.append(RetentionVerdict(segment.base_offset, True, reason, expires_ms, rule))
    if settings.retention_bytes >= 0:
        left_bytes = sum(segment.size_bytes for segment in segments[len(verdicts) :])
        excess = left_bytes - settings.retention_bytes
        verdicts += _past_size(segments, len(verdicts), excess, settings, high_watermark)
    dropped = len(verdicts)
    roll_active = dropped == len(segments) or (
        _past_time(active, settings, now_ms) is not None and _may_go(active, active, high_watermark)
    )
    plan = RetentionPlan(tuple(verdicts), roll_active)
    if not explain:
        return plan
    judged = judge(
        plan, segments, settings, range(len(segments)), now_ms=now_ms, high_watermark=high_watermark
    )
    return RetentionPlan(tuple(judged), roll_active)


def judge(
    plan: RetentionPlan,
    segments: Sequence[SegmentFacts],
    settings: TopicSettings,
    numbers: range,
    *,
    now_ms: int,
    high_watermark: int,
) -> list[RetentionVerdict]:
    """Return the verdicts of some segments, by their numbers.

    `plan` covers all segments, with or without explanations.
    """
    dropped = plan.delete_count
    verdicts = []
    for number in numbers:
        if number < dropped:
            verdicts.append(plan.verdicts[number])
            continue
        segment = segments[number]
        behind = segments[dropped].base_offset if number > dropped else None
        if _is_empty(segment, segments[-1]):
            reason = "it is the empty active segment"
        else:
            reason = _kept_because(segment, settings, now_ms, high_watermark, behind)
        verdicts.append(
            RetentionVerdict(segment.base_offset, False, reason, _expires_ms(segment, settings))
        )
    return verdicts


def _past_size(
    segments: Sequence[SegmentFacts],
    first: int,
    excess: int,
    settings: TopicSettings,
    high_watermark: int,
) -> Iterator[RetentionVerdict]:
    """Yield the verdicts of segments to delete because the log is `excess` bytes too large."""
    for number in range(first, len(segments)):
        segment = segments[number]
        if excess < segment.size_bytes or not _may_go(segment, segments[-1], high_watermark):
            return
        reason = (
            f"the log is {excess} bytes above retention.bytes={settings.retention_bytes}, "
            f"and this oldest segment has {segment.size_bytes}"
        )
        rule = f"retention.bytes={settings.retention_bytes}"
        expires_ms = _expires_ms(segment, settings)
        yield RetentionVerdict(segment.base_offset, True, reason, expires_ms, rule)
        excess -= segment.size_bytes


def _is_empty(segment: SegmentFacts, active: SegmentFacts) -> bool:
    return segment is active and not segment.size_bytes


def _may_go(segment: SegmentFacts, active: SegmentFacts, high_watermark: int) -> bool:
    return not _is_empty(segment, active) and segment.next_offset <= high_watermark


def _expires_ms(segment: SegmentFacts, settings: TopicSettings) -> int | None:
    if settings.retention_ms < 0:
        return None
    return later(segment.age_from_ms, settings.retention_ms + 1)


def _past_time(segment: SegmentFacts, settings: TopicSettings, now_ms: int) -> str | None:
    """Return why the segment is past `retention.ms`; `None` if it is not."""
    expires_ms = _expires_ms(segment, settings)
    if expires_ms is None or now_ms < expires_ms:
        return None
    return (
        f"{_newest(segment)} is more than retention.ms={settings.retention_ms} "
        f"before {format_time(now_ms)}"
    )


def _newest(segment: SegmentFacts) -> str:
    what = "its newest message" if segment.largest_timestamp_ms >= 0 else "its file's last change"
    return f"{what} ({format_time(segment.age_from_ms)})"


def _kept_because(
    segment: SegmentFacts,
    settings: TopicSettings,
    now_ms: int,
    high_watermark: int,
    behind: int | None,
) -> str:
    if not settings.deletes:
        return f"cleanup.policy is {settings.cleanup_policy}, so it stays; it is not cleaned yet"
    expires_ms = _expires_ms(segment, settings)
    if expires_ms is None or now_ms < expires_ms:
        limit = "retention.ms is off" if expires_ms is None else f"until {format_time(expires_ms)}"
        return f"{_newest(segment)} keeps it: {limit}"
    if segment.next_offset > high_watermark:
        return f"it reaches past the high watermark {high_watermark}"
    return f"it is expired, but behind the segment at {behind}, which is kept"
