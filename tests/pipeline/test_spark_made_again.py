"""Logs that change under a DataFrame and under a checkpoint, in a Spark of its own process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from horolog import blocking
from horolog.pipeline.jobs.dataframes import read_plans
from horolog.pipeline.jobs.ranges import plan_by_create_time
from horolog.testing.broker import BrokerThread

MakeTopic = Callable[..., str]


def batch(spark: SparkSession, broker: BrokerThread, **options: Any) -> DataFrame:
    given = {"bootstrap.servers": broker.address, **options}
    return spark.read.format("horolog").options(**given).load()


def numbers(rows: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in rows.select("value").collect())


def send(producer: blocking.Producer, topic: str, *numbers: int) -> None:
    producer.send_batch(topic, [b"%d" % number for number in numbers])


def copied(
    spark: SparkSession, broker: BrokerThread, folder: Path, **options: Any
) -> list[tuple[str, int]]:
    """What a stream read since it was stopped: topic and number of each message."""
    given = {"bootstrap.servers": broker.address, "startingOffsets": "earliest", **options}
    rows = spark.readStream.format("horolog").options(**given).load()
    found: list[tuple[str, int]] = []

    def take(part: DataFrame, _: int) -> None:
        found.extend((row.topic, int(row.value)) for row in part.collect())

    query = (
        rows.select("topic", "value")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(found)


@pytest.mark.parametrize("own_columns", [False, True], ids=["all columns", "own columns"])
def test_actions_of_one_load_read_the_same_rows_or_fail(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    own_columns: bool,
) -> None:
    """Spark asks a source nothing in `load()` when it need not ask for columns."""
    topic = make_topic()
    send(producer, topic, *range(10))
    reader = spark.read.format("horolog").option("bootstrap.servers", broker.address)
    if own_columns:
        reader = reader.schema("value binary")
    rows = reader.load(subscribe=topic)
    send(producer, topic, *range(10, 15))
    read = list(range(15 if own_columns else 10))
    assert numbers(rows) == read
    send(producer, topic, *range(15, 20))
    assert numbers(rows) == read
    assert rows.count() == len(read)
    kept = rows.cache()
    assert kept.count() == len(read)
    admin.delete_records(topic, 0, 4)
    assert numbers(kept) == read
    kept.unpersist()
    with pytest.raises(Exception, match=f"{topic}-0 from offset 0 on.*failOnDataLoss=false"):
        rows.count()


def test_what_is_trimmed_or_made_again_between_load_and_the_first_action(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
) -> None:
    trimmed, anew = make_topic(), make_topic()
    for topic in (trimmed, anew):
        send(producer, topic, *range(10))
    loaded = {
        (topic, strict): batch(spark, broker, subscribe=topic, failOnDataLoss=strict)
        for topic in (trimmed, anew)
        for strict in ("true", "false")
    }
    admin.delete_records(trimmed, 0, 4)
    admin.delete_topic(anew)
    admin.create_topic(anew)
    send(producer, anew, *range(100, 120))
    with pytest.raises(Exception, match=f"{trimmed}-0 from offset 0 on"):
        loaded[trimmed, "true"].count()
    with pytest.raises(Exception, match=f"topic {anew} was deleted and made again"):
        loaded[anew, "true"].count()
    assert numbers(loaded[trimmed, "false"]) == list(range(4, 10))
    assert numbers(loaded[anew, "false"]) == []
    assert numbers(batch(spark, broker, subscribe=anew)) == list(range(100, 120))


def test_a_job_reads_what_its_plan_is_of(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
) -> None:
    topic, other = make_topic(), make_topic()
    for name in (topic, other):
        send(producer, name, *range(10))
    plans = [plan_by_create_time(broker.address, name, None, None) for name in (topic, other)]
    assert read_plans(spark, plans).count() == 20
    admin.delete_topic(topic)
    admin.create_topic(topic)
    send(producer, topic, *range(50))
    with pytest.raises(Exception, match=f"topic {topic} was deleted and made again"):
        read_plans(spark, plans, "value binary").count()


def test_a_topic_made_again_under_a_stopped_stream(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    """Its log is longer than the one that the checkpoint knows, so offsets alone tell nothing."""
    topic, checkpoint = make_topic(), tmp_path / "checkpoint"
    send(producer, topic, *range(1000))
    assert len(copied(spark, broker, checkpoint, subscribe=topic)) == 1000
    admin.delete_topic(topic)
    admin.create_topic(topic)
    send(producer, topic, *range(5000, 6500))
    with pytest.raises(Exception, match=f"topic {topic} was deleted and made again"):
        copied(spark, broker, checkpoint, subscribe=topic)
    read = copied(spark, broker, checkpoint, subscribe=topic, failOnDataLoss="false")
    assert read == [(topic, number) for number in range(5000, 6500)]
    assert copied(spark, broker, checkpoint, subscribe=topic) == []
    send(producer, topic, 7000)
    assert copied(spark, broker, checkpoint, subscribe=topic) == [(topic, 7000)]


def test_a_stream_begun_again_without_a_topic_of_its_checkpoint(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    kept, left, checkpoint = make_topic(), make_topic(), tmp_path / "checkpoint"
    for topic in (kept, left):
        send(producer, topic, 1, 2)
    assert len(copied(spark, broker, checkpoint, subscribe=f"{kept},{left}")) == 4
    for topic in (kept, left):
        send(producer, topic, 3)
    assert copied(spark, broker, checkpoint, subscribe=kept) == [(kept, 3)]
    both = copied(spark, broker, checkpoint, subscribe=f"{kept},{left}")
    assert both == [(left, 1), (left, 2), (left, 3)]
    admin.delete_topic(left)
    with pytest.raises(Exception, match=f"{left}-0 was to be read from offset 3 on"):
        copied(spark, broker, checkpoint, subscribe=kept)


def test_a_checkpoint_of_an_older_version_goes_on(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    topic, checkpoint = make_topic(), tmp_path / "checkpoint"
    send(producer, topic, *range(10))
    assert len(copied(spark, broker, checkpoint, subscribe=topic)) == 10
    (stored,) = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()]
    lines = stored.read_text().splitlines()
    assert '"@ids"' in lines[-1]
    stored.write_text("\n".join([*lines[:-1], f'{{"{topic}": {{"0": 10}}}}']))
    (checkpoint / "offsets" / f".{stored.name}.crc").unlink(missing_ok=True)
    assert copied(spark, broker, checkpoint, subscribe=topic) == []
    send(producer, topic, 10, 11)
    assert copied(spark, broker, checkpoint, subscribe=topic) == [(topic, 10), (topic, 11)]
    admin.delete_topic(topic)
    admin.create_topic(topic)
    send(producer, topic, *range(50))
    with pytest.raises(Exception, match=f"topic {topic} was deleted and made again"):
        copied(spark, broker, checkpoint, subscribe=topic)
