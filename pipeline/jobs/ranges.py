"""Which offsets a job reads: resolved once by time, printed, and then kept to."""

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

BY_TIMESTAMP: Final = "timestamp"


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets of one partition that are read: from `start_offset` up to, not including,
    `end_offset`."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int
    """The first offset stored when the range was resolved."""
    cut_off: bool = False
    """Whether messages of the range may have been deleted: the log no longer begins with its first
    message, and what it begins with is of the range, or as much before it as messages may be out
    of order."""

    @property
    def rows(self) -> int:
        """How many offsets are in the range."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a job reads of one topic."""

    server: str | Servers
    topic: str
    from_ms: int | None
    """Start of the times wanted, inclusive; None is the beginning of the log."""
    to_ms: int | None
    """End of the times wanted, exclusive; None is the end of the log when the plan was made."""
    ranges: tuple[PartitionRange, ...]
    log: LogId = UNKNOWN
    """What the offsets are of."""
    by: By = BY_TIMESTAMP
    """Which times are wanted: the messages' own, which can be out of order, or those of the append,
    which are in order."""

    @property
    def bounded(self) -> bool:
        """Whether not all times are wanted."""
        return self.from_ms is not None or self.to_ms is not None

    @property
    def rows(self) -> int:
        """How many offsets are read; of these the rows kept are those of the times wanted."""
        return sum(one.rows for one in self.ranges)

    @property
    def cut_off(self) -> tuple[PartitionRange, ...]:
        """The partitions of which messages of the range may have been deleted."""
        return tuple(one for one in self.ranges if one.cut_off)


def offsets_json(offsets: Iterable[tuple[str, int, int]], logs: TopicLogs = NO_LOGS) -> str:
    """(topic, partition, offset) as Spark's options have them: `{"clicks":{"0":12}}`; with what
    they are of.

    Topics by name and partitions by number, so that equal offsets are equal text.
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
    """Every message whose time is in `[from_ms, to_ms)`, and the offsets of others between them:
    `read_plans` leaves those out, `read_ranges` has them.

    Messages of a time may come late, so reading goes on to the end of the log, or, when no message
    comes more than `max_out_of_order_ms` after a later one, to the first message of `to_ms` and
    that much. Raises TimeError for a time that looks like another unit than milliseconds,
    UnknownTopicOrPartition, ConnectionFailed.
    """
    _check_times(from_ms, to_ms)
    stop_ms = None
    if to_ms is not None and max_out_of_order_ms is not None:
        stop_ms = to_ms + max_out_of_order_ms
        if to_ms <= EPOCH_MS_MAXIMUM < stop_ms:
            stop_ms = None  # No broker is asked for such a time; the end of the log is late enough.
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
    """Every message that the broker appended in `[from_ms, to_ms)`, as far as it knows when.

    With `own_times` the messages' own times are those of the append, as on topics with
    `message.timestamp.type=LogAppendTime`: a Kafka cluster keeps no others.
    Raises TimeError for a time that looks like another unit than milliseconds,
    UnknownTopicOrPartition, ConnectionFailed; UnsupportedVersion at a Kafka cluster, unless
    `own_times` or all of the log is asked for.
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
    """Asked for before the offsets: if the topic is made again in between, they do not fit."""
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
        return _place(admin.find_offset(topic, partition, timestamp_ms=time_ms, by=by), end)

    earliest, latest = admin.list_offsets(topic, partition, [EARLIEST, LATEST])
    log_start, last = earliest.offset or 0, latest.offset or 0
    # Appended meanwhile: what is behind the end that was asked for first is not read.
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
