"""Writes into topics whose limits are below the batches of the sink."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from horolog import MessageTooLarge, RecordListTooLarge, blocking
from horolog.pipeline.options import WriteOptions, write_options
from horolog.pipeline.sending import ColumnRows, Row, Sending, producer_id
from horolog.protocol.records.layout import NO_PRODUCER_ID
from horolog.testing.broker import BrokerThread
from horolog.testing.columns import binary_column

from .sources import T0_MS

LOW = {"segment.bytes": "200000"}
LOWER = {"segment.bytes": "30000", "max.message.bytes": "25000"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    settings = {"retention.ms": -1, "kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}
    with BrokerThread(tmp_path_factory.mktemp("limits") / "data", settings) as started:
        yield started


def options(broker: BrokerThread, kafka: bool = False, **given: str) -> WriteOptions:
    address = f"kafka://{broker.kafka_address}" if kafka else broker.address
    return write_options({"bootstrap.servers": address, **given}, overwrite=False, streaming=False)


def rows(topic: str, count: int, key: bytes | None = None) -> list[Row]:
    random = Random(1)
    return [
        Row(topic, None, key and key % (n % 50), b"%06d" % n + random.randbytes(300), T0_MS + n)
        for n in range(count)
    ]


def send(chosen: WriteOptions, batches: Any, who: int = NO_PRODUCER_ID, task: int = 0) -> int:
    async def all_of_it() -> int:
        return await Sending(chosen, who, task).send(batches)

    return asyncio.run(all_of_it())


def stored(broker: BrokerThread, topic: str, partitions: int) -> list[list[bytes]]:
    """Values of each partition."""
    with blocking.Consumer(broker.address) as consumer:
        found: list[list[bytes]] = [[] for _ in range(partitions)]
        for partition in range(partitions):
            consumer.assign(topic, partition)
        while batch := consumer.fetch(max_wait_ms=0):
            for record in batch:
                found[record.partition].append(record.value or b"")
    return found


def refused(broker: BrokerThread, topic: str) -> list[str]:
    """What says how many were refused for their size."""
    with urlopen(f"http://{broker.http_address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return [
        line
        for line in lines
        if line.startswith("horolog_rejected_messages_total")
        and f'topic="{topic}"' in line
        and "too_large" in line
    ]


@pytest.mark.parametrize("who", [NO_PRODUCER_ID, producer_id("job/1", 0)])
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("key", [None, b"%d"])
@pytest.mark.parametrize("kafka", [False, True], ids=["", "kafka"])
def test_every_row_once_and_in_order(
    broker: BrokerThread, kafka: bool, key: bytes | None, codec: str, who: int
) -> None:
    topic = f"low-{kafka}-{bool(key)}-{codec}-{who == NO_PRODUCER_ID}"
    with blocking.Admin(broker.address) as admin:
        admin.create_topic(topic, partitions=2, settings=LOW)
    sent = rows(topic, 6_000, key)
    chosen = options(broker, kafka, compression=codec)
    for _ in range(1 if who == NO_PRODUCER_ID else 2):
        assert send(chosen, [iter(sent)], who) == len(sent)
    found = stored(broker, topic, 2)
    assert sorted(found[0] + found[1]) == [row.value for row in sent]
    assert [sorted(values) for values in found] == found
    assert refused(broker, topic) == []


def test_columns(broker: BrokerThread) -> None:
    with blocking.Admin(broker.address) as admin:
        admin.create_topic("columns", settings=LOW)
    values = [row.value for row in rows("columns", 3_000)]
    times = memoryview(pa.array(range(T0_MS, T0_MS + 3_000), pa.int64()).buffers()[1]).cast("q")
    given = ColumnRows("columns", binary_column(values), None, times)
    assert send(options(broker), [given]) == 3_000
    assert stored(broker, "columns", 1) == [values]
    assert refused(broker, "columns") == []


def test_attempts_under_other_limits(broker: BrokerThread) -> None:
    """Which partition a row goes to, and its number there, do not depend on the limits."""
    with blocking.Admin(broker.address) as admin:
        admin.create_topic("attempts", partitions=3)
        sent = rows("attempts", 9_000)
        who = producer_id("job/2", 0)
        chosen = options(broker)
        for count, settings in (
            (4_000, LOW),
            (2_000, LOWER),
            (7_000, LOW),
            (9_000, {"segment.bytes": "1000000", "max.message.bytes": "1000000"}),
            (9_000, LOWER),
        ):
            assert send(chosen, [iter(sent[:count])], who) == count
            admin.alter_topic("attempts", settings)
    found = stored(broker, "attempts", 3)
    assert sorted(value for values in found for value in values) == [row.value for row in sent]
    assert [sorted(values) for values in found] == found


@pytest.mark.parametrize("who", [NO_PRODUCER_ID, producer_id("job/3", 0)])
@pytest.mark.parametrize("kafka", [False, True], ids=["", "kafka"])
def test_limits_that_are_lowered_while_it_writes(
    broker: BrokerThread, kafka: bool, who: int
) -> None:
    topic = f"lowered-{kafka}-{who == NO_PRODUCER_ID}"
    sent = rows(topic, 12_000)
    with blocking.Admin(broker.address) as admin:
        admin.create_topic(topic)

        def batches() -> Iterator[Iterator[Row]]:
            yield iter(sent[:6_000])
            admin.alter_topic(topic, LOWER)
            yield iter(sent[6_000:])

        assert send(options(broker, kafka), batches(), who) == len(sent)
    assert stored(broker, topic, 1) == [[row.value for row in sent]]


def test_a_row_that_is_too_large_is_the_only_one_refused(broker: BrokerThread) -> None:
    with blocking.Admin(broker.address) as admin:
        admin.create_topic("one", settings=LOWER)
    sent = rows("one", 100)
    sent[50] = sent[50]._replace(value=b"x" * 60_000)
    with pytest.raises((MessageTooLarge, RecordListTooLarge)):
        send(options(broker), [iter(sent)])
    assert Counter(refused(broker, "one")).total() == 1


def test_a_dataframe(broker: BrokerThread, spark: SparkSession) -> None:
    with blocking.Admin(broker.address) as admin:
        admin.create_topic("frame", partitions=2, settings=LOW)
    frame = spark.range(20_000).select(
        f.col("id").cast("string").alias("key"), f.repeat(f.lit("v"), 100).alias("value")
    )
    (
        frame.write.format("horolog")
        .mode("append")
        .option("bootstrap.servers", broker.address)
        .option("topic", "frame")
        .save()
    )
    assert sum(map(len, stored(broker, "frame", 2))) == 20_000
    assert refused(broker, "frame") == []
