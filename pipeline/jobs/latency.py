"""Measures latencies of messages, append time minus create time, by topic, partition and minute.

Percentiles cannot be combined, so latencies are counted first: exactly below a second, and to three
digits above. The percentiles of each minute, partition and topic are computed from these counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..spark_types import Column, DataFrame, Row, SparkSession
from .dataframes import read_ranges
from .ranges import ReadPlan

_COLUMNS: Final = (
    "topic string, partition int, timestamp timestamp, appendTime timestamp, timestampType int"
)
_COLUMNS_WITH_HEADERS: Final = (
    "topic string, partition int, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
_QUANTILES: Final = (0.5, 0.95, 0.99)
MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of a group of messages, in ms. Negative latencies count as 0."""

    topic: str | None
    """None for all topics together."""
    partition: int | None
    """None for all partitions together."""
    start_ms: int | None
    """Start of the window of append time, by default a minute; None for all windows together."""
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: int
    skewed: int
    """Number of messages appended before they were created: a clock is wrong."""


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """Latencies of the messages appended in a range of time."""

    topics: tuple[str, ...]
    from_ms: int | None
    to_ms: int | None
    window_ms: int
    rows: tuple[Latencies, ...]
    """Groups by topic, partition and window, each also with None for all together."""
    measured: int
    unknown: int
    """Number of messages that lack one of the times: without a create time, of a LogAppendTime
    topic, or appended when append times were not recorded."""

    @property
    def max_latency_ms(self) -> int | None:
        """The largest latency, MaxLatencyOfCluster; None if nothing was measured."""
        return max((row.max_ms for row in self.rows), default=None)

    @property
    def skewed(self) -> int:
        """Number of messages appended before they were created."""
        return sum(row.skewed for row in self.select(of_partition=False, of_window=False))

    def select(
        self, topic: str | None = None, *, of_partition: bool, of_window: bool
    ) -> list[Latencies]:
        """Return the rows of one topic, or of every topic: by partition or all partitions together,
        by window or all windows together; in order."""
        return [
            row
            for row in self.rows
            if row.topic is not None
            and topic in (None, row.topic)
            and (row.partition is not None) == of_partition
            and (row.start_ms is not None) == of_window
        ]


def latency_report(
    spark: SparkSession,
    plans: Sequence[ReadPlan],
    window_ms: int = MINUTE_MS,
    *,
    created_in: str | None = None,
) -> LatencyReport:
    """Measure the messages of plans by append time, all of one server.

    `created_in` names a header with the create time, in epoch milliseconds, as text or as 8 bytes
    in network order. The message's timestamp is then its append time; messages whose timestamp is a
    create time (`message.timestamp.type` was CreateTime) count as unknown. A Kafka cluster, which
    keeps one time per message, can be measured only in this way.

    Raises ValueError for a window below 1 ms, or without plans.
    """
    if window_ms < 1 or not plans:
        raise ValueError(f"a report needs topics and a window from 1 ms on, not {window_ms} ms")
    from pyspark.sql import functions as sf

    if created_in is None:
        rows = _both_kept(read_ranges(spark, plans, _COLUMNS))
    else:
        rows = _created_in(read_ranges(spark, plans, _COLUMNS_WITH_HEADERS), created_in)
    counted = _counted(rows, window_ms).persist()
    try:
        unknown = counted.where("latency IS NULL").agg(sf.sum("n")).first()
        measured = [_latencies(found) for found in _summed(counted).collect()]
    finally:
        counted.unpersist()
    measured.sort(key=_place)
    return LatencyReport(
        topics=tuple(plan.topic for plan in plans),
        from_ms=plans[0].from_ms,
        to_ms=plans[0].to_ms,
        window_ms=window_ms,
        rows=tuple(measured),
        measured=sum(row.count for row in measured if row.topic is None),
        unknown=(unknown[0] if unknown is not None else None) or 0,
    )


def _latencies(found: Row) -> Latencies:
    p50_ms, p95_ms, p99_ms = found["quantiles"]
    return Latencies(
        topic=found["topic"],
        partition=found["partition"],
        start_ms=found["start_ms"],
        count=found["n"],
        p50_ms=p50_ms,
        p95_ms=p95_ms,
        p99_ms=p99_ms,
        max_ms=found["max_ms"],
        skewed=found["skewed"],
    )


def _place(row: Latencies) -> tuple[str, int, int]:
    """Sort key of a row: a total comes before its parts."""
    partition = -1 if row.partition is None else row.partition
    start_ms = -1 if row.start_ms is None else row.start_ms
    return row.topic or "", partition, start_ms


def _both_kept(rows: DataFrame) -> DataFrame:
    """Return `topic`, `partition`, `appended_ms` and `created_ms`, both times from the broker."""
    from pyspark.sql import functions as sf

    created_ms = sf.when(sf.col("timestampType") == 0, sf.unix_millis("timestamp"))
    return rows.select(
        "topic",
        "partition",
        sf.unix_millis("appendTime").alias("appended_ms"),
        created_ms.alias("created_ms"),
    )


def _created_in(rows: DataFrame, header: str) -> DataFrame:
    """Like `_both_kept`, with the create time from the last header of this name."""
    from pyspark.sql import functions as sf

    named = sf.filter("headers", lambda one: one["key"] == header)
    value = sf.try_element_at(named, sf.lit(-1))["value"]
    as_number = sf.conv(sf.hex(value), 16, 10)
    text = sf.when(sf.octet_length(value) == 8, as_number).otherwise(value.cast("string"))
    appended_ms = sf.when(sf.col("timestampType") == 1, sf.unix_millis("timestamp"))
    return rows.select(
        "topic",
        "partition",
        appended_ms.alias("appended_ms"),
        text.try_cast("bigint").alias("created_ms"),
    )


def _counted(rows: DataFrame, window_ms: int) -> DataFrame:
    """Count messages by topic, partition, window and latency; null for an unknown latency."""
    from pyspark.sql import functions as sf

    appended_ms = sf.col("appended_ms")
    latency = appended_ms - sf.col("created_ms")
    return (
        rows.select(
            "topic",
            "partition",
            (sf.floor(appended_ms / window_ms) * window_ms).alias("start_ms"),
            _three_digits(sf.when(latency < 0, 0).otherwise(latency)).alias("latency"),
            latency.alias("exact"),
        )
        .groupBy("topic", "partition", "start_ms", "latency")
        .agg(
            sf.count(sf.lit(1)).alias("n"),
            sf.greatest(sf.max("exact"), sf.lit(0)).alias("max_ms"),
            sf.count_if(sf.col("exact") < 0).alias("skewed"),
        )
    )


def _three_digits(latency: Column) -> Column:
    from pyspark.sql import functions as sf

    unit = sf.pow(sf.lit(10.0), sf.greatest(sf.floor(sf.log10(latency)) - 2, sf.lit(0)))
    return sf.when(latency < 1000, latency).otherwise(
        (sf.round(latency / unit) * unit).cast("long")
    )


def _summed(counted: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    topic, partition, start = sf.col("topic"), sf.col("partition"), sf.col("start_ms")
    sets = [[topic, partition, start], [topic, start], [topic, partition], [topic], []]
    return (
        counted.where("latency IS NOT NULL")
        .groupingSets(sets, topic, partition, start)
        .agg(
            sf.sum("n").alias("n"),
            sf.percentile("latency", list(_QUANTILES), sf.col("n")).alias("quantiles"),
            sf.max("max_ms").alias("max_ms"),
            sf.sum("skewed").alias("skewed"),
        )
        .where("n IS NOT NULL")
    )
