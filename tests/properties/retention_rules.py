"""Retention said once more, slowly: what a maintenance pass has to leave of a log."""

from dataclasses import dataclass

from horolog.config.topic import TopicSettings
from horolog.storage.log.log import Log

from .index_rules import times_by_offset


@dataclass(frozen=True)
class Kept:
    """What is left of a log: the log start, and whether a new active segment was begun."""

    log_start_offset: int
    rolled: bool


def retained(log: Log, settings: TopicSettings, now_ms: int) -> Kept:
    """What the next pass over `log` must leave at `now_ms`; looks at every message."""
    segments = log.segments
    sizes = [segment.size_bytes for segment in segments]
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
    ages = []
    for segment in segments:
        newest_ms = max(times_by_offset(segment.log_path.read_bytes()).values(), default=-1)
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
