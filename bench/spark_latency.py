"""From a producer through a stream of Spark and back into a topic: how long a message takes."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from .. import blocking
from .figure import Figure, quantile
from .raw_client import RefusedRequest

_PARTITIONS: Final = 2
_APART_S: Final = 0.01
_COLD_S: Final = 12
"""The first batches are not counted: Java compiles them."""
_SECONDS: Final = 12
_CHECKED: Final = 100
_TRIGGER: Final = "100 milliseconds"
_DEADLINE_S: Final = 60


def stream_latency(spark: SparkSession, server: str, checkpoint: Path) -> Iterator[Figure]:
    """From the create time of a message to its append time in the topic that a stream copies it
    to; 100 messages a second, a trigger every 100 ms."""
    with blocking.Admin(server) as admin:
        for name in ("live", "copied"):
            admin.create_topic(name, partitions=_PARTITIONS, settings={"retention.ms": "-1"})
    query = _copying(spark, server, checkpoint)
    try:
        sent, counted_from_ms = _send(server, query)
        latencies_ms = _latencies_ms(server, sent, counted_from_ms)
    finally:
        query.stop()
    for share, name in ((0.5, "spark_latency_p50"), (0.95, "spark_latency_p95")):
        yield Figure(name, quantile(latencies_ms, share) / 1000, "s")


def _copying(spark: SparkSession, server: str, checkpoint: Path) -> StreamingQuery:
    live = spark.readStream.format("horolog").option("bootstrap.servers", server)
    read = live.load(subscribe="live", startingOffsets="earliest")
    copied = read.select("value", "timestamp").writeStream.format("horolog")
    return (
        copied.option("bootstrap.servers", server)
        .option("topic", "copied")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=_TRIGGER)
        .start()
    )


def _send(server: str, query: StreamingQuery) -> tuple[int, int]:
    """How many messages were sent, and from which create time on they count."""
    sent, began = 0, time.monotonic()
    counted_from_ms = int((time.time() + _COLD_S) * 1000)
    with blocking.Producer(server, acks=1) as producer:
        while time.monotonic() < began + _COLD_S + _SECONDS:
            producer.enqueue("live", b"v" * 100, partition=sent % _PARTITIONS)
            sent += 1
            time.sleep(max(began + sent * _APART_S - time.monotonic(), 0))
            if sent % _CHECKED == 0 and not query.isActive:
                raise RefusedRequest(f"the stream ended: {query.exception()}")
    return sent, counted_from_ms


def _latencies_ms(server: str, sent: int, counted_from_ms: int) -> list[int]:
    """Of all messages that count. Raises Refused when not every message comes, once."""
    found: list[int] = []
    read, deadline = 0, time.monotonic() + _DEADLINE_S
    with blocking.Consumer(server, append_times=True) as consumer:
        for partition in range(_PARTITIONS):
            consumer.assign("copied", partition, offset=0)
        while read < sent and time.monotonic() < deadline:
            for batch in consumer.fetch_columns():
                read += batch.count
                assert batch.append_times_ms is not None
                times_ms = zip(batch.timestamps_ms, batch.append_times_ms, strict=True)
                found += [end - begin for begin, end in times_ms if begin >= counted_from_ms]
    if read != sent:
        raise RefusedRequest(f"{sent} messages were sent, and {read} came through the stream")
    return found
