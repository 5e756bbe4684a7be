"""Computes how far readers are behind, in time: as rows, or as a DataFrame."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ...blocking import Admin, Consumer
from ...client.administer.lagging import PositionLag
from ...client.cluster.servers import Servers, parse_servers
from ...client.results import ConsumerRecord
from ...protocol.api.log.list_offsets import EARLIEST, LARGEST, LATEST
from ...times import EPOCH
from ..spark_types import DataFrame, SparkSession

_STEPS: Final = (1, 1_000, 100_000)
"""How many offsets to look back, step by step, for the last message: a log can have gaps."""

_SCHEMA = (
    "name string, topic string, partition int, position bigint, end bigint, messages bigint, "
    "behind_s double, estimated boolean, catch_up_s double, read_until timestamp, newest timestamp"
)


class NothingRead:
    """Stands for the last message if none below the offset is stored."""

    timestamp_ms: None = None
    append_time_ms: None = None


def last_read(
    admin: Admin, consumer: Consumer, topic: str, partition: int, offset: int
) -> ConsumerRecord | NothingRead:
    """Return the last message stored below `offset`. Raises UnknownTopicOrPartition.

    `consumer` has no assignment afterwards.
    """
    (earliest,) = admin.list_offsets(topic, partition, [EARLIEST])
    log_start = earliest.offset or 0
    for step in _STEPS:
        start = max(offset - step, log_start)
        if start >= offset:
            break
        found = _last_between(consumer, topic, partition, start, offset)
        if found is not None:
            return found
        if start == log_start:
            break
    return NothingRead()


def _last_between(
    consumer: Consumer, topic: str, partition: int, start: int, end: int
) -> ConsumerRecord | None:
    consumer.assign(topic, partition, offset=start)
    last = None
    try:
        while True:
            records = consumer.fetch(max_wait_ms=0)
            below = [record for record in records if record.offset < end]
            if below:
                last = below[-1]
            if not records or len(below) < len(records) or records[-1].offset == end - 1:
                return last
    finally:
        consumer.unassign(topic, partition)


@dataclass(frozen=True, slots=True)
class TimeLag:
    """How far one position is behind its partition."""

    name: str
    topic: str
    partition: int
    position: int
    """Offset of the next message to read."""
    end_offset: int
    messages: int | None
    """Number of unread messages; None if the broker does not know it."""
    behind_s: float | None
    """How long the first unread message has been waiting; None if no time is known."""
    estimated: bool
    """Whether `behind_s` is computed from the create time."""
    catch_up_s: float | None
    """Seconds to reach the log end at the pace of the last minute; None if not known."""
    read_until_ms: int | None
    """Create time of the last message read; None if nothing was read, or if it has no time."""
    newest_ms: int | None
    """Largest create time in the partition; with a Kafka cluster, the create time of its last
    message."""

    @property
    def apart_ms(self) -> int | None:
        """Difference of the create times of the newest message and the last one read, in ms."""
        if self.read_until_ms is None or self.newest_ms is None:
            return None
        return max(self.newest_ms - self.read_until_ms, 0)


def lag_by_time(server: str | Servers, names: Sequence[str] = ()) -> list[TimeLag]:
    """Return the lag of all positions under these names, or under all names without any, ordered by
    name, topic and partition.

    A name without positions has no row. Raises ConnectionFailed.
    """
    with Admin(server, check_units=False) as admin, Consumer(server) as consumer:
        return [
            _row(admin, consumer, name, found, at_kafka=parse_servers(server).kafka)
            for name in names or admin.position_names()
            for found in admin.lag(name)
        ]


def lag_table(spark: SparkSession, rows: Sequence[TimeLag]) -> DataFrame:
    """Return the rows as a DataFrame with times as timestamps; null for times after year 9999."""

    def moment(ms: int | None) -> datetime | None:
        with suppress(OverflowError):
            return None if ms is None else EPOCH + timedelta(milliseconds=ms)
        return None

    data = [
        (
            *(row.name, row.topic, row.partition, row.position, row.end_offset, row.messages),
            *(row.behind_s, row.estimated, row.catch_up_s),
            *(moment(row.read_until_ms), moment(row.newest_ms)),
        )
        for row in rows
    ]
    return spark.createDataFrame(data, _SCHEMA)


def _row(
    admin: Admin, consumer: Consumer, name: str, found: PositionLag, *, at_kafka: bool
) -> TimeLag:
    topic, partition, lag = found.topic, found.partition, found.lag
    end_offset, newest_ms, read_until_ms = found.offset, None, None
    if found.error is None:
        (end,) = admin.list_offsets(topic, partition, [LATEST])
        end_offset = end.offset or 0
        if at_kafka:
            newest_ms = last_read(admin, consumer, topic, partition, end_offset).timestamp_ms
        else:
            newest_ms = admin.list_offsets(topic, partition, [LARGEST])[0].timestamp_ms
        position = admin.position(name, topic, partition)
        read_until_ms = position.timestamp_ms if position is not None else None
        if read_until_ms is None:
            read_until_ms = last_read(admin, consumer, topic, partition, found.offset).timestamp_ms
    return TimeLag(
        name=name,
        topic=topic,
        partition=partition,
        position=found.offset,
        end_offset=end_offset,
        messages=None if lag is None else lag.messages,
        behind_s=None if lag is None else lag.seconds,
        estimated=lag is not None and lag.estimated,
        catch_up_s=None if lag is None else lag.catch_up_seconds,
        read_until_ms=read_until_ms,
        newest_ms=newest_ms,
    )
