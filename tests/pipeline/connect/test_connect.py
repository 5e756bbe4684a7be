"""Spark Connect, and Declarative Pipelines, which are run by it: the examples of docs/spark.md."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from horolog import blocking
from horolog.pipeline import publish_progress, register
from horolog.pipeline.option_values import OptionError
from horolog.testing.broker import BrokerThread
from horolog.tests.pages.shell import blocks

from ..test_progress import Ended, positions

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

MakeTopic = Callable[..., str]

PAGE = blocks("spark.md")
REMOTE = 'SparkSession.builder.remote("sc://spark.example:15002").getOrCreate()'
BROKER = "127.0.0.1:7070"


def test_the_page_publishes_the_progress_of_a_named_query(
    connected: "ConnectSession",
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    """What is read is written too, by a write that names no mode."""
    topic, copied = make_topic(2), make_topic()
    producer.send_batch(topic, [b"x"] * 50, partition=0)
    script = PAGE["connect.py"].replace(BROKER, broker.address)
    assert REMOTE in script
    exec(script.replace(REMOTE, "connected"), {"connected": connected})
    ended = Ended()
    connected.streams.addListener(ended)
    options = {"bootstrap.servers": broker.address}
    rows = connected.readStream.format("horolog").options(**options)
    writer = rows.load(subscribe=topic, startingOffsets="earliest").writeStream.format("noop")
    writer = writer.queryName("copy").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert ended.ended.wait(60)
    assert positions(broker.address, "billing", topic, 2) == [50, 0]
    batch = connected.read.format("horolog").options(**options).load(subscribe=topic)
    batch.select("value").write.format("horolog").options(**options, topic=copied).save()
    with blocking.Admin(broker.address) as admin:
        (end,) = admin.list_offsets(copied, 0, [-1])
    assert end.offset == 50


def test_progress_needs_names_where_options_cannot_be_seen(connected: "ConnectSession") -> None:
    with pytest.raises(OptionError, match=r"publish_progress\(spark, \{query_name: \(server, "):
        publish_progress(connected)
    wrong: Any = {"copy": "127.0.0.1:7070"}
    with pytest.raises(OptionError, match=r"'copy' needs a pair \(server, group\)"):
        publish_progress(connected, wrong)


@pytest.mark.parametrize("remote", [False, True], ids=["classic", "connect"])
def test_a_topic_becomes_no_table(
    spark: SparkSession, request: pytest.FixtureRequest, broker: BrokerThread, remote: bool
) -> None:
    """Spark would append to the topic, and leave a table that no query can read."""
    session: Any = request.getfixturevalue("connected") if remote else spark
    register(session)
    options = {"bootstrap.servers": broker.address, "topic": "dead"}
    rows = session.range(3).selectExpr("CAST(id AS STRING) AS value")
    stream = session.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    batch, streaming = rows.write.options(**options), stream.writeStream.options(**options)
    calls: list[Callable[[], object]] = [
        lambda: batch.format("horolog").saveAsTable("dead"),
        lambda: batch.saveAsTable(name="dead", format="Horolog", mode="append"),
        lambda: rows.writeTo("dead").using("horolog"),
        lambda: streaming.format("horolog").toTable("dead"),
        lambda: streaming.toTable(tableName="dead", format="horolog"),
    ]
    for call in calls:
        with pytest.raises(OptionError, match=r"no query can read it: use .*, which appends"):
            call()
    assert not spark.catalog.tableExists("dead")
    with blocking.Admin(broker.address) as admin:
        assert "dead" not in admin.list_topics()


def test_a_declarative_pipeline_reads_and_writes(
    connect_address: str,
    spark: SparkSession,
    broker: BrokerThread,
    admin: blocking.Admin,
    producer: blocking.Producer,
    tmp_path: Path,
) -> None:
    admin.create_topic("clicks", partitions=2)
    admin.create_topic("copied")
    producer.send_batch("clicks", [b"x"] * 30, partition=1)
    (tmp_path / "clicks.py").write_text(PAGE["clicks.py"].replace(BROKER, broker.address))
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: clicks\nstorage: file://{tmp_path}/storage\n"
        f"libraries:\n  - glob:\n      include: clicks.py\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pyspark.pipelines.cli", "run"],
            cwd=tmp_path,
            env={**os.environ, "SPARK_REMOTE": connect_address},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        (end,) = admin.list_offsets("copied", 0, [-1])
        assert end.offset == 30
    finally:
        spark.sql("DROP TABLE IF EXISTS clicks")
