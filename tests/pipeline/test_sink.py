"""Writes as a task of Spark makes them, without Spark."""

import asyncio
from array import array
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from horolog import blocking
from horolog.client.results import ConsumerRecord
from horolog.pipeline.option_values import OptionError
from horolog.pipeline.options import WriteOptions, write_options
from horolog.pipeline.sending import ColumnRows, Row, Sending, producer_id
from horolog.protocol.errors import (
    DuplicateSequenceNumber,
    InvalidTimestamp,
    InvalidTopic,
    OutOfOrderSequenceNumber,
)
from horolog.protocol.partitioner import partition_of
from horolog.protocol.records.layout import NO_PRODUCER_ID
from horolog.testing.broker import BrokerThread
from horolog.testing.columns import binary_column

from .sources import T0_MS, carried, source

MakeTopic = Callable[..., str]


@pytest.fixture(scope="module")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """One that Kafka's clients can use too."""
    settings = {"retention.ms": -1, "kafka.listen": "127.0.0.1:0"}
    with BrokerThread(tmp_path_factory.mktemp("kafka") / "data", settings) as started:
        yield started


def stored(broker: BrokerThread, topic: str, partitions: int = 1) -> list[ConsumerRecord]:
    """Everything, by partition."""
    with blocking.Consumer(broker.address) as consumer:
        found = []
        for partition in range(partitions):
            consumer.assign(topic, partition)
        while batch := consumer.fetch(max_wait_ms=0):
            found += batch
    return sorted(found, key=lambda record: (record.partition, record.offset))


def options(broker: BrokerThread, **given: object) -> WriteOptions:
    texts = {name: str(value) for name, value in given.items()}
    return write_options(
        {"bootstrap.servers": broker.address, **texts}, overwrite=False, streaming=False
    )


def send(chosen: WriteOptions, rows: list[Row], who: Any = NO_PRODUCER_ID, task: int = 0) -> int:
    async def all_of_it() -> int:
        return await Sending(chosen, who, task).send([iter(rows)])

    return asyncio.run(all_of_it())


def test_every_column(broker: BrokerThread, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    schema = StructType(
        [
            StructField("value", StringType()),
            StructField("key", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("happened", TimestampType()),
            StructField("headers", ArrayType(header)),
        ]
    )
    made = source(broker.address, timestampColumn="happened")
    writer = carried(made.writer(schema, overwrite=False))
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "value": "ä",
                "key": b"k",
                "topic": topic,
                "partition": 2,
                "happened": T0_MS * 1000 + 999,
                "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
            },
            {"value": None, "key": b"k", "topic": topic, "happened": T0_MS * 1000},
        ],
        schema=pa.schema(
            [
                ("value", pa.string()),
                ("key", pa.binary()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("happened", pa.timestamp("us", tz="Europe/Paris")),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ]
        ),
    )
    assert carried(writer.write(iter([batch]))).rows == 2
    found = {record.value: record for record in stored(broker, topic, 3)}
    first, second = found["ä".encode()], found[None]
    assert (first.partition, first.key, first.timestamp_ms) == (2, b"k", T0_MS)
    assert first.headers == (("a", b"1"), ("b", None))
    assert second.partition == partition_of(b"k", 3)
    assert second.headers == ()


def test_a_task_without_rows(broker: BrokerThread, make_topic: MakeTopic) -> None:
    schema = StructType([StructField("value", BinaryType())])
    writer = source(broker.address, topic=make_topic()).writer(schema, overwrite=False)
    assert carried(writer.write(iter(()))).rows == 0


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_parts_of_columns(broker: BrokerThread, make_topic: MakeTopic, kind: pa.DataType) -> None:
    """A batch may be a part of another one, or empty: its columns then lie in larger buffers, or
    in none."""
    topic = make_topic()
    rows = [(b"k%d" % n if n % 3 else None, b"v%d" % n if n % 5 else None) for n in range(40)]
    keys, values = (pa.array(column, pa.binary()).cast(kind) for column in zip(*rows, strict=True))
    times = pa.array([T0_MS * 1000 + n * 1000 for n in range(40)], pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_arrays([keys, values, times], ["key", "value", "timestamp"])
    schema = StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("timestamp", TimestampType()),
        ]
    )
    writer = source(broker.address, topic=topic).writer(schema, overwrite=False)
    parts = [batch.slice(0, 0), batch.slice(3, 10), batch.slice(13, 0), batch.slice(13), batch[:0]]
    empty = pa.RecordBatch.from_arrays(
        [pa.array([], one.type) for one in batch], batch.schema.names
    )
    assert carried(writer.write(iter([*parts, empty]))).rows == 37
    found = [(one.key, one.value, one.timestamp_ms) for one in stored(broker, topic)]
    assert found == [(*row, T0_MS + n) for n, row in enumerate(rows)][3:]


@pytest.mark.parametrize("chosen", ["timestamp", "TimeStamp"])
def test_names_of_columns_in_any_case(
    broker: BrokerThread, make_topic: MakeTopic, chosen: str
) -> None:
    topic = make_topic()
    schema = StructType(
        [
            StructField("VALUE", StringType()),
            StructField("Key", StringType()),
            StructField("Timestamp", TimestampType()),
        ]
    )
    time_type = pa.timestamp("us", tz="UTC")
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["v"]), pa.array(["k"]), pa.array([T0_MS * 1000], time_type)], schema.names
    )
    for options in ({}, {"timestampColumn": chosen}):
        source(broker.address, topic=topic, **options).writer(schema, False).write(iter([batch]))
    found = [(one.key, one.value, one.timestamp_ms) for one in stored(broker, topic)]
    assert found == [(b"k", b"v", T0_MS)] * 2


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_headers_that_are_none(
    broker: BrokerThread, make_topic: MakeTopic, header: dict[str, Any] | None
) -> None:
    fields = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    schema = StructType(
        [StructField("value", BinaryType()), StructField("headers", ArrayType(fields))]
    )
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_arrays([pa.array([b"v"]), pa.array([[header]], kind)], schema.names)
    writer = source(broker.address, topic=make_topic()).writer(schema, overwrite=False)
    with pytest.raises(OptionError, match="includeHeaders=false"):
        writer.write(iter([batch]))


@pytest.mark.parametrize("stopped_after", [0, 1, 1_750, 9_999, 10_000])
def test_a_second_attempt_writes_what_the_first_did_not(
    broker: BrokerThread, make_topic: MakeTopic, stopped_after: int
) -> None:
    topic = make_topic(2)
    rows = [
        Row(topic, None, b"%d" % (number % 50), b"%0360d" % number, T0_MS + number)
        for number in range(10_000)
    ]
    who = producer_id("job/1", task=3)

    def until_it_fails() -> Iterator[Iterator[Row]]:
        yield iter(rows[:stopped_after])
        raise InterruptedError

    async def first_attempt() -> None:
        await Sending(options(broker), who, 3).send(until_it_fails())

    with pytest.raises(InterruptedError):
        asyncio.run(first_attempt())
    for _ in range(2):
        assert send(options(broker), rows, who, 3) == len(rows)
    found = stored(broker, topic, 2)
    assert sorted(record.value or b"" for record in found) == [row.value for row in rows]
    for partition in (0, 1):
        values = [record.value for record in found if record.partition == partition]
        assert values == sorted(values, key=lambda value: value or b"")


@pytest.mark.parametrize("key", [None, b"%d"])
@pytest.mark.parametrize(("kafka", "step"), [(False, 777), (True, 1000)], ids=["", "kafka"])
def test_an_attempt_that_ended_early_without_a_word(
    broker: BrokerThread, kafka_broker: BrokerThread, key: bytes | None, kafka: bool, step: int
) -> None:
    """As one does when what makes its rows fails: it gets some of Spark's batches, and the end.
    The last of them may be short, which Kafka can have only when it is not."""
    server = kafka_broker if kafka else broker
    topic = f"early{bool(key)}"
    with blocking.Admin(server.address) as admin:
        admin.create_topic(topic, partitions=3)
    rows = [
        Row(
            topic,
            None,
            key and key % (number % 50),
            b"%0500d" % number,
            T0_MS + number,
            (("number", b"%d" % number),),
        )
        for number in range(10_000)
    ]
    who = producer_id("job/1", task=2)
    address = f"kafka://{server.kafka_address}" if kafka else server.address
    chosen = write_options(
        {"bootstrap.servers": address, "compression": "lz4"}, overwrite=False, streaming=False
    )

    async def attempt(count: int) -> int:
        batches = [iter(rows[:count][first : first + 1000]) for first in range(0, count, 1000)]
        return await Sending(chosen, who, 2).send(batches)

    for count in (step, step * 7, step * 4, 10_000, 10_000):
        assert asyncio.run(attempt(count)) == count
    found = stored(server, topic, 3)
    assert sorted(one.value or b"" for one in found) == [row.value for row in rows]
    assert {(one.value, one.key, one.timestamp_ms, one.headers) for one in found} == {
        (row.value, row.key, row.timestamp_ms, row.headers) for row in rows
    }


def test_other_rows_than_those_of_the_first_attempt_are_told(kafka_broker: BrokerThread) -> None:
    with blocking.Admin(kafka_broker.address) as admin:
        admin.create_topic("others")
    rows = [Row("others", None, None, b"%d" % number, T0_MS) for number in range(5)]
    who = producer_id("job/1", task=0)
    chosen = write_options(
        {"bootstrap.servers": f"kafka://{kafka_broker.kafka_address}"},
        overwrite=False,
        streaming=False,
    )
    assert send(chosen, rows[:3], who) == 3
    with pytest.raises(OutOfOrderSequenceNumber, match="must have the same rows"):
        send(chosen, rows, who)


@pytest.mark.parametrize("kafka", [False, True])
def test_other_rows_under_the_same_numbers_are_told(
    kafka_broker: BrokerThread, kafka: bool
) -> None:
    """As of a stream that began again with an older checkpoint."""
    topic = f"older-{kafka}"
    with blocking.Admin(kafka_broker.address) as admin:
        admin.create_topic(topic)
    address = f"kafka://{kafka_broker.kafka_address}" if kafka else kafka_broker.address
    chosen = write_options({"bootstrap.servers": address}, overwrite=False, streaming=False)

    def rows(**changed: object) -> list[Row]:
        row = Row(topic, None, b"k", b"v", T0_MS, (("h", b"1"),))
        return [row, row._replace(**changed)]  # type: ignore[arg-type]

    batch_4, batch_5 = (producer_id("query/1", 0, batch) for batch in (4, 5))
    send(chosen, rows(), batch_4)
    send(chosen, rows(), batch_5)
    # The time is that of the attempt where rows have none.
    assert send(chosen, rows(timestamp_ms=T0_MS + 1), batch_4) == 2
    for other in ({"value": b"w"}, {"value": None}, {"key": None}, {"headers": ()}):
        with pytest.raises(DuplicateSequenceNumber, match=r"offset 1 .*checkpoint that is older"):
            send(chosen, rows(**other), batch_4)
    with pytest.raises(OutOfOrderSequenceNumber if kafka else DuplicateSequenceNumber):
        send(chosen, [*rows(value=b"w"), *rows()], batch_4)
    assert [record.value for record in stored(kafka_broker, topic)] == [b"v"] * 4
    # What is not there any more, all of the batch or its beginning, cannot be compared.
    with blocking.Admin(kafka_broker.address) as admin:
        admin.delete_records(topic, 0, before=3)
    assert send(chosen, rows(value=b"w"), batch_4) == 2
    assert send(chosen, rows(value=b"w"), batch_5) == 2
    assert [record.offset for record in stored(kafka_broker, topic)] == [3]


def test_without_idempotence_a_second_attempt_doubles(
    broker: BrokerThread, make_topic: MakeTopic
) -> None:
    rows = [Row(make_topic(), None, None, b"v", T0_MS)]
    for _ in range(2):
        send(options(broker, idempotent=False), rows)
    assert len(stored(broker, rows[0].topic)) == 2


def test_other_jobs_tasks_and_batches_are_others(
    broker: BrokerThread, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    others = [
        producer_id("query/1", 0, 0),
        producer_id("query/1", 0, 1),
        producer_id("query/1", 1, 0),
        producer_id("query/2", 0, 0),
    ]
    assert len(set(others)) == len(others)
    # The high bit of the two says whose id it is; no broker gives one out.
    assert all(who >> 62 == 1 for who in others)
    for number, who in enumerate(others):
        send(options(broker), [Row(topic, None, None, b"%d" % number, T0_MS)], who)
    assert [record.value for record in stored(broker, topic)] == [
        b"%d" % number for number in range(len(others))
    ]


def test_rows_without_a_key_spread(broker: BrokerThread, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    rows = [Row(topic, None, None, b"%0100000d" % number, T0_MS) for number in range(60)]
    send(options(broker, compression="lz4"), rows, task=2)
    found = stored(broker, topic, 4)
    assert {record.partition for record in found} == {0, 1, 2, 3}
    assert found[0].value != rows[0].value
    assert sorted(record.value or b"" for record in found) == [row.value for row in rows]


@pytest.mark.parametrize(
    ("partitioner", "wanted"),
    # CRC-32 of b"123456789" is 0xcbf43926, the check value of its definition.
    [
        ("murmur2", {partition_of(b"123456789", 5)}),
        ("crc32", {0xCBF43926 % 5}),
        ("none", {3}),
    ],
)
def test_partitioners(
    broker: BrokerThread, make_topic: MakeTopic, partitioner: str, wanted: set[int]
) -> None:
    topic = make_topic(5)
    rows = [Row(topic, None, b"123456789", b"%d" % number, T0_MS) for number in range(10)]
    chosen = options(broker, partitioner=partitioner)
    assert send(chosen, [*rows, Row(topic, 4, b"123456789", b"v", T0_MS)], task=3) == 11
    *found, last = stored(broker, topic, 5)
    assert {record.partition for record in found} == wanted
    assert (last.partition, last.value) == (4, b"v")


@pytest.mark.parametrize(
    ("partitions", "keyed", "partitioner"),
    [(3, False, "murmur2"), (3, True, "none"), (1, True, "murmur2"), (3, True, "murmur2")],
)
def test_columns_are_cut_as_rows_are(
    broker: BrokerThread, make_topic: MakeTopic, partitions: int, keyed: bool, partitioner: str
) -> None:
    """Every byte that is stored is the same, so is what a retry of a task is known by."""
    random = Random(11)
    sizes = [random.choice((0, 10, 100, 9_000)) for _ in range(3000)]
    sizes[500] = sizes[501] = 600_000
    values = [None if size == 10 else bytes([size % 251]) * size for size in sizes]
    keys = [b"%d" % random.randrange(9) if size else None for size in sizes] if keyed else None
    times_ms = [T0_MS + random.randrange(1000) for _ in sizes]
    contents = []
    for by_row in (True, False):
        topic = make_topic(partitions)
        columns = [
            ColumnRows(
                topic,
                binary_column(values[part]),
                binary_column(keys[part]) if keys else None,
                memoryview(array("q", times_ms[part])),
            )
            for part in (slice(0, 1200), slice(1200, None))
        ]

        async def send_all(by_row: bool, columns: list[ColumnRows]) -> int:
            chosen = options(broker, partitioner=partitioner)
            batches = [iter(rows) for rows in columns] if by_row else columns
            return await Sending(chosen, producer_id("w", 1), 1).send(batches)

        assert asyncio.run(send_all(by_row, columns)) == len(sizes)
        logs = [broker.data_dir / f"{topic}-{number}" for number in range(partitions)]
        contents.append([next(log.glob("*.log")).read_bytes() for log in logs])
    assert contents[0] == contents[1]
    assert sum(map(len, contents[0])) > sum(sizes)


def test_what_the_broker_refuses(broker: BrokerThread, make_topic: MakeTopic) -> None:
    topic = make_topic(settings={"max.message.time.difference.ms": "1000"})
    with pytest.raises(InvalidTimestamp):
        send(options(broker), [Row(topic, None, None, b"v", T0_MS)])


@pytest.mark.parametrize("kind", ["native", "kafka"])
@pytest.mark.parametrize("who", [NO_PRODUCER_ID, producer_id("job/window", 0)])
def test_nothing_is_written_to_a_window(kafka_broker: BrokerThread, kind: str, who: int) -> None:
    address = kafka_broker.address if kind == "native" else f"kafka://{kafka_broker.kafka_address}"
    chosen = write_options({"bootstrap.servers": address}, overwrite=False, streaming=False)
    send(chosen, [Row("clicks", None, None, b"v", T0_MS)])
    before = len(stored(kafka_broker, "clicks"))
    for name in (f"clicks..{T0_MS}..1h", f"clicks..{T0_MS}..append"):
        with pytest.raises(InvalidTopic, match="a window of clicks: read only"):
            send(chosen, [Row(name, None, None, b"v", T0_MS)], who)
    assert len(stored(kafka_broker, "clicks")) == before


@pytest.mark.parametrize(
    ("columns", "given", "told"),
    [
        ({"key": BinaryType()}, {"topic": "t"}, "a write needs a column value"),
        ({"value": BinaryType()}, {}, "name the topic"),
        ({"value": IntegerType()}, {"topic": "t"}, "'value' is int, and value is binary or string"),
        ({"value": BinaryType(), "timestamp": DateType()}, {"topic": "t"}, "'timestamp' is date"),
        ({"value": BinaryType(), "valeu": BinaryType()}, {"topic": "t"}, "did you mean 'value'"),
        ({"value": BinaryType()}, {"topic": "t", "timestampColumn": "x"}, "there are value"),
        ({"value": BinaryType(), "VALUE": BinaryType()}, {"topic": "t"}, "two columns are called"),
        ({"value": BinaryType()}, {"topic": " "}, "topic is empty"),
        ({"value": BinaryType()}, {"topics": "t"}, "did you mean 'topic'"),
        ({"value": BinaryType()}, {"topic": "t", "acks": "0"}, "it is all or -1 or 1"),
        ({"value": BinaryType()}, {"topic": "t", "jobId": "1", "idempotent": "false"}, "jobId"),
    ],
)
def test_a_write_that_cannot_be(
    broker: BrokerThread, columns: dict[str, Any], given: dict[str, str], told: str
) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    with pytest.raises(OptionError) as refused:
        source(broker.address, **given).writer(schema, overwrite=False)
    assert told in str(refused.value)


def test_a_topic_is_not_overwritten(broker: BrokerThread) -> None:
    schema = StructType([StructField("value", BinaryType())])
    with pytest.raises(OptionError, match='use mode\\("append"\\)'):
        source(broker.address, topic="t").writer(schema, overwrite=True)


def test_times_before_1970_and_none(broker: BrokerThread, make_topic: MakeTopic) -> None:
    topic = make_topic()
    schema = StructType(
        [StructField("value", BinaryType()), StructField("timestamp", TimestampType())]
    )
    arrow = pa.schema([("value", pa.binary()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    writer = source(broker.address, topic=topic).writer(schema, overwrite=False)

    def write(micros: int | None) -> None:
        row = {"value": b"v", "timestamp": micros}
        writer.write(iter([pa.RecordBatch.from_pylist([row], schema=arrow)]))

    with pytest.raises(OptionError, match="before 1970"):
        write(-1000)
    write(None)
    (record,) = stored(broker, topic)
    assert record.timestamp_ms is not None
    assert record.timestamp_ms > T0_MS
