"""The topics and what is counted of them, a hundred at a time."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Final

from ...protocol.errors import HorologError
from ...protocol.records.kernel import FORM
from ...protocol.records.latency import LATENCY_BUCKETS_MS
from ...storage.directory.topics import TopicEntry
from ..handlers.base import Services
from ..work import Turns
from .access import PageAccess
from .query import Query

TOPICS_AT_ONCE: Final = 100
PARTITIONS_AT_ONCE: Final = 1000
"""An answer ends behind the topic with which it passes this."""


async def topics(services: Services, query: Query) -> dict[str, object]:
    """The broker, and the topics behind `after` whose names hold `like`, in order of names."""
    after, like = query.text("after", ""), query.text("like", "")
    limit = query.integer("limit", TOPICS_AT_ONCE, maximum=TOPICS_AT_ONCE)
    access = query.access
    entries = access.topics(services.directory.topics())
    names = await services.work.in_reading_thread(partial(_matching, tuple(entries), like))
    start = bisect_right(names, after)
    turns = services.work.turns()
    shown: list[dict[str, object]] = []
    partitions = 0
    for name in names[start:]:
        if len(shown) >= limit or partitions >= PARTITIONS_AT_ONCE:
            break
        entry = entries.get(name)
        if entry is None:
            continue  # it was deleted meanwhile
        shown.append(await _topic(services, entry, turns, access))
        partitions += entry.partitions
        await turns.give_way()
    more = bool(shown) and start + len(shown) < len(names)
    return {
        "now_ms": services.clock.now_ms(),
        "kernel": FORM,
        "alone": not services.replication.replicates,
        "user": query.viewer.shown(),
        "limited": not access.every_topic(),
        "latency_buckets_ms": LATENCY_BUCKETS_MS,
        "latency_window_ms": services.figures.latency_window_ms,
        "topic_count": len(entries),
        "matching": len(names),
        "topics": shown,
        "next": shown[-1]["name"] if more else None,
    }


def _matching(names: Sequence[str], like: str) -> list[str]:
    return sorted(name for name in names if like in name)


async def _topic(
    services: Services, entry: TopicEntry, turns: Turns, access: PageAccess
) -> dict[str, object]:
    """The topic; `hidden` names what else there is that the viewer has no right to."""
    messages = size_bytes = segments = 0
    problem = ""
    with_settings = access.settings(entry.name)
    for partition in range(entry.partitions):
        try:
            log = services.logs.find(entry.name, partition)
        except (HorologError, OSError) as error:
            problem = problem or str(error)
            continue
        messages += log.log_end_offset - log.log_start_offset
        size_bytes += log.size_bytes
        segments += log.segment_count
        if log.failure is not None:
            problem = problem or str(log.failure)
        await turns.give_way()
    return {
        "name": entry.name,
        "partitions": entry.partitions,
        "messages": messages,
        "size_bytes": size_bytes,
        "segments": segments,
        "problem": problem,
        "hidden": [
            *(() if with_settings else ("settings",)),
            *(() if access.messages(entry.name) else ("messages",)),
        ],
        **(_settings(services, entry.name) if with_settings else {}),
        **_figures(services, entry.name),
    }


def _settings(services: Services, name: str) -> dict[str, object]:
    try:
        settings = services.directory.topic_settings(name)
    except HorologError:
        return {}
    return {
        "timestamp_type": settings.message_timestamp_type,
        "retention_ms": settings.retention_ms,
        "retention_bytes": settings.retention_bytes,
        "cleanup_policy": settings.cleanup_policy,
        "segment_ms": settings.segment_ms,
        "segment_bytes": settings.segment_bytes,
    }


def _figures(services: Services, name: str) -> dict[str, object]:
    """What was counted since the broker started."""
    figures = services.figures.topics.get(name)
    if figures is None:
        return {"appended": 0, "latency_counts": [0] * (len(LATENCY_BUCKETS_MS) + 1)}
    return {
        "appended": figures.messages,
        "latency_counts": figures.latency.counts,
        "largest_latency_ms": figures.largest_latency.largest(),
        "skewed": figures.latency.skewed,
        "rejected": sum(figures.rejected.values()),
        "damaged_segments": figures.damaged_segments,
    }
