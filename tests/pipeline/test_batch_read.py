"""Batch reads, checked as Spark checks them, without Spark."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from horolog import NewRecord, blocking
from horolog.client.produce.producer import Compression
from horolog.pipeline.option_values import OptionError
from horolog.pipeline.planning import DataLoss
from horolog.protocol.errors import UnknownTopicOrPartition
from horolog.testing.broker import BrokerThread

from .sources import T0_MS, read, rows, sizes, source, validated

MakeTopic = Callable[..., str]


def at(time_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)


def test_every_column(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    producer.send_many(
        topic,
        [
            NewRecord(b"v", key=b"k", timestamp_ms=T0_MS),
            NewRecord(None, key=None, timestamp_ms=T0_MS + 1),
            NewRecord(b""),
        ],
        partition=1,
    )
    found = read(source(broker.address, subscribe=topic))
    common = {"topic": topic, "partition": 1}
    created, none = {"timestampType": 0, **common}, {"timestampType": -1, **common}
    assert found == [
        {"key": b"k", "value": b"v", "offset": 0, "timestamp": at(T0_MS), **created},
        {"key": None, "value": None, "offset": 1, "timestamp": at(T0_MS + 1), **created},
        {"key": None, "value": b"", "offset": 2, "timestamp": None, **none},
    ]
    alone = StructType([StructField("timestampType", IntegerType())])
    assert [
        row["timestampType"] for row in read(source(broker.address, subscribe=topic), alone)
    ] == [
        0,
        0,
        -1,
    ]


@pytest.mark.parametrize(
    "shown",
    [
        {"bootstrap.servers": "alice:correct-horse@127.0.0.1:1"},
        {"kafka.bootstrap.servers": "kafka://correct-horse@127.0.0.1:1"},
        {"bootstrap.servers": "127.0.0.1:1", "kafka.sasl.jaas.config": 'password="correct-horse"'},
        {"bootstrap.servers": "127.0.0.1:1", "ssl.keystore.password": "correct-horse"},
    ],
)
def test_a_secret_that_spark_would_show_is_refused_before_there_is_a_plan(
    shown: dict[str, str],
) -> None:
    """`load()` and `save()` make the data source before the plan that Spark's event log has."""
    with pytest.raises(OptionError) as refused:
        source(None, **shown)
    assert "horse" not in str(refused.value)


def test_append_times_and_headers_on_request(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer.send(topic, b"v", timestamp_ms=T0_MS)
    asked = source(broker.address, subscribe=topic, includeHeaders=True, includeAppendTime="TRUE")
    (row,) = read(asked)
    assert row["headers"] is None
    assert row["appendTime"] > row["timestamp"] == at(T0_MS)
    asked = source(broker.address, subscribe=topic, includeAppendTime=True)
    assert read(asked)[0]["appendTime"] == row["appendTime"]


def test_a_schema_is_a_projection(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer.send(topic, b"v", timestamp_ms=T0_MS)
    wanted = StructType(
        [StructField("timestamp", TimestampType()), StructField("value", BinaryType())]
    )
    assert read(source(broker.address, subscribe=topic), wanted) == [
        {"timestamp": at(T0_MS), "value": b"v"}
    ]


@pytest.mark.parametrize("settings", [{}, {"message.format.version": "0.11.0"}])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_each_column_by_itself_is_what_it_is_among_all(
    broker: BrokerThread, make_topic: MakeTopic, settings: dict[str, str], codec: Compression
) -> None:
    topic = make_topic(settings=settings)
    with blocking.Producer(broker.address, check_units=False, compression=codec) as producer:
        values = [b"v%d" % n if n % 3 else None for n in range(50)]
        keys = [b"k%d" % n if n % 5 else None for n in range(50)]
        times_ms = [T0_MS + 7 * n for n in range(50)]
        producer.send_batch(topic, values, keys=keys, timestamps_ms=times_ms)
    made = source(broker.address, subscribe=topic, includeAppendTime=True)
    rows = read(made)
    assert [(row["key"], row["value"]) for row in rows] == list(zip(keys, values, strict=True))
    for field in made.schema().fields:
        alone = read(made, StructType([field]))
        assert alone == [{field.name: row[field.name]} for row in rows]


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (StructField("vlaue", BinaryType()), "did you mean 'value'"),
        (StructField("Value", BinaryType()), "is spelled 'value'"),
        (StructField("value", StringType()), "'value' of .schema(...) is binary, not string"),
        (StructField("partition", LongType()), "is int, not bigint"),
    ],
)
def test_a_schema_that_cannot_be(broker: BrokerThread, field: StructField, told: str) -> None:
    with pytest.raises(OptionError) as refused:
        source(broker.address, subscribe="t").reader(StructType([field]))
    assert told in str(refused.value)


def test_a_time_range_is_exact_or_of_offsets(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    late = [0, 100, 200, 50, 300, 400, 150, 500]
    producer.send_batch(
        topic, [b"%d" % ms for ms in late], timestamps_ms=[T0_MS + ms for ms in late]
    )
    bounds = {"startingTimestamp": T0_MS + 100, "endingTimestamp": T0_MS + 300}

    def values(**options: object) -> list[bytes]:
        made = source(broker.address, subscribe=topic, **bounds, **options)
        return [row["value"] for row in read(made)]

    assert values() == [b"100", b"200", b"150"]
    assert values(timeRange="exact") == [b"100", b"200", b"150"]
    assert values(timeRange="offsets") == [b"100", b"200", b"50"]
    assert values(maxOutOfOrderness="50 ms") == [b"100", b"200"]
    assert values(maxOutOfOrderness="201 ms") == [b"100", b"200", b"150"]


def test_offsets_as_bounds(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        producer.send_batch(topic, [b"%d" % n for n in range(10)], partition=partition)
    made = source(
        broker.address,
        assign=f'{{"{topic}": [0, 1]}}',
        startingOffsets=f'{{"{topic}": {{"0": 3, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 5, "1": -1}}}}',
    )
    found = [(row["partition"], row["offset"]) for row in read(made)]
    assert found == [(0, 3), (0, 4), *((1, offset) for offset in range(10))]


def test_tasks_are_cut_smaller(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        producer.send_batch(topic, [b"v"] * 100, partition=partition)
    made = source(broker.address, subscribe=topic, maxRecordsPerPartition=30)
    reader = made.reader(made.schema())
    partitions = list(reader.partitions())
    assert sizes(partitions) == [25] * 8
    found = rows(reader, partitions, made.schema(), made)
    assert [(row["partition"], row["offset"]) for row in found] == [
        (partition, offset) for partition in (0, 1) for offset in range(100)
    ]


def test_compressed_and_large_sets(broker: BrokerThread, make_topic: MakeTopic) -> None:
    topic = make_topic()
    values = [b"%06d" % number * 20 for number in range(50_000)]
    with blocking.Producer(broker.address, compression="lz4") as producer:
        producer.send_batch(topic, values)
    made = source(broker.address, subscribe=topic)
    reader = made.reader(made.schema())
    found = [
        batch
        for partition in reader.partitions()
        for batch in validated(reader, partition, made.schema(), made)
    ]
    assert [value for batch in found for value in batch.column("value").to_pylist()] == values
    assert len(found) < 5


def test_an_empty_topic_and_no_topic(broker: BrokerThread, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    made = source(broker.address, subscribe=topic)
    assert list(made.reader(made.schema()).partitions()) == []
    assert list(made.reader(made.schema()).read(InputPartition(None))) == []
    made = source(broker.address, subscribePattern="nothing-.*")
    assert list(made.reader(made.schema()).partitions()) == []
    made = source(broker.address, subscribe=topic + "x")
    with pytest.raises(UnknownTopicOrPartition, match=f"did you mean '{topic}'"):
        made.reader(made.schema()).partitions()


def test_a_start_that_nobody_has_reached(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    producer.send(topic, b"v", timestamp_ms=T0_MS, partition=0)
    made = source(broker.address, subscribe=topic, startingTimestamp=T0_MS + 1)
    assert read(made) == []
    made = source(
        broker.address,
        subscribe=topic,
        startingTimestamp=T0_MS,
        startingOffsetsByTimestampStrategy="error",
    )
    with pytest.raises(OptionError, match=f"{topic}-1 has no message from the start time on"):
        read(made)


def test_messages_that_are_gone(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
) -> None:
    topic = make_topic()
    producer.send_batch(topic, [b"%d" % n for n in range(10)])
    made = source(broker.address, subscribe=topic)
    reader = made.reader(made.schema())
    partitions = list(reader.partitions())
    admin.delete_records(topic, 0, 4)
    with pytest.raises(DataLoss, match=f"{topic}-0 from offset 0 on .* offsets 4 to 10"):
        rows(reader, partitions, made.schema(), made)
    made = source(broker.address, subscribe=topic, failOnDataLoss=False)
    found = rows(made.reader(made.schema()), partitions, made.schema(), made)
    assert [row["offset"] for row in found] == [4, 5, 6, 7, 8, 9]


def test_a_restart_of_the_broker_is_waited_for(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data") as broker:
        with blocking.Producer(broker.address) as producer:
            producer.send_batch("t", [b"%d" % n for n in range(1000)])
        made = source(broker.address, subscribe="t")
        reader = made.reader(made.schema())
        partitions = list(reader.partitions())
        broker.restart()
        assert len(rows(reader, partitions, made.schema(), made)) == 1000
        broker.restart()
        again = source(broker.address, subscribe="t")
        assert len(list(again.reader(made.schema()).partitions())) == 1


def test_a_time_that_spark_cannot_hold(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer.send(topic, b"v", timestamp_ms=2**62)
    with pytest.raises(OptionError, match="Read without the column timestamp"):
        read(source(broker.address, subscribe=topic))


@pytest.mark.parametrize(
    "bounds",
    [
        {"startingTimestamp": T0_MS + 3, "endingOffsets": 1},
        {"startingOffsets": 3, "endingTimestamp": T0_MS + 1},
        {"startingOffsets": 4},
    ],
    ids=["by time and offset", "by offset and time", "at the end"],
)
def test_bounds_that_leave_nothing(
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    bounds: dict[str, Any],
) -> None:
    topic = make_topic()
    producer.send_batch(topic, [b"v"] * 4, timestamps_ms=[T0_MS + number for number in range(4)])
    given = {
        name: json.dumps({topic: {"0": value}}) if "Offsets" in name else value
        for name, value in bounds.items()
    }
    assert read(source(broker.address, subscribe=topic, **given)) == []


@pytest.mark.parametrize("end", [{}, {"endingOffsets": 20}], ids=["open", "further"])
def test_a_start_behind_the_end_of_the_log(
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    end: dict[str, int],
) -> None:
    topic = make_topic()
    producer.send_batch(topic, [b"v"] * 4)
    bounds = {"startingOffsets": 17, **end}
    given = {name: json.dumps({topic: {"0": offset}}) for name, offset in bounds.items()}
    with pytest.raises(DataLoss, match=f"{topic}-0 was to be read from offset 17 on.* ends at 4"):
        read(source(broker.address, subscribe=topic, **given))
    lenient = source(broker.address, subscribe=topic, failOnDataLoss=False, **given)
    assert read(lenient) == []


@pytest.mark.parametrize(("compression", "of_a_set"), [("none", 2), ("gzip", 40)])
def test_large_messages_come_in_batches_that_spark_can_hold(
    broker: BrokerThread, make_topic: MakeTopic, compression: Compression, of_a_set: int
) -> None:
    topic = make_topic()
    with blocking.Producer(broker.address, compression=compression) as sender:
        for _ in range(40 // of_a_set):
            sender.send_batch(topic, [bytes(450_000)] * of_a_set)
    made = source(broker.address, subscribe=topic)
    reader = made.reader(made.schema())
    (partition,) = reader.partitions()
    found = list(validated(reader, partition, made.schema(), made))
    assert sum(batch.num_rows for batch in found) == 40
    assert 4_000_000 < max(batch.nbytes for batch in found) <= 8 * 1024 * 1024
