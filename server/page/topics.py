"""Tables of the page: topics and what is counted of them, a hundred at a time; the settings of a
topic; the segments of a partition; the members of the cluster."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ...config.topic import places
from ...protocol.api.cluster.describe_replicas import NOT_KNOWN
from ...protocol.errors import HorologError
from ...protocol.records.kernel import FORM
from ...protocol.records.latency import LATENCY_BUCKETS_MS
from ...storage.directory.topics import TopicEntry
from ...storage.log.expiry import SegmentDescription
from ..handlers.base import Services
from ..work import Turns
from .access import OFFSET_MAX, PageAccess, Query, asked_log

if TYPE_CHECKING:
    from ...protocol.api.cluster.describe_replicas import ReplicaMember

SEGMENTS_AT_ONCE: Final = 100
SEGMENTS_A_STEP: Final = 10
"""Segments described before other requests are served. Each may need its file opened, for its first
timestamp."""

TOPICS_AT_ONCE: Final = 100
PARTITIONS_AT_ONCE: Final = 1000
"""Number of partitions after which an answer ends, with the topic in progress."""
SUMMED_PARTITIONS: Final = 5000
"""Number of partitions after which totals end, with the topic in progress."""


async def topics(services: Services, query: Query) -> dict[str, object]:
    """Return the broker, and the topics after `after` whose names contain `like`, in order of name;
    with `name` only the topic of that name."""
    after, like = query.text("after", ""), query.text("like", "")
    exact = query.text("name", "")
    limit = query.integer("limit", TOPICS_AT_ONCE, maximum=TOPICS_AT_ONCE)
    access = query.access
    entries = access.topics(services.directory.topics())
    candidates = tuple(entries) if not exact else (exact,) if exact in entries else ()
    names = await services.work.in_reading_thread(partial(_matching, candidates, like))
    start = bisect_right(names, after)
    turns = services.work.turns()
    shown: list[dict[str, object]] = []
    partitions = 0
    for name in names[start:]:
        if len(shown) >= limit or partitions >= PARTITIONS_AT_ONCE:
            break
        entry = entries.get(name)
        if entry is None:
            continue  # deleted meanwhile
        shown.append(await _topic(services, entry, turns, access))
        partitions += entry.partitions
        await turns.give_way()
    with_totals = bool(query.integer("totals", 0, maximum=1))
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
        "totals": await _totals(services, entries, turns) if with_totals else None,
        "matching": len(names),
        "topics": shown,
        "next": shown[-1]["name"] if more else None,
    }


async def _totals(
    services: Services, entries: Mapping[str, TopicEntry], turns: Turns
) -> dict[str, object]:
    """Return sums over the topics that the viewer may see, whatever `like` is. They are a `part` if
    there are too many partitions."""
    messages = size_bytes = appended = partitions = 0
    part = False
    for name, entry in list(entries.items()):
        if partitions >= SUMMED_PARTITIONS:
            part = True
            break
        partitions += entry.partitions
        figures = services.figures.topics.get(name)
        appended += 0 if figures is None else figures.messages
        for partition in range(entry.partitions):
            with suppress(HorologError, OSError):
                log = services.logs.find(name, partition)
                messages += log.log_end_offset - log.log_start_offset
                size_bytes += log.size_bytes
            await turns.give_way()
    return {"messages": messages, "size_bytes": size_bytes, "appended": appended, "part": part}


def _matching(names: Sequence[str], like: str) -> list[str]:
    return sorted(name for name in names if like in name)


async def _topic(
    services: Services, entry: TopicEntry, turns: Turns, access: PageAccess
) -> dict[str, object]:
    """Return one topic. `hidden` names the parts that the viewer has no right to see."""
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
    """Return the figures since the broker started."""
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


async def segments(services: Services, query: Query) -> dict[str, object]:
    """Return the segments that start below offset `before`, oldest first, and the partition's
    offsets. Expiry reveals settings: it is hidden from a viewer without the right to them."""
    log = await asked_log(services, query)
    await services.logs.read_trimmed(log)
    before = query.integer("before", OFFSET_MAX)
    now_ms = services.trusted_time.now_ms()
    all_of_them = log.segments
    end = bisect_left(all_of_them, before, key=lambda segment: segment.base_offset)
    start = max(end - SEGMENTS_AT_ONCE, 0)
    turns = services.work.turns()
    with_expiry = query.access.settings(query.text("topic"))
    shown: list[dict[str, object]] = []
    for first in range(start, end, SEGMENTS_A_STEP):
        numbers = range(first, min(first + SEGMENTS_A_STEP, end))
        described = log.expiry.describe_some(now_ms, numbers)
        shown += [_segment(one, with_expiry=with_expiry) for one in described]
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
        "hidden": [] if with_expiry else ["expiry"],
    }


def _segment(segment: SegmentDescription, *, with_expiry: bool) -> dict[str, object]:
    return {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "size_bytes": segment.size_bytes,
        "first_ms": _time(segment.first_timestamp_ms),
        "largest_ms": _time(segment.largest_timestamp_ms),
        "largest_offset": _time(segment.largest_offset),
        "modified_ms": segment.modified_ms,
        "active": segment.active,
        "damage": segment.damage,
        "verdict": segment.verdict if with_expiry else None,
        "reason": segment.reason if with_expiry else None,
        "expires_ms": segment.expires_ms if with_expiry else None,
    }


def _time(value: int) -> int | None:
    return None if value < 0 else value


async def members(services: Services, query: Query) -> dict[str, object]:
    """Return the leader and followers, with state and lag; none for a single broker. Members are
    `hidden` from a viewer who may not describe the cluster."""
    replication = services.replication
    hidden = replication.replicates and not query.access.cluster()
    if not replication.replicates or hidden:
        return {"now_ms": services.clock.now_ms(), "members": [], "hidden": hidden}
    found = replication.describe()
    return {
        "now_ms": services.clock.now_ms(),
        "cluster": found.cluster_id,
        "broker": found.broker_id,
        "epoch": found.epoch,
        "leader": _known(found.leader),
        "in_sync": list(found.in_sync),
        "problem": found.waits_for or replication.not_ready(),
        "members": list(map(_member, found.members)),
        "hidden": False,
    }


def _member(one: "ReplicaMember") -> dict[str, object]:
    return {
        "id": one.broker_id,
        "address": one.address or None,
        "state": one.state,
        "since_ms": _known(one.since_ms),
        "lag_messages": _known(one.lag_messages),
        "lag_ms": _known(one.lag_ms),
    }


def _known(number: int) -> int | None:
    return None if number == NOT_KNOWN else number


async def settings(services: Services, query: Query) -> dict[str, object]:
    """Return all settings of a topic: name, value in force, and `topic`, `broker` or `default`."""
    overrides = services.logs.topic(query.text("topic")).overrides
    found = places(services.settings.topic_defaults, overrides)
    return {
        "settings": [
            {"name": name, "value": values[0][0], "source": values[0][1], "default": values[-1][0]}
            for name, values in found.items()
        ]
    }
