"""A Spark stream goes on while its brokers fail, and has every message once."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from horolog.pipeline import session
from horolog.pipeline.java import NoJava, find_java
from horolog.testing.etcd import EtcdProcess
from horolog.tests.pipeline.sources import close_idle

from .brokers import TOPIC, Writer, cluster

pytestmark = [pytest.mark.elections, pytest.mark.timeout(600)]


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    try:
        find_java(os.environ)
    except NoJava as error:
        pytest.fail(str(error))
    conf = {"spark.ui.enabled": "false", "spark.sql.streaming.pollingDelay": "50ms"}
    started = session("elections", master="local[2,4]", conf=conf)
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()
    close_idle()


def test_a_stream_has_every_message_once(
    place: Path, etcd: EtcdProcess, spark: SparkSession
) -> None:
    with cluster(place, etcd, min_insync_replicas=2) as all_:
        all_.start()
        all_.program.ok("topic", "create", TOPIC, "--partitions", "2")
        options = {
            "bootstrap.servers": all_.addresses,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        rows = spark.readStream.format("horolog").options(**options).load()
        query = (
            rows.selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(place / "checkpoint"))
            .start(str(place / "copied"))
        )
        writer = Writer()
        for _ in range(2):
            leader = all_.in_sync()
            asyncio.run(writer.during(all_, leader.kill, more=200))
            leader.start()
        leader = all_.in_sync()
        other = 1 if leader.broker_id != 1 else 2
        promote = ("cluster", "promote", str(other))
        asyncio.run(writer.during(all_, lambda: leader.program.ok(*promote), more=200))
        all_.in_sync()
        query.processAllAvailable()
        query.stop()
        assert query.exception() is None
        copied = spark.read.parquet(str(place / "copied")).collect()
        found = [((row.partition, row.offset), row.value) for row in copied]
        assert len(found) == len(dict(found)), "something is there twice"
        assert dict(found) == all_.stored()
        writer.check(all_)
