"""Source, sink and jobs with a cluster of three real Kafka brokers: names of Spark and of the
commands stay, the address is another."""

import io
import itertools
import json
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from horolog import blocking
from horolog.bench.apache_kafka import ApacheKafka
from horolog.cli.main import run as run_command
from horolog.protocol.partitioner import partition_of
from horolog.testing.program import CommandResult

from .sources import T0_MS

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
T_MS = 1_479_132_000_000
"""2016-11-14T14:00:00Z"""

_NUMBERS = itertools.count()

MakeTopic = Callable[..., str]
Run = Callable[..., CommandResult]


@pytest.fixture
def make_topic(cluster: str) -> MakeTopic:
    """`make_topic(**settings)` is the name of a new one with three partitions, which each have
    another leader; underscores in settings stand for dots."""

    def make(**settings: str) -> str:
        name = f"spark-{next(_NUMBERS)}"
        given = {"retention.ms": "-1", **{key.replace("_", "."): settings[key] for key in settings}}
        with blocking.Admin(cluster) as admin:
            admin.create_topic(name, partitions=3, settings=given)
        return name

    return make


@pytest.fixture
def run(cluster: str, spark: SparkSession) -> Run:
    """`run(*arguments, code=0)` is `horolog pipeline ... --server kafka://...` on this Spark."""

    def run(*arguments: str | Path, code: int = 0) -> CommandResult:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            command = ["pipeline", *map(str, arguments), "--server", cluster]
            got = run_command(command)
        result = CommandResult(got, out.getvalue(), err.getvalue())
        assert result.code == code, result
        return result

    return run


def fill(cluster: str, topic: str, count: int) -> None:
    """A message each millisecond from T0_MS on, in turn to three partitions."""
    with blocking.Producer(cluster, linger_ms=5) as producer:
        for partition in range(3):
            numbers = range(partition, count, 3)
            producer.send_batch(
                topic,
                [b"%d" % number for number in numbers],
                keys=[b"key %d" % (number % 7) for number in numbers],
                timestamps_ms=[T0_MS + number for number in numbers],
                partition=partition,
            )


def read(spark: SparkSession, cluster: str, topic: str, **options: Any) -> list[Any]:
    given = {"bootstrap.servers": cluster, "subscribe": topic, **options}
    return spark.read.format("horolog").options(**given).load().collect()


def numbers(rows: list[Any]) -> list[int]:
    return sorted(int(row.value) for row in rows)


def test_a_batch_between_two_times(
    spark: SparkSession, cluster: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(cluster, topic, 3000)
    with blocking.Producer(cluster) as producer:
        producer.send(topic, b"1500", timestamp_ms=T0_MS + 1500, partition=0)  # late
    wanted = {"startingTimestamp": T0_MS + 1000, "endingTimestamp": T0_MS + 2000}
    rows = read(spark, cluster, topic, **wanted)
    assert numbers(rows) == sorted([*range(1000, 2000), 1500])
    assert {row.partition for row in rows} == {0, 1, 2}
    by_offsets = read(spark, cluster, topic, timeRange="offsets", **wanted)
    assert numbers(by_offsets) == list(range(1000, 2000))
    ends = json.dumps({topic: {"0": 5, "1": 0, "2": 0}})
    (row, *_) = read(spark, cluster, topic, endingOffsets=ends, includeHeaders="true")
    assert (bytes(row.key), row.offset, row.timestampType, row.headers) == (b"key 0", 0, 0, None)


def test_a_window_by_its_name_is_offered_by_its_times(
    spark: SparkSession, cluster: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(cluster, topic, 30)
    name = f"{topic}..{T0_MS + 10}..{T0_MS + 20}"
    with pytest.raises(Exception, match="only Horolog serves a window") as refused:
        read(spark, cluster, name)
    times = {"startingTimestamp": T0_MS + 10, "endingTimestamp": T0_MS + 20}
    for option, value in {"subscribe": topic, **times}.items():
        assert f"{option}={value}" in str(refused.value)
    assert numbers(read(spark, cluster, topic, **times)) == list(range(10, 20))


@pytest.mark.soak
def test_a_stream_from_topic_to_topic_while_a_broker_is_away(
    spark: SparkSession,
    apache: ApacheKafka,
    cluster: str,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    source, sink = make_topic(), make_topic()
    fill(cluster, source, 900)

    def copied() -> list[int]:
        """Batches of the stream, until it has written what is there now."""
        rows = spark.readStream.format("horolog").options(
            **{
                "bootstrap.servers": cluster,
                "subscribe": source,
                "startingOffsets": "earliest",
                "maxTimePerTrigger": "500",
            }
        )
        options = {
            "bootstrap.servers": cluster,
            "topic": sink,
            "checkpointLocation": str(tmp_path / "checkpoint"),
        }
        query = rows.load().select("key", "value", "timestamp", "partition").writeStream
        started = query.format("horolog").options(**options).trigger(availableNow=True).start()
        started.awaitTermination()
        return [batch.numInputRows for batch in started.recentProgress if batch.numInputRows]

    first = copied()
    assert sum(first) == 900
    assert len(first) == 2
    # The process ended when the last batch was written, before Spark noted it down.
    last = str(len(first) - 1)
    (tmp_path / "checkpoint/commits" / last).unlink()
    (tmp_path / "checkpoint/commits" / f".{last}.crc").unlink(missing_ok=True)
    apache.brokers[2].stop()  # leads a partition of each topic
    try:
        again = copied()
        assert again == first[-1:]
        rows = read(spark, cluster, sink)
        assert numbers(rows) == list(range(900))
    finally:
        apache.brokers[2].start()
    times = {int(row.value): row.timestamp.timestamp() for row in rows}
    assert all(round(times[number] * 1000) == T0_MS + number for number in times)


def test_rows_are_loaded_once_and_replayed(
    spark: SparkSession, cluster: str, make_topic: MakeTopic, run: Run, tmp_path: Path
) -> None:
    topic = make_topic()
    lines = [f"user {n % 5},{T_MS + n * MINUTE_MS},{n}" for n in range(120)]
    (tmp_path / "old.csv").write_text("\n".join(["user,at,n", *lines]) + "\n")
    columns = ("--key", "user", "--value", "n", "--timestamp", "at")
    load = ("bootstrap", tmp_path / "old.csv", "--format", "csv", "--topic", topic, *columns)
    assert run(*load, "--job-id", "once").out.endswith(f"120 messages were appended to {topic}\n")
    again = run(*load, "--job-id", "once")
    assert again.out.endswith(f"0 messages were appended to {topic}\n")
    assert "120 rows were there already" in again.err
    found = read(spark, cluster, topic)
    assert Counter(row.partition for row in found) == Counter(
        partition_of(b"user %d" % (n % 5), 3) for n in range(120)
    )
    hours = ("--from", "2016-11-14T14:00:00Z", "--to", "2016-11-14T15:00:00Z")
    done = run("replay", topic, *hours, "--out", tmp_path / "files")
    assert "60 of 120 messages are of these times" in done.out
    stored = spark.read.parquet(str(tmp_path / "files"))
    assert numbers(stored.collect()) == list(range(60))
    early = make_topic(retention_ms="3600000")
    refused = run(*load[:4], "--topic", early, *columns, code=1)
    assert "are older than retention.ms=3600000" in refused.err


@pytest.mark.parametrize("as_bytes", [False, True], ids=["text", "8 bytes"])
def test_latency_from_a_header(
    spark: SparkSession, cluster: str, make_topic: MakeTopic, run: Run, as_bytes: bool
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    with blocking.Producer(cluster) as producer:
        latencies_ms = []
        for late_ms in (1000, 60_000, -60_000):
            sent = producer.send(topic, b"without", partition=0)
            assert sent.timestamp_ms is not None
            created_ms = sent.timestamp_ms - late_ms
            value = created_ms.to_bytes(8) if as_bytes else b"%d" % created_ms
            later = producer.send(topic, b"with", headers=[("created", value)], partition=1)
            assert later.timestamp_ms is not None
            latencies_ms.append(later.timestamp_ms - created_ms)
    *_, whole = run("latency", topic, "--created-in", "created", "--json").objects
    assert (whole["measured"], whole["unknown"], whole["skewed"]) == (3, 3, 1)
    assert whole["max_latency_ms"] == max(latencies_ms)
    none = run(
        "latency", topic, "--created-in", "created", "--from", "2100-01-01T00:00:00Z", code=1
    )
    assert "no message was appended in these times" in none.err
    assert "--created-in" in run("latency", topic, code=1).err


@pytest.mark.soak
def test_lag_watch_and_failover_within_a_cluster(
    spark: SparkSession, cluster: str, make_topic: MakeTopic, run: Run
) -> None:
    topic = make_topic()
    fill(cluster, topic, 300)
    name = f"job-of-{topic}"
    with blocking.Admin(cluster) as admin:
        for partition in range(3):
            admin.commit_position(name, topic, partition, 60)
    lags = run("lag", name, "--json").objects
    assert [(row["partition"], row["lag"]) for row in lags] == [(0, 40), (1, 40), (2, 40)]
    watched = run("watch", topic, "--window", "1h", "--available-now", "--json").objects
    assert [row["count"] for row in watched if "count" in row] == [300]
    moved = ("failover", topic, "--max-latency", "50ms", "--name", name, "--from-server", cluster)
    done = run(*moved, "--check").out.splitlines()
    assert done[-1] == "0 missed, 53 come twice"
