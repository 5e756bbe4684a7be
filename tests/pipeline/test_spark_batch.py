"""Batch reads and writes in a Spark of its own process."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, udf

from horolog import blocking
from horolog.cli.pipeline.spark import spark_session
from horolog.pipeline import session
from horolog.testing.broker import BrokerThread
from horolog.testing.waiting import wait_until

from .sources import T0_MS

MakeTopic = Callable[..., str]


def load(spark: SparkSession, broker: BrokerThread, **options: Any) -> DataFrame:
    given = {"bootstrap.servers": broker.address, **options}
    return spark.read.format("horolog").options(**given).load()


def test_the_workers_are_this_python(spark: SparkSession) -> None:
    (row,) = (
        spark.range(1)
        .select(udf(lambda: sys.executable, useArrow=False)().alias("python"))
        .collect()
    )
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.path.normpath(row.python) == os.path.normpath(sys.executable)


def test_a_session_that_runs_is_left_as_it_is(spark: SparkSession) -> None:
    chosen = {"spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.shuffle.partitions": "3"}
    before = {name: spark.conf.get(name) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        assert session(master="local[7]") is spark
        with spark_session("local[7]", None) as used:
            assert used is spark
        assert {name: spark.conf.get(name) for name in chosen} == chosen
        session(conf={"spark.sql.shuffle.partitions": "5"})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
    finally:
        for name, was in before.items():
            assert was is not None
            spark.conf.set(name, was)


def test_workers_that_have_read_are_settled(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
) -> None:
    topic = make_topic(4)
    producer.send_batch(topic, [b"v"] * 40, timestamps_ms=[T0_MS] * 40)
    assert load(spark, broker, subscribe=topic).count() == 40
    frozen = udf(lambda _: __import__("gc").get_freeze_count(), "long", useArrow=False)
    counts = spark.range(8, numPartitions=8).select(frozen("id").alias("count")).collect()
    assert max(row["count"] for row in counts) > 1000


def test_rows_counted_filtered_and_counted_again(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
) -> None:
    topic = make_topic(4)
    for partition in range(4):
        times = [T0_MS + number for number in range(10)]
        producer.send_batch(topic, [b"v"] * 10, timestamps_ms=times, partition=partition)
    found = load(spark, broker, subscribe=topic, startingTimestamp=T0_MS + 2)
    assert found.where("partition = 1").count() == 8
    assert found.count() == 32
    union = found.where("partition = 1").union(found.where("partition = 2"))
    assert {
        row.partition: row["count"] for row in union.groupBy("partition").count().collect()
    } == {
        1: 8,
        2: 8,
    }
    # The plan is that of the load, whatever comes later.
    producer.send_batch(topic, [b"v"] * 10, partition=0)
    assert found.count() == 32


def test_found_without_being_registered(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
) -> None:
    topic = make_topic()
    producer.send(topic, b"v", timestamp_ms=T0_MS)
    other = spark.newSession()
    found = other.read.format("horolog").schema("timestamp timestamp, value binary")
    (row,) = found.options(**{"bootstrap.servers": broker.address}).load(subscribe=topic).collect()
    assert (bytes(row.value), row.timestamp.timestamp() * 1000) == (b"v", T0_MS)


def test_a_mistyped_option_is_told_in_the_error(spark: SparkSession, broker: BrokerThread) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'startingTimestamp'"):
        load(spark, broker, subscribe="t", startingTimestamps=1).collect()


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_task_that_fails_writes_nothing_twice(
    spark: SparkSession, broker: BrokerThread, make_topic: MakeTopic, idempotent: bool
) -> None:
    topic, address = make_topic(2), broker.address

    def has_some() -> bool:
        with blocking.Admin(address) as admin:
            ends = [admin.list_offsets(topic, partition, [-1])[0] for partition in range(2)]
        return any(end.offset for end in ends)

    def value(number: int) -> bytes:
        context = TaskContext.get()
        if number % 3_000 == 2_999 and context is not None and context.attemptNumber() < 2:
            wait_until(has_some)
            raise InterruptedError("this attempt is to fail")
        return b"%01000d" % number

    rows = spark.range(0, 6_000, 1, 2).select(
        udf(value, "binary", useArrow=False)("id").alias("value")
    )
    options = {"bootstrap.servers": broker.address, "topic": topic, "idempotent": str(idempotent)}
    # So the sink has most rows, and sends them, before the last one fails.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
    try:
        rows.write.format("horolog").options(**options).mode("append").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    values = load(spark, broker, subscribe=topic).select("value")
    assert values.distinct().count() == 6_000
    assert (values.count() == 6_000) is idempotent


@pytest.mark.parametrize("mode", [None, "append", "error", "errorifexists", "default"])
def test_a_write_appends_as_one_to_kafka_does(
    spark: SparkSession, broker: BrokerThread, make_topic: MakeTopic, mode: str | None
) -> None:
    topic = make_topic()
    rows = spark.range(3).select(col("id").cast("string").alias("value"))
    options = {"bootstrap.servers": broker.address, "topic": topic}
    rows.write.format("horolog").options(**options).mode(mode).save()
    rows.write.mode(mode).save(format="HOROLOG", **options)
    rows.write.options(**options).save(format="horolog", mode=mode)
    assert load(spark, broker, subscribe=topic).count() == 9


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_a_write_does_nothing_else(
    spark: SparkSession, broker: BrokerThread, make_topic: MakeTopic, mode: str
) -> None:
    topic = make_topic()
    rows = spark.range(3).select(col("id").cast("string").alias("value"))
    options = {"bootstrap.servers": broker.address, "topic": topic}
    with pytest.raises(AnalysisException, match=r"(?i)append"):
        rows.write.format("horolog").options(**options).save(mode=mode)
    assert load(spark, broker, subscribe=topic).count() == 0


def test_other_formats_keep_the_default_mode(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(3).select("id", col("id").alias("day"))
    rows.write.save(str(tmp_path / "a"), "parquet", partitionBy="day", compression="gzip")
    with pytest.raises(AnalysisException, match="PATH_ALREADY_EXISTS"):
        rows.write.format("parquet").save(str(tmp_path / "a"))
    assert spark.read.parquet(str(tmp_path / "a")).count() == 3


def test_times_and_keys_go_through_a_topic_unchanged(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
) -> None:
    first, second = make_topic(3), make_topic(3)
    keys = [b"%d" % (number % 7) for number in range(500)]
    times = [T0_MS + number * 3 for number in range(500)]
    producer.send_batch(first, keys, keys=keys, timestamps_ms=times)
    copied = load(spark, broker, subscribe=first, includeHeaders=True)
    chosen = copied.select("key", "value", "timestamp", "headers")
    options = {"bootstrap.servers": broker.address, "topic": second, "jobId": "copy"}
    for _ in range(2):
        chosen.write.format("horolog").options(**options).mode("append").save()

    def content(topic: str) -> list[Any]:
        columns = ("partition", "key", "value", col("timestamp").cast("double"))
        return sorted(load(spark, broker, subscribe=topic).select(*columns).collect())

    assert content(second) == content(first)
