"""Counting a topic as it grows: windows of event time, late messages bounded, copies left out."""

from collections.abc import Callable
from dataclasses import dataclass

from ...client.cluster.servers import Servers
from ..planning import AHEAD_MS
from ..spark_types import DataFrame, SparkSession, StreamingQuery
from .dataframes import identity_of


@dataclass(frozen=True, slots=True)
class Watch:
    """What to watch, and how."""

    server: str | Servers
    topic: str
    window: str = "1 minute"
    late: str = "5 minutes"
    """How far behind the latest create time messages still count."""
    identity: str | None = None
    """SQL expression that is equal for copies of a message; by default its key, time and value."""
    by: str | None = None
    """SQL expression to count by, beside the window."""
    slice: str | None = None
    """How much time a batch takes from each partition, for data that is there already; a length
    up to `late` keeps a partition that is read more slowly from being late. None is `late`."""
    checkpoint: str | None = None
    """Folder in which the query remembers where it was; None begins anew each time."""
    available_now: bool = False
    """Whether to end when what is there now is counted."""
    trigger: str = "1 second"
    start: str = "earliest"
    """Where to begin without a checkpoint: earliest, latest, or JSON of offsets."""


def counts(spark: SparkSession, watch: Watch) -> DataFrame:
    """A streaming DataFrame: `start`, `end` of the window, `value` of `by`, `count`, `latest`."""
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
    # The watermark follows the latest create time: one wrong clock would make all else late.
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
    """Begin; `show` gets the windows that changed in a batch, and the batch's number."""
    writer = counts(spark, watch).writeStream.outputMode("update").foreachBatch(show)
    if watch.checkpoint is not None:
        writer = writer.option("checkpointLocation", watch.checkpoint)
    if watch.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=watch.trigger).start()
