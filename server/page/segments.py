"""The segments of a partition, the newest hundred or those before a given one."""

from bisect import bisect_left
from typing import Final

from ...storage.log.description import SegmentDescription
from ..handlers.base import Services
from .query import OFFSET_MAX, Query, asked_log

SEGMENTS_AT_ONCE: Final = 100
SEGMENTS_A_STEP: Final = 10
"""Each may need its file opened, for its first timestamp."""


async def segments(services: Services, query: Query) -> dict[str, object]:
    """Segments that begin below offset `before`, oldest first, and the partition's offsets."""
    log = await asked_log(services, query)
    await services.logs.read_trimmed(log)
    before = query.integer("before", OFFSET_MAX)
    now_ms = services.trusted_time.now_ms()
    all_of_them = log.segments
    end = bisect_left(all_of_them, before, key=lambda segment: segment.base_offset)
    start = max(end - SEGMENTS_AT_ONCE, 0)
    turns = services.work.turns()
    shown: list[dict[str, object]] = []
    for first in range(start, end, SEGMENTS_A_STEP):
        numbers = range(first, min(first + SEGMENTS_A_STEP, end))
        shown += [_segment(one) for one in log.expiry.describe_some(now_ms, numbers)]
        await turns.give_way()
    return {
        "now_ms": now_ms,
        "caution": services.trusted_time.caution(),
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "high_watermark": log.high_watermark,
        "segment_count": len(all_of_them),
        "older": start,
        "newer": len(all_of_them) - end,
        "segments": shown,
    }


def _segment(segment: SegmentDescription) -> dict[str, object]:
    return {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "size_bytes": segment.size_bytes,
        "first_ms": _time(segment.first_timestamp_ms),
        "largest_ms": _time(segment.largest_timestamp_ms),
        "largest_offset": _time(segment.largest_offset),
        "modified_ms": segment.modified_ms,
        "active": segment.active,
        "verdict": segment.verdict,
        "reason": segment.reason,
        "expires_ms": segment.expires_ms,
        "damage": segment.damage,
    }


def _time(value: int) -> int | None:
    return None if value < 0 else value
