"""`horolog explain`: why messages are still stored or gone, what a compacted topic keeps, how a
search by time finds its offset, and how a topic's name is read."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from ..client.administer.admin import Admin
from ..client.cluster.servers import Servers
from ..client.consume.consumer import Consumer
from ..client.errors import ConnectionFailed
from ..client.results import TopicDescription
from ..clock import SystemClock
from ..protocol.api.log.describe_log import (
    DescribedSearch,
    DescribedSegment,
    DescribeLogPartitionResult,
)
from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from ..protocol.errors import InvalidTopic, UnknownTopicOrPartition
from ..protocol.window_topics import SEPARATOR, WindowName, parse_window_name, window_name
from ..times import format_time, later
from .broker_requests import ask, partitions_of
from .gone import gone
from .options import (
    DEFAULT_SERVER,
    AnyUnit,
    Json,
    Partition,
    Server,
    TopicName,
    group,
    parse_moment,
)
from .output import (
    NOTHING,
    Advance,
    emit,
    json_line,
    json_time,
    not_cleaned_yet,
    plural,
    progress,
    shown_size,
    shown_span,
    shown_time,
    table,
)

explain = group(
    "Say why messages are there or gone, how an offset was found, and how a name is read."
)

_OFF = -1
"""Value of a retention setting that is off."""


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """Log start and log end of a partition when the command began."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class KeyCount:
    """Number of messages of a partition, and of those without a key."""

    partition: int
    messages: int
    without_key: int


def compaction(
    topic: TopicName,
    partition: Partition = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Say what compaction keeps, and count the messages without a key.

    A compacted topic refuses messages without a key, but keeps those that it had before it was
    compacted. To count them, all messages of the topic are read once.
    """
    policy, ends = ask(Admin, server, lambda admin: _find(admin, topic, partition))
    with progress("messages", sum(one.end - one.start for one in ends)) as advance:
        counts = ask(Consumer, server, lambda reader: _count(reader, topic, ends, advance))
    compacts = "compact" in policy.split(",")
    if as_json:
        emit(_compaction_as_json(one, policy, compacts and not server.kafka) for one in counts)
        return
    if not compacts:
        emit([f"cleanup.policy is {policy}: messages need no key."])
    elif not server.kafka:
        emit([not_cleaned_yet(policy)])
    emit(_compaction_as_text(topic, one) for one in counts)


async def _find(admin: Admin, topic: str, partition: int | None) -> tuple[str, list[PartitionEnds]]:
    """Return the topic's cleanup.policy, and the log start and end of each partition."""
    description = await admin.describe_topic(topic)
    values = {setting.name: setting.value for setting in description.settings}
    ends: list[PartitionEnds] = []
    for number in await partitions_of(admin, topic, partition):
        start, end = await admin.list_offsets(topic, number, [EARLIEST, LATEST])
        ends.append(PartitionEnds(number, start.offset or 0, end.offset or 0))
    return values.get("cleanup.policy") or "delete", ends


async def _count(
    consumer: Consumer, topic: str, ends: list[PartitionEnds], advance: Advance
) -> list[KeyCount]:
    return [await _count_in(consumer, topic, one, advance) for one in ends]


async def _count_in(
    consumer: Consumer, topic: str, ends: PartitionEnds, advance: Advance
) -> KeyCount:
    messages = without_key = 0
    position = ends.start
    consumer.assign(topic, ends.partition, offset=position)
    while position < ends.end:
        for batch in await consumer.fetch_columns(columns=["keys"]):
            messages += batch.count
            without_key += batch.keys.nulls
        reached = consumer.position(topic, ends.partition)
        assert reached is not None, "it was assigned with an offset"
        advance(reached - position)
        position = reached
    consumer.unassign(topic, ends.partition)
    return KeyCount(ends.partition, messages, without_key)


def _compaction_as_json(count: KeyCount, policy: str, not_cleaned: bool) -> str:
    return json_line(
        partition=count.partition,
        messages=count.messages,
        without_key=count.without_key,
        cleanup_policy=policy,
        not_cleaned_yet=not_cleaned,
    )


def _compaction_as_text(topic: str, count: KeyCount) -> str:
    return (
        f"{topic}-{count.partition}: {count.messages} {plural(count.messages, 'message')}, "
        f"{count.without_key} without a key."
    )


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Present settings that decide how long a message of a topic stays."""

    retention_ms: int
    retention_bytes: int
    segment_ms: int
    check_interval_ms: int
    delete_delay_ms: int
    cleanup_policy: str

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy.split(",")

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy.split(",")

    @property
    def worst_case_ms(self) -> int | None:
        """How old a message can get before its file is removed; None if age deletes nothing.

        In the worst case the message is the first of a segment that is appended to for
        `segment.ms`. The segment stays until its newest message is past retention, until the next
        check, and for the delay of the removal.
        """
        if self.retention_ms == _OFF:
            return None
        wait_ms = self.check_interval_ms + self.delete_delay_ms
        return later(self.segment_ms, self.retention_ms + wait_ms)


@dataclass(frozen=True, slots=True)
class RetentionForecast:
    """When retention will remove a segment."""

    segment: DescribedSegment
    goes_ms: int | None
    """Time from which a check removes the segment for its age; None if age removes nothing, or if
    the segment is empty."""
    held_by: int | None
    """Base offset of an older segment that has to go first and goes later than this one would."""
    ahead_ms: int
    """How far the largest timestamp is ahead of the broker's clock; 0 if it is not."""


def outlooks(log: DescribeLogPartitionResult, limits: RetentionLimits) -> list[RetentionForecast]:
    """Forecast for each segment, oldest first; no segment goes before all older ones."""
    found: list[RetentionForecast] = []
    latest, latest_base = -1, None
    for segment in log.segments:
        held_by = None
        goes_ms: int | None = None
        if limits.retention_ms != _OFF and segment.size_bytes:
            goes_ms = segment.expires_ms
            if goes_ms < latest:
                goes_ms, held_by = latest, latest_base
            else:
                latest, latest_base = goes_ms, segment.base_offset
        ahead_ms = max(segment.largest_timestamp_ms - log.now_ms, 0)
        found.append(RetentionForecast(segment, goes_ms, held_by, ahead_ms))
    return found


explain.command()(compaction)


def offset(
    topic: TopicName,
    at: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="2016-11-14T17:24:32Z, now, @-1h, or epoch milliseconds."
        ),
    ],
    partition: Partition = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
    any_unit: AnyUnit = False,
) -> None:
    """Say how the offset of a time is found.

    The largest time of each segment rules out the segments before the right one. In that segment,
    the time index tells where to start reading, and the log is read from there to the message.
    """
    at_ms = parse_moment(at, "--at", SystemClock().now_ms(), any_unit)
    for log in asyncio.run(_ask(server, topic, partition, at_ms)):
        (search,) = log.search
        if as_json:
            emit([_offset_as_json(log, search, at_ms)])
        else:
            emit(_offset_as_text(f"{topic}-{log.partition}", log, search, at_ms))


async def _ask(
    server: Servers, topic: str, partition: int | None, at_ms: int
) -> list[DescribeLogPartitionResult]:
    async with Admin(server, check_units=False) as admin:
        wanted = await partitions_of(admin, topic, partition)
        return [await admin.describe_log(topic, number, at_ms=at_ms) for number in wanted]


def _offset_as_json(log: DescribeLogPartitionResult, search: DescribedSearch, at_ms: int) -> str:
    used = search.entry_offset >= 0
    inside = search.base_offset >= 0
    return json_line(
        partition=log.partition,
        at_ms=at_ms,
        offset=search.offset if inside else None,
        timestamp_ms=json_time(search.timestamp_ms),
        segments=search.segments,
        ruled_out=search.ruled_out,
        segment=search.base_offset if inside else None,
        entry_timestamp_ms=search.entry_timestamp_ms if used else None,
        entry_offset=search.entry_offset if used else None,
        start_offset=search.start_offset if inside else None,
        start_position=search.start_position if inside else None,
        read_bytes=search.read_bytes if inside else None,
    )


def _offset_as_text(
    place: str, log: DescribeLogPartitionResult, search: DescribedSearch, at_ms: int
) -> Iterator[str]:
    yield (
        f"{place}: {search.ruled_out} of {search.segments} segments have no message of "
        f"{shown_time(at_ms)} or later."
    )
    if search.base_offset < 0:
        yield f"No message is as late as that; the next offset is {log.high_watermark}."
        return
    if search.entry_offset >= 0:
        yield (
            f"In segment {search.base_offset}, the time index says that no message below offset "
            f"{search.entry_offset} is later than {shown_time(search.entry_timestamp_ms)}."
        )
    else:
        yield f"In segment {search.base_offset}, no entry of the time index is earlier than that."
    yield (
        f"From offset {search.start_offset} on (byte {search.start_position}), "
        f"{shown_size(search.read_bytes)} are passed over."
    )
    yield (
        f"Offset {search.offset}, of {shown_time(search.timestamp_ms)}, is the first message of "
        "that time or later."
    )


explain.command()(offset)


@dataclass(frozen=True, slots=True)
class NameMeaning:
    """What the name of a topic means at a broker."""

    kind: Literal["topic", "window", "none"]
    window: WindowName | None
    """The window that the name says. A name of no topic can say one, too."""
    why: str


def topic(topic: TopicName, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Say how a topic's name is read: as a topic, as a window of another topic, or as neither.

    A topic that exists under a window's name keeps its meaning. If no broker is named and none
    runs at the usual address, the name alone is read.
    """
    try:
        meaning = ask(Admin, server, lambda admin: _meaning(admin, topic, kafka=server.kafka))
    except ConnectionFailed as error:
        if server != DEFAULT_SERVER:
            raise
        meaning = _meaning_alone(topic, str(error))
    if as_json:
        emit([_name_as_json(topic, meaning)])
    else:
        emit(_name_as_text(topic, meaning))


async def _meaning(admin: Admin, name: str, *, kafka: bool) -> NameMeaning:
    parsed = parse_window_name(name)
    try:
        window = await admin.find_window(name)
        await admin.partition_count(name if window is None else window.base)
        # Kafka's protocol may not say it, but no window is in a list of all topics.
        served = window is None and parsed is not None and name not in await admin.list_topics()
    except (UnknownTopicOrPartition, InvalidTopic):
        return NameMeaning("none", parsed, _why_none(name, parsed))
    if served and parsed is not None:
        return NameMeaning("window", parsed, _why_window(parsed))
    if window is None:
        rest = "" if parsed is None else f", so the name means no window of {parsed.base}"
        return NameMeaning("topic", None, f"a topic of this name exists{rest}")
    why = _why_window(window)
    if kafka:
        why += "; only Horolog serves it as a topic, elsewhere `horolog consume` reads it"
    return NameMeaning("window", window, why)


def _meaning_alone(name: str, problem: str) -> NameMeaning:
    parsed = parse_window_name(name)
    if parsed is None or parsed.is_empty:
        return NameMeaning("none", parsed, _why_none(name, parsed, problem))
    why = f"the name ends with the times of a window; whether {parsed.base} exists is not known: "
    return NameMeaning("window", parsed, why + problem)


def _why_window(window: WindowName) -> str:
    return f"the name ends with the times of a window, and {window.base} exists"


def _why_none(name: str, parsed: WindowName | None, problem: str | None = None) -> str:
    if parsed is not None:
        if parsed.is_empty:
            return "no time is in a window that ends at or before its start"
        return f"it reads as a window of {parsed.base}, and there is no topic {parsed.base}"
    rest = " (what follows the dots is no time, so it is no window)" if SEPARATOR in name else ""
    if problem is None:
        return f"it is an ordinary name{rest}, and there is no such topic"
    return f"it is an ordinary name{rest}; whether there is such a topic is not known: {problem}"


def _name_as_json(name: str, meaning: NameMeaning) -> str:
    window = meaning.window
    return json_line(
        {"name": name, "is": meaning.kind},
        base=None if window is None else window.base,
        from_ms=None if window is None else window.from_ms,
        until_ms=None if window is None else window.until_ms,
        by=None if window is None else "append" if window.by_append else "create",
        why=meaning.why,
    )


def _name_as_text(name: str, meaning: NameMeaning) -> list[str]:
    window = meaning.window
    if meaning.kind == "none":
        return [f"{name}: {meaning.why}."]
    if window is None:
        parsed = parse_window_name(name)
        return [f"{name} is a topic{'' if parsed is None else f', no window of {parsed.base}'}."]
    times = "append time" if window.by_append else "time"
    span = f"at or after {format_time(window.from_ms)}"
    if window.until_ms is None:
        span += ", and those that are still to come"
    else:
        span += f" and before {format_time(window.until_ms)}"
    lines = [
        f"{name} is a window of {window.base}: the messages whose {times} is {span}.",
        f"{meaning.why[0].upper()}{meaning.why[1:]}.",
    ]
    if (written := window_name(window)) != name:
        lines.append(
            f"{written} is the same window under another name, with positions of its own in a "
            "group."
        )
    return lines


explain.command()(topic)
explain.command()(gone)


@explain.command()
def retention(
    topic: TopicName,
    partition: Partition = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Say of each segment why it is still there, and when it goes.

    Retention deletes whole segments, the oldest first. A segment goes when its largest timestamp
    is older than retention.ms, so one message with a late time keeps the segment and all later
    ones. --json prints exact times, and each reason in full.
    """
    description, logs = ask(Admin, server, lambda admin: _describe(admin, topic, partition))
    values = {setting.name: setting.value for setting in description.settings}
    for log in logs:
        limits = _limits(values, log)
        seen = outlooks(log, limits)
        if as_json:
            emit(_as_json(log, limits, outlook) for outlook in seen)
        else:
            emit(_as_text(topic, log, limits, seen))


async def _describe(
    admin: Admin, topic: str, partition: int | None
) -> tuple[TopicDescription, list[DescribeLogPartitionResult]]:
    description = await admin.describe_topic(topic)
    wanted = range(description.partitions) if partition is None else [partition]
    return description, [await admin.describe_log(topic, number) for number in wanted]


def _limits(values: dict[str, str | None], log: DescribeLogPartitionResult) -> RetentionLimits:
    def number(name: str) -> int:
        return int(values.get(name) or _OFF)

    policy = values.get("cleanup.policy") or "delete"
    deletes = "delete" in policy.split(",")
    return RetentionLimits(
        number("retention.ms") if deletes else _OFF,
        number("retention.bytes") if deletes else _OFF,
        number("segment.ms"),
        log.check_interval_ms,
        number("file.delete.delay.ms"),
        policy,
    )


def _as_json(
    log: DescribeLogPartitionResult, limits: RetentionLimits, outlook: RetentionForecast
) -> str:
    segment = outlook.segment
    return json_line(
        partition=log.partition,
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        active=segment.active,
        largest_timestamp_ms=json_time(segment.largest_timestamp_ms),
        pinned_by_offset=None if segment.largest_offset < 0 else segment.largest_offset,
        ahead_of_clock_ms=outlook.ahead_ms,
        verdict=segment.verdict,
        reason=segment.reason,
        goes_ms=outlook.goes_ms,
        waits_for_segment=outlook.held_by,
        worst_case_ms=limits.worst_case_ms,
        cleanup_policy=limits.cleanup_policy,
        not_cleaned_yet=limits.compacts,
    )


def _as_text(
    topic: str,
    log: DescribeLogPartitionResult,
    limits: RetentionLimits,
    seen: Sequence[RetentionForecast],
) -> Iterator[str]:
    yield f"{topic}-{log.partition} at {shown_time(log.now_ms)}"
    yield from _rules(limits)
    yield ""
    columns = ("segment", "size", "largest time", "goes", "why")
    rows = [
        (
            str(outlook.segment.base_offset),
            shown_size(outlook.segment.size_bytes),
            shown_time(outlook.segment.largest_timestamp_ms),
            _goes(log, outlook),
            _why(log, limits, outlook),
        )
        for outlook in seen
    ]
    yield from table(columns, rows, right=columns[:2], whole=columns[:-1])
    yield from _warnings(seen)
    yield ""


def _rules(limits: RetentionLimits) -> Iterator[str]:
    if limits.compacts:
        yield not_cleaned_yet(limits.cleanup_policy)
    if not limits.deletes:
        yield "Nothing goes because of its age or the log's size."
        return
    worst_ms = limits.worst_case_ms
    if worst_ms is None:
        yield "retention.ms is off: no message goes because of its age."
    else:
        yield (
            f"A message can get {_span(worst_ms)} old before its file is gone: segment.ms "
            f"({_span(limits.segment_ms)}) + retention.ms ({_span(limits.retention_ms)}) + the "
            f"time between two checks ({_span(limits.check_interval_ms)}) + file.delete.delay.ms "
            f"({_span(limits.delete_delay_ms)})."
        )
    if limits.retention_bytes == _OFF:
        yield "retention.bytes is off: none goes because of the log's size."
    else:
        yield (
            f"retention.bytes is {shown_size(limits.retention_bytes)}: the oldest segments go "
            "while those behind them are at least that large."
        )


def _warnings(seen: Sequence[RetentionForecast]) -> Iterator[str]:
    """Yield the warning about the first message from the future that keeps segments."""
    for number, outlook in enumerate(seen):
        segment = outlook.segment
        if not outlook.ahead_ms or outlook.goes_ms is None:
            continue
        behind = len(seen) - number - 1
        others = f" and the {behind} {plural(behind, 'segment')} behind it" if behind else ""
        yield ""
        yield (
            f"The message at offset {segment.largest_offset} has a time "
            f"{_span(outlook.ahead_ms)} in the future, so segment {segment.base_offset}{others} "
            f"cannot go before {shown_time(outlook.goes_ms)}. retention.bytes bounds the log "
            "whatever times say; message.timestamp.after.max.ms refuses such messages from now on."
        )
        return


def _goes(log: DescribeLogPartitionResult, outlook: RetentionForecast) -> str:
    if outlook.segment.verdict == "expired":
        return "next check"
    if outlook.goes_ms is None:
        return NOTHING
    if outlook.goes_ms <= log.now_ms:
        return "next check"
    return f"in {_span(outlook.goes_ms - log.now_ms)}"


def _why(
    log: DescribeLogPartitionResult, limits: RetentionLimits, outlook: RetentionForecast
) -> str:
    """Return the reason in a few words, because the table has to fit in 80 columns."""
    segment = outlook.segment
    too_old = limits.retention_ms != _OFF and segment.expires_ms <= log.now_ms
    if segment.verdict == "expired":
        return "too old" if too_old else "log too large"
    if not segment.size_bytes:
        return "active and empty"
    if outlook.held_by is not None:
        return f"behind {outlook.held_by}"
    if not limits.deletes:
        return "not cleaned yet"
    if limits.retention_ms == _OFF:
        return "retention.ms off"
    if too_old:
        return segment.reason
    if segment.largest_offset < 0:
        return "its file's time"
    return f"offset {segment.largest_offset}" + (": future" if outlook.ahead_ms else "")


def _span(ms: int) -> str:
    return shown_span(ms / 1000)
