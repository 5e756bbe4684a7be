"""Streams in a Spark of its own process: begun, stopped, killed and begun again."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, window
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming.query import StreamingQuery

from horolog import blocking
from horolog.testing.broker import BrokerThread
from horolog.testing.ports import free_port
from horolog.testing.program import serving

from .sources import T0_MS

MakeTopic = Callable[..., str]


def stream(spark: SparkSession, broker: BrokerThread, **options: Any) -> DataFrame:
    given = {"bootstrap.servers": broker.address, "startingOffsets": "earliest", **options}
    return spark.readStream.format("horolog").options(**given).load()


def into_topic(
    rows: DataFrame, broker: BrokerThread, topic: str, checkpoint: Path
) -> StreamingQuery:
    """Copy what is there, and end."""
    options = {
        "bootstrap.servers": broker.address,
        "topic": topic,
        "checkpointLocation": str(checkpoint),
    }
    columns = rows.select("key", "value", "timestamp")
    query = columns.writeStream.format("horolog").options(**options).trigger(availableNow=True)
    started = query.start()
    started.awaitTermination()
    return started


def values(address: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    found: list[bytes | None] = []
    with blocking.Consumer(address) as consumer:
        for partition in range(partitions):
            consumer.assign(topic, partition)
        while batch := consumer.fetch(max_wait_ms=0):
            found += [record.value for record in batch]
    return found


def test_stopped_killed_and_begun_again(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    source, sink = make_topic(2), make_topic(2)
    for partition in (0, 1):
        producer.send_batch(source, [b"%d" % n for n in range(1000)], partition=partition)
    rows = stream(spark, broker, subscribe=source, maxOffsetsPerTrigger=600)
    query = into_topic(rows, broker, sink, tmp_path / "checkpoint")
    assert [batch.numInputRows for batch in query.recentProgress] == [600, 600, 600, 200]
    assert len(values(broker.address, sink, 2)) == 2000
    # The process ended when the last batch was written, before Spark noted it down.
    (tmp_path / "checkpoint/commits/3").unlink()
    (tmp_path / "checkpoint/commits/.3.crc").unlink(missing_ok=True)
    producer.send_batch(source, [b"later"] * 10, partition=0)
    rows = stream(spark, broker, subscribe=source, maxOffsetsPerTrigger=5)
    query = into_topic(rows, broker, sink, tmp_path / "checkpoint")
    assert [batch.numInputRows for batch in query.recentProgress] == [200, 5, 5]
    written = values(broker.address, sink, 2)
    assert len(written) == 2010
    assert Counter(written) == Counter(values(broker.address, source, 2))


def test_a_window_by_its_name(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    """A batch, and a stream whose second run has the late message."""
    topic, sink = make_topic(2), make_topic()
    name = f"{topic}..{T0_MS}..1m"
    times = [T0_MS - 1, T0_MS, T0_MS + 60_000, T0_MS + 59_999]
    values_sent = [b"before", b"first", b"behind", b"last"]
    producer.send_batch(topic, values_sent, timestamps_ms=times, partition=1)
    batch = spark.read.format("horolog").options(**{"bootstrap.servers": broker.address})
    rows = batch.load(subscribe=name).select("topic", "value", "offset").collect()
    assert [(row.topic, bytes(row.value), row.offset) for row in rows] == [
        (name, b"first", 1),
        (name, b"last", 3),
    ]
    grown = stream(spark, broker, subscribe=name)
    into_topic(grown, broker, sink, tmp_path / "checkpoint")
    late = [(b"behind", T0_MS + 60_001), (b"late", T0_MS + 7)]
    for value, time_ms in late:
        producer.send(topic, value, timestamp_ms=time_ms, partition=0)
    into_topic(grown, broker, sink, tmp_path / "checkpoint")
    assert values(broker.address, sink) == [b"first", b"last", b"late"]


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}])
def test_a_wrong_option_is_told_in_the_error(
    spark: SparkSession, broker: BrokerThread, tmp_path: Path, trigger: Any
) -> None:
    rows = stream(spark, broker, subscribe="t", startingTimestamps="@-1h")
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException, match="did you mean 'startingTimestamp'") as told:
        writer.trigger(**trigger).start().awaitTermination()
    assert "UnboundLocalError" not in str(told.value)


def test_from_the_end_of_a_topic_that_grows(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    topic = make_topic(2)
    producer.send_batch(topic, [b"before"] * 10, partition=0)
    with growing(broker, topic) as sent:
        rows = stream(spark, broker, subscribe=topic, startingOffsets="latest")
        query = (
            rows.select("value")
            .writeStream.format("memory")
            .queryName("growing")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            while query.lastProgress is None or not query.lastProgress.numInputRows:
                assert query.exception() is None
                sent.wait(0.2)
        finally:
            query.stop()
    assert query.exception() is None
    found = spark.sql("select distinct value from growing").collect()
    assert [bytes(row.value) for row in found] == [b"during"]


@contextmanager
def growing(broker: BrokerThread, topic: str) -> Iterator[threading.Event]:
    """Somebody who sends without a pause."""
    stop = threading.Event()

    def send() -> None:
        with blocking.Producer(broker.address) as producer:
            while not stop.is_set():
                producer.send_batch(topic, [b"during"] * 20, partition=1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("limit", "complete"),
    [({"maxTimePerTrigger": "1 minute"}, True), ({"maxOffsetsPerTrigger": "1500"}, False)],
    ids=["by time", "by offsets"],
)
def test_a_replay_of_partitions_as_dense_as_they_like(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    tmp_path: Path,
    limit: dict[str, str],
    complete: bool,
) -> None:
    topic = make_topic(2)
    middle_ms, end_ms = T0_MS + 60_000, T0_MS + 240_000
    dense_first = [*range(T0_MS, middle_ms, 20), *range(middle_ms, end_ms, 1200)]
    dense_last = [T0_MS + end_ms - 1 - time_ms for time_ms in reversed(dense_first)]
    for partition, times in enumerate((dense_first, dense_last)):
        producer.send_batch(topic, [b"v"] * len(times), timestamps_ms=times, partition=partition)
    late = stream(spark, broker, subscribe=topic, **limit).withWatermark("timestamp", "1 minute")
    counted = late.groupBy("partition", window("timestamp", "20 seconds")).agg(
        count("*").alias("rows")
    )
    path, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    query = counted.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start(path).awaitTermination()
    # Windows that end before the last watermark are closed and written.
    closed_ms = T0_MS // 60_000 * 60_000 + 120_000
    closed = spark.read.parquet(path).where(f"window.end <= timestamp_millis({closed_ms})")
    summed = closed.groupBy("partition").agg(total("rows").alias("rows")).collect()
    kept = {row.partition: row.rows for row in summed}
    wanted = {
        partition: len([time_ms for time_ms in times if time_ms < closed_ms])
        for partition, times in enumerate((dense_first, dense_last))
    }
    assert (kept == wanted) is complete


def test_a_broker_that_is_killed_under_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    sent = [b"%d" % number for number in range(1500)]
    # No other process gets this port from the system while the broker is away.
    address = f"127.0.0.1:{free_port()}"
    with serving(data, "--listen", address) as killed:
        with blocking.Producer(address) as producer:
            producer.send_batch("from", sent)
        options = {"bootstrap.servers": address, "retryBudgetMs": "240000"}
        rows = spark.readStream.format("horolog").options(**options, maxOffsetsPerTrigger="100")
        query = (
            rows.load(subscribe="from", startingOffsets="earliest")
            .select("value")
            .writeStream.format("horolog")
            .options(**options, topic="to", checkpointLocation=str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            while len(query.recentProgress) < 3:
                assert query.exception() is None
                threading.Event().wait(0.1)
            killed.stop(signal.SIGKILL)
            with serving(data, "--listen", address):
                query.processAllAvailable()  # raises what ended the query
                assert values(address, "to") == sent
        finally:
            query.stop()
