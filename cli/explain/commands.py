"""`horolog explain`; of its commands `retention`: why messages are still there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...client.administer.admin import Admin
from ...client.results import TopicDescription
from ...protocol.api.log.describe_log import DescribedSegment, DescribeLogPartitionResult
from ...times import later
from ..broker_requests import ask
from ..options import DEFAULT_SERVER, Json, Partition, Server, TopicName, group
from ..output import (
    NOTHING,
    emit,
    json_line,
    json_time,
    not_cleaned_yet,
    plural,
    shown_size,
    shown_span,
    shown_time,
    table,
)
from .compaction import compaction
from .offset import offset
from .topic import topic

explain = group(
    "Say why messages are still there, how an offset was found, and how a name is read."
)

_OFF = -1
"""Value of a retention setting that is off."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """What decides how long a message of a topic stays, as set now."""

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
        """How old a message may get before its file is gone; None when age deletes nothing.

        It may be the first of a segment that takes messages for `segment.ms` more; that segment
        stays until its newest message is past retention; the next check finds it; its files are
        removed after the delay.
        """
        if self.retention_ms == _OFF:
            return None
        wait_ms = self.check_interval_ms + self.delete_delay_ms
        return later(self.segment_ms, self.retention_ms + wait_ms)


@dataclass(frozen=True, slots=True)
class RetentionForecast:
    """One segment, and when it goes."""

    segment: DescribedSegment
    goes_ms: int | None
    """From when on the next check drops it for its age; None when age does not, or it is empty."""
    held_by: int | None
    """Base offset of the older segment that it has to wait for, if it does."""
    ahead_ms: int
    """How far its largest timestamp is ahead of the broker's clock; 0 when it is not."""


def outlooks(log: DescribeLogPartitionResult, limits: RetentionLimits) -> list[RetentionForecast]:
    """When each segment goes, oldest first: not before all older ones."""
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
explain.command()(offset)
explain.command()(topic)


@explain.command()
def retention(
    topic: TopicName,
    partition: Partition = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Say of each segment why it is still there, and when it goes.

    Retention drops whole segments, the oldest first. A segment goes when its largest timestamp is
    past retention.ms, so one message with a late time keeps it, and all behind it. With --json
    there are the exact times, and each reason in full.
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
    """What is wrong with times, and what to do about it."""
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
    """What decides, in few words: the table has to fit on 80 columns."""
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
