"""Which segments a log may drop: a pure judgement, carried out and explained elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..config.topic import TopicSettings
from ..times import format_time


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What retention has to know of a segment."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    """-1 when no message has a time."""
    age_from_ms: int
    """The time that decides: the largest timestamp, else the time of the file."""
    active: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one segment, and why."""

    base_offset: int
    delete: bool
    reason: str
    expires_ms: int | None
    """From when on it is past `retention.ms`; `None` when that is off."""


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The verdicts, oldest segment first."""

    verdicts: tuple[Verdict, ...]
    roll_active: bool
    """Whether the active segment is to be closed first: its newest message is past retention."""

    @property
    def delete_count(self) -> int:
        """How many segments go, from the oldest on."""
        return sum(verdict.delete for verdict in self.verdicts)


def plan_retention(
    segments: Sequence[SegmentFacts], settings: TopicSettings, *, now_ms: int, high_watermark: int
) -> RetentionPlan:
    """Judge all segments of a log, oldest first.

    Time first, then size; each stops at the first segment that it keeps. A segment that reaches
    past the high watermark stays, and so does an empty active one.
    """
    dropped = 0
    verdicts: list[Verdict] = []
    for segment in segments:
        reason = _past_time(segment, settings, now_ms)
        if reason is None or not _may_go(segment, high_watermark):
            break
        verdicts.append(Verdict(segment.base_offset, True, reason, _expires_ms(segment, settings)))
        dropped += 1
    excess = sum(segment.size_bytes for segment in segments[dropped:]) - settings.retention_bytes
    for segment in segments[dropped:]:
        over = settings.retention_bytes >= 0 and excess - segment.size_bytes >= 0
        if not over or not _may_go(segment, high_watermark):
            break
        reason = (
            f"the log is {excess} bytes above retention.bytes={settings.retention_bytes}, "
            f"and this oldest segment has {segment.size_bytes}"
        )
        verdicts.append(Verdict(segment.base_offset, True, reason, _expires_ms(segment, settings)))
        excess -= segment.size_bytes
        dropped += 1
    for number, segment in enumerate(segments[dropped:]):
        behind = segments[dropped].base_offset if number else None
        reason = _kept_because(segment, settings, now_ms, high_watermark, behind)
        verdicts.append(Verdict(segment.base_offset, False, reason, _expires_ms(segment, settings)))
    return RetentionPlan(
        tuple(verdicts), _roll_active(segments[-1], verdicts[-1], settings, now_ms, high_watermark)
    )


def _roll_active(
    active: SegmentFacts,
    verdict: Verdict,
    settings: TopicSettings,
    now_ms: int,
    high_watermark: int,
) -> bool:
    expired = _past_time(active, settings, now_ms) is not None
    return verdict.delete or (expired and _may_go(active, high_watermark))


def _may_go(segment: SegmentFacts, high_watermark: int) -> bool:
    empty = segment.active and not segment.size_bytes
    return not empty and segment.next_offset <= high_watermark


def _expires_ms(segment: SegmentFacts, settings: TopicSettings) -> int | None:
    if settings.retention_ms < 0:
        return None
    return segment.age_from_ms + settings.retention_ms + 1


def _past_time(segment: SegmentFacts, settings: TopicSettings, now_ms: int) -> str | None:
    """Why the segment is past `retention.ms`; `None` when it is not."""
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
    if segment.active and not segment.size_bytes:
        return "it is the empty active segment"
    expires_ms = _expires_ms(segment, settings)
    if expires_ms is None or now_ms < expires_ms:
        limit = "retention.ms is off" if expires_ms is None else f"until {format_time(expires_ms)}"
        return f"{_newest(segment)} keeps it: {limit}"
    if segment.next_offset > high_watermark:
        return f"it reaches past the high watermark {high_watermark}"
    return f"it is expired, but behind the segment at {behind}, which is kept"
