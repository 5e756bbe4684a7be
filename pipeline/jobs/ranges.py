"""Plans which offsets a job reads: times are resolved to offsets once, printed, and then fixed."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ...blocking import Admin
from ...client.administer.searching import By
from ...client.cluster.servers import Servers
from ...client.results import AfterEnd, FindResult, Found, NoTimestamps
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ...times import EPOCH_MS_MAXIMUM, check_unit
from ..logs import NO_LOGS, UNKNOWN, LogId, TopicLogs, logs_of
from ..questions import warn_of_gone

__all__ = ["PartitionRange", "ReadPlan", "plan_by_append_time", "plan_by_create_time"]

BY_TIMESTAMP: Final = "timestamp"


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Range of offsets to read from one partition, from `start_offset` to `end_offset`
    (exclusive)."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int
    """Log start when the range was resolved."""
    cut_off: bool = False
    """Whether messages of the range may have been deleted: the log has lost its first messages, and
    its log start is in the range, or within the allowed disorder before the range."""

    @property
    def rows(self) -> int:
        """Number of offsets in the range."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Plan of what a job reads from one topic."""

    server: str | Servers
    topic: str
    from_ms: int | None
    """Start of the times wanted, inclusive; None is the beginning of the log."""
    to_ms: int | None
    """End of the times wanted, exclusive; None is the end of the log when the plan was made."""
    ranges: tuple[PartitionRange, ...]
    log: LogId = UNKNOWN
    """Ids of the log that the offsets belong to."""
    by: By = BY_TIMESTAMP
    """Which times the window compares: the messages' own, which can be out of order, or append
    times, which are in order."""

    @property
    def bounded(self) -> bool:
        """Whether the window has a start or an end."""
        return self.from_ms is not None or self.to_ms is not None

    @property
    def rows(self) -> int:
        """Number of offsets to read; only messages with times in the window are kept."""
        return sum(one.rows for one in self.ranges)

    @property
    def cut_off(self) -> tuple[PartitionRange, ...]:
        """The ranges of which messages may have been deleted."""
        return tuple(one for one in self.ranges if one.cut_off)


def offsets_json(offsets: Iterable[tuple[str, int, int]], logs: TopicLogs = NO_LOGS) -> str:
    """Format (topic, partition, offset) for Spark's options, `{"clicks":{"0":12}}`, with the ids of
    the logs.

    Topics and partitions are sorted, so that equal offsets give equal text.
    """
    by_topic: dict[str, dict[str, int]] = {}
    for topic, partition, offset in sorted(offsets):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps({**by_topic, **logs.to_json()}, separators=(",", ":"))


def plan_by_create_time(
    server: str | Servers,
    topic: str,
    from_ms: int | None,
    to_ms: int | None,
    *,
    max_out_of_order_ms: int | None = None,
) -> ReadPlan:
    """Plan to read every message whose time is in `[from_ms, to_ms)`. The ranges also contain other
    messages: `read_plans` leaves them out, `read_ranges` includes them.

    Messages can come late, so ranges extend to the log end. If no message comes more than
    `max_out_of_order_ms` after a newer one, they end at the first message with a time of
    `to_ms + max_out_of_order_ms` or later. Raises TimeError for a time that looks like another unit
    than milliseconds, UnknownTopicOrPartition, ConnectionFailed.
    """
    _check_times(from_ms, to_ms)
    stop_ms = None
    if to_ms is not None and max_out_of_order_ms is not None:
        stop_ms = to_ms + max_out_of_order_ms
        if to_ms <= EPOCH_MS_MAXIMUM < stop_ms:
            stop_ms = None  # It would look like another unit. The log end is late enough.
    slack_ms = max_out_of_order_ms or 0
    with Admin(server) as admin:
        log = _log_of(admin, topic)
        ranges = _ranges(admin, topic, from_ms, stop_ms, BY_TIMESTAMP, slack_ms)
    return ReadPlan(server, topic, from_ms, to_ms, ranges, log)


def plan_by_append_time(
    server: str | Servers,
    topic: str,
    from_ms: int | None,
    to_ms: int | None,
    *,
    own_times: bool = False,
) -> ReadPlan:
    """Plan to read every message that the broker appended in `[from_ms, to_ms)`, as far as its
    append time is known.

    With `own_times` the messages' timestamps are the append times, as in topics with
    `message.timestamp.type=LogAppendTime`: a Kafka cluster has no other append times.
    Raises TimeError for a time that looks like another unit than milliseconds,
    UnknownTopicOrPartition, ConnectionFailed; UnsupportedVersion with a Kafka cluster, unless
    `own_times` is given or the whole log is read.
    """
    _check_times(from_ms, to_ms)
    with Admin(server) as admin:
        log = _log_of(admin, topic)
        ranges = _ranges(admin, topic, from_ms, to_ms, BY_TIMESTAMP if own_times else "append")
    return ReadPlan(server, topic, from_ms, to_ms, ranges, log, by="append")


def _check_times(from_ms: int | None, to_ms: int | None) -> None:
    for time_ms in (from_ms, to_ms):
        if time_ms is not None:
            check_unit(time_ms)
    if from_ms is not None and to_ms is not None and to_ms <= from_ms:
        raise ValueError(f"the times end ({to_ms} ms) at or before their start ({from_ms} ms)")


def _log_of(admin: Admin, topic: str) -> LogId:
    """Return the ids of the log. Called before offsets are read: if the topic is made again in
    between, ids and offsets do not match, and the read fails."""
    return logs_of(admin.describe_cluster([topic])).of(topic)


def _ranges(
    admin: Admin,
    topic: str,
    from_ms: int | None,
    stop_ms: int | None,
    by: By,
    slack_ms: int = 0,
) -> tuple[PartitionRange, ...]:
    partitions = admin.partition_count(topic)
    return tuple(
        _range(admin, topic, one, from_ms, stop_ms, by, slack_ms) for one in range(partitions)
    )


def _range(
    admin: Admin,
    topic: str,
    partition: int,
    from_ms: int | None,
    stop_ms: int | None,
    by: By,
    slack_ms: int,
) -> PartitionRange:
    def first_of(time_ms: int, end: int) -> int:
        found = admin.find_offset(topic, partition, timestamp_ms=time_ms, by=by)
        warn_of_gone(topic, partition, time_ms, found.complete_from_ms)
        return _place(found, end)

    earliest, latest = admin.list_offsets(topic, partition, [EARLIEST, LATEST])
    log_start, last = earliest.offset or 0, latest.offset or 0
    # Messages appended after `last` was read are not in the range.
    start = log_start if from_ms is None else min(first_of(from_ms, last), last)
    end = last if stop_ms is None else min(first_of(stop_ms, last), last)
    begins = start
    if log_start and from_ms is not None and slack_ms:
        begins = first_of(max(from_ms - slack_ms, 0), last)
    cut_off = log_start > 0 and begins == log_start
    return PartitionRange(topic, partition, start, max(start, end), log_start, cut_off)


def _place(found: FindResult, end: int) -> int:
    match found:
        case Found(offset):
            return offset
        case AfterEnd(end_offset):
            return end_offset
        case NoTimestamps():
            return end
