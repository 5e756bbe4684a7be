"""What a log tells about itself: to `describe-log`, the command line and the metrics."""

from ...values import value_class
from ..segment.segment import Segment
from .retention import RetentionVerdict


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
