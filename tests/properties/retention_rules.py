"""Retention said once more, slowly: what a maintenance pass has to leave of a log."""

from dataclasses import dataclass

from horolog.config.topic import TopicSettings
from horolog.protocol.records.messages.sets import entries
from horolog.storage.log.log import Log
from horolog.storage.segment.segment import Segment

from .index_rules import times_by_offset


@dataclass(frozen=True)
class Kept:
    """What is left of a log: the log start, and whether a new active segment was begun."""

    log_start_offset: int
    rolled: bool


def counts_from(log: Log, segment: Segment) -> int:
    """The first offset of a segment whose time counts: where the log begins in the middle of it,
    that of the first entry with a message at the log start or behind it."""
    start = log.log_start_offset
    is_last = segment is log.segments[-1]
    if not segment.base_offset < start or not (is_last or start < segment.next_offset):
        return segment.base_offset
    ends = (entry.offset + 1 for entry in entries(segment.log_path.read_bytes()))
    return max((end for end in ends if end <= start), default=segment.base_offset)


def retained(log: Log, settings: TopicSettings, now_ms: int) -> Kept:
    """What the next pass over `log` must leave at `now_ms`; looks at every message."""
    segments = log.segments
    sizes = [segment.size_bytes for segment in segments]
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
    ages = []
    for segment in segments:
        first = counts_from(log, segment)
        times = times_by_offset(segment.log_path.read_bytes())
        newest_ms = max((ms for offset, ms in times.items() if offset >= first), default=-1)
        ages.append(now_ms - (newest_ms if newest_ms >= 0 else segment.modified_ms))
    expired = [settings.retention_ms >= 0 and age > settings.retention_ms for age in ages]
    may_go = [end <= log.high_watermark for end in ends]
    may_go[-1] = may_go[-1] and sizes[-1] > 0
    gone = 0
    while gone < len(segments) and expired[gone] and may_go[gone]:
        gone += 1
    excess = sum(sizes[gone:]) - settings.retention_bytes
    if settings.retention_bytes >= 0:
        while gone < len(segments) and excess >= sizes[gone] and may_go[gone]:
            excess -= sizes[gone]
            gone += 1
    start = ends[gone - 1] if gone else segments[0].base_offset
    rolled = may_go[-1] and (gone == len(segments) or expired[-1])
    return Kept(max(start, log.log_start_offset), rolled)
