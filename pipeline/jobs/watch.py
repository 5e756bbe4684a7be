"""Counts the messages of a topic as they come, by windows of create time. Late messages count up to
a limit, and copies count once."""

from collections.abc import Callable
from dataclasses import dataclass

from ...client.cluster.servers import Servers
from ..planning import AHEAD_MS
from ..spark_types import DataFrame, SparkSession, StreamingQuery
from .dataframes import identity_of


@dataclass(frozen=True, slots=True)
class Watch:
    """Options of a watch."""

    server: str | Servers
    topic: str
    window: str = "1 minute"
    late: str = "5 minutes"
    """How far behind the latest create time a message still counts."""
    identity: str | None = None
    """SQL expression that is equal for copies of a message; by default its key, time and value."""
    by: str | None = None
    """SQL expression to count by, beside the window."""
    slice: str | None = None
    """Length of time that a batch reads from each partition, for stored data. A length up to `late`
    keeps messages of a slower partition from being late. None uses `late`."""
    checkpoint: str | None = None
    """Folder of the query's checkpoint; None begins anew each time."""
    available_now: bool = False
    """Whether to end when the messages stored now are counted."""
    trigger: str = "1 second"
    start: str = "earliest"
    """Where to begin without a checkpoint: earliest, latest, or JSON of offsets."""


def counts(spark: SparkSession, watch: Watch) -> DataFrame:
    """Return a streaming DataFrame: `start` and `end` of the window, `by`, `count`, and `latest`,
    the latest create time."""
    from pyspark.sql import functions as sf

    from ..connecting import connection_options

    rows = (
        spark.readStream.format("horolog")
        .options(
            **{
                **connection_options(watch.server),
                "subscribe": watch.topic,
                "startingOffsets": watch.start,
                "maxTimePerTrigger": watch.slice or watch.late,
            }
        )
        .load()
    )
    # Spark's watermark follows the latest create time, so one message from the future would make
    # all others late.
    soon = sf.current_timestamp() + sf.make_dt_interval(secs=sf.lit(AHEAD_MS // 1000))
    value = sf.lit(None) if watch.by is None else sf.expr(watch.by)
    return (
        rows.where(sf.col("timestamp").isNotNull() & (sf.col("timestamp") < soon))
        .select(
            "timestamp", identity_of(watch.identity).alias("id"), value.cast("string").alias("by")
        )
        .withWatermark("timestamp", watch.late)
        .dropDuplicatesWithinWatermark(["id"])
        .groupBy(sf.window("timestamp", watch.window).alias("window"), "by")
        .agg(sf.count(sf.lit(1)).alias("count"), sf.max("timestamp").alias("latest"))
        .select("window.start", "window.end", "by", "count", "latest")
    )


def start_watch(
    spark: SparkSession, watch: Watch, show: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start the query. `show` is called with the windows that changed in a batch, and the batch's
    number."""
    writer = counts(spark, watch).writeStream.outputMode("update").foreachBatch(show)
    if watch.checkpoint is not None:
        writer = writer.option("checkpointLocation", watch.checkpoint)
    if watch.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=watch.trigger).start()
