"""A topic that is deleted and made again has other messages under the same offsets."""

import json
import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from horolog import blocking
from horolog.pipeline.planning import DataLoss
from horolog.pipeline.source import HorologDataSource, StreamReader
from horolog.testing.broker import BrokerThread

from .sources import T0_MS, carried, plain, rows, source

MakeTopic = Callable[..., str]


def stream(address: str, **options: object) -> tuple[HorologDataSource, StreamReader]:
    given = {"startingOffsets": "earliest", "idleWaitMs": 0, **options}
    made = source(address, **given)
    return made, carried(made.streamReader(made.schema()))


def fill(producer: blocking.Producer, topic: str, count: int, value: bytes = b"v") -> None:
    producer.send_batch(topic, [value] * count)


def make_again(
    admin: blocking.Admin, producer: blocking.Producer, topic: str, count: int, partitions: int = 1
) -> None:
    admin.delete_topic(topic)
    admin.create_topic(topic, partitions=partitions, settings={"retention.ms": "-1"})
    fill(producer, topic, count, b"new")


def values(made: HorologDataSource, reader: StreamReader, start: Any, end: Any) -> list[bytes]:
    """What a micro-batch reads."""
    found = rows(reader, carried(list(reader.partitions(start, end))), made.schema(), made)
    return [row["value"] for row in found]


limits = pytest.mark.parametrize(
    "limit",
    [{}, {"maxTimePerTrigger": "1 hour"}, {"maxOffsetsPerTrigger": 1000}],
    ids=["all", "by time", "by offsets"],
)


@limits
@pytest.mark.parametrize("count", [5, 10, 25], ids=["shorter", "as long", "longer"])
def test_a_stream_notices_however_long_the_new_one_is(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    count: int,
    limit: dict[str, Any],
) -> None:
    topic = make_topic()
    fill(producer, topic, 10)
    _, reader = stream(broker.address, subscribe=topic, **limit)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert plain(end) == {topic: {"0": 10}}
    first = admin.describe_topic(topic).topic_id
    make_again(admin, producer, topic, count)
    second = admin.describe_topic(topic).topic_id
    _, restarted = stream(broker.address, subscribe=topic, **limit)
    with pytest.raises(DataLoss) as raised:
        restarted.latestOffset(carried(end), restarted.getDefaultReadLimit())
    assert f"topic {topic} was deleted and made again" in str(raised.value)
    assert f"its id is {second}, and the offsets are of {first}" in str(raised.value)
    assert "failOnDataLoss=false" in str(raised.value)


@limits
def test_without_failing_the_new_topic_is_read_from_its_beginning(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
    limit: dict[str, Any],
) -> None:
    topic, other = make_topic(), make_topic()
    fill(producer, topic, 10)
    fill(producer, other, 4)
    options = {"subscribe": f"{topic},{other}", "failOnDataLoss": False, **limit}
    made, reader = stream(broker.address, **options)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    make_again(admin, producer, topic, 25, partitions=2)
    _, reader = stream(broker.address, **options)
    with caplog.at_level(logging.WARNING):
        after = reader.latestOffset(end, reader.getDefaultReadLimit())
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == after
    told = [one for one in caplog.messages if f"topic {topic} was deleted and made again" in one]
    assert len(told) == 1
    assert plain(after) == {topic: {"0": 25, "1": 0}, other: {"0": 4}}
    assert values(made, reader, end, after) == [b"new"] * 25
    assert reader.latestOffset(after, reader.getDefaultReadLimit()) == after
    strict, _ = stream(broker.address, **options | {"failOnDataLoss": True})
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and made again"):
        strict.streamReader(made.schema()).partitions(end, after)


@pytest.mark.parametrize("strict", [True, False])
def test_a_micro_batch_that_was_planned_before(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    strict: bool,
) -> None:
    topic = make_topic()
    fill(producer, topic, 10)
    made, reader = stream(broker.address, subscribe=topic, failOnDataLoss=strict)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    make_again(admin, producer, topic, 25)
    if strict:
        with pytest.raises(DataLoss, match=f"topic {topic} was deleted and made again"):
            values(made, reader, start, end)
    else:
        assert values(made, reader, start, end) == []


@pytest.mark.parametrize("strict", [True, False])
def test_a_batch_that_was_planned_before(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    strict: bool,
) -> None:
    topic = make_topic()
    fill(producer, topic, 10)
    made = source(broker.address, subscribe=topic, failOnDataLoss=strict)
    reader = made.reader(made.schema())
    planned = carried(list(reader.partitions()))
    make_again(admin, producer, topic, 25)
    if strict:
        with pytest.raises(DataLoss, match=f"topic {topic} was deleted and made again"):
            rows(reader, planned, made.schema(), made)
    else:
        assert rows(reader, planned, made.schema(), made) == []


def test_a_topic_that_is_made_again_while_it_is_read(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
) -> None:
    """The rows of the new one must not pass for those of the old one."""
    topic = make_topic()
    for _ in range(4):
        producer.send_batch(topic, [bytes(900_000)] * 8)
    made = source(broker.address, subscribe=topic)
    reader = made.reader(made.schema())
    (planned,) = reader.partitions()
    reading = reader.read(planned)
    next(reading)
    admin.delete_topic(topic)
    admin.create_topic(topic, settings={"retention.ms": "-1"})
    producer.send_batch(topic, [b"new"] * 40)
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and made again"):
        list(reading)


def test_a_checkpoint_without_ids_is_believed_once(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
) -> None:
    topic = make_topic()
    fill(producer, topic, 10)
    old: Any = {topic: {"0": 10}}
    made, reader = stream(broker.address, subscribe=topic)
    # Spark would take another text for a new batch, and there is nothing in it.
    assert reader.latestOffset(old, ReadAllAvailable()) == old
    fill(producer, topic, 5)
    end = reader.latestOffset(old, ReadAllAvailable())
    assert plain(end) == {topic: {"0": 15}}
    assert end != plain(end)
    assert values(made, reader, old, end) == [b"v"] * 5
    make_again(admin, producer, topic, 25)
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and made again"):
        reader.latestOffset(end, ReadAllAvailable())


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_available_now_when_it_is_made_again_meanwhile(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    strict: bool,
) -> None:
    topic = make_topic()
    fill(producer, topic, 25)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 10, "failOnDataLoss": strict}
    made, reader = stream(broker.address, **options)
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    make_again(admin, producer, topic, 12)
    if strict:
        with pytest.raises(DataLoss, match=f"topic {topic} was deleted and made again"):
            reader.latestOffset(first, limit)
        return
    reached: list[Any] = [first]
    while (end := reader.latestOffset(reached[-1], limit)) != reached[-1]:
        assert len(reached) < 5, "it must end"
        reached.append(end)
        fill(producer, topic, 3, b"later")
    read = [value for start, end in pairwise(reached) for value in values(made, reader, start, end)]
    assert read == [b"new"] * 12


def test_another_broker_with_such_a_topic_is_another_log(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    fill(producer, topic, 10)
    _, reader = stream(broker.address, subscribe=topic)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with BrokerThread(tmp_path / "data") as other:
        with blocking.Producer(other.address) as there:
            fill(there, topic, 25)
        _, elsewhere = stream(other.address, subscribe=topic)
        with pytest.raises(DataLoss, match=f"topic {topic} .* of cluster [\\w-]+, and .* cluster"):
            elsewhere.latestOffset(end, ReadAllAvailable())


def test_clusters_are_compared_where_topics_have_no_ids(tmp_path: Path) -> None:
    settings = {"retention.ms": -1, "kafka.listen": "127.0.0.1:0"}
    with (
        BrokerThread(tmp_path / "a", settings) as one,
        BrokerThread(tmp_path / "b", settings) as two,
    ):
        for each in (one, two):
            with blocking.Producer(each.address) as producer:
                producer.send_batch("t", [b"v"] * 10)
        _, reader = stream(f"kafka://{one.kafka_address}", subscribe="t")
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        with blocking.Producer(one.address) as producer:
            producer.send_batch("t", [b"v"] * 5)
        assert plain(reader.latestOffset(end, ReadAllAvailable())) == {"t": {"0": 15}}
        _, elsewhere = stream(f"kafka://{two.kafka_address}", subscribe="t")
        with pytest.raises(DataLoss, match=r"topic t .* of cluster"):
            elsewhere.latestOffset(end, ReadAllAvailable())
        # The same broker through its own protocol: the cluster is compared, the id learned.
        _, native = stream(one.address, subscribe="t")
        known = native.latestOffset(end, ReadAllAvailable())
        assert plain(known) == {"t": {"0": 15}}
        with blocking.Admin(one.address) as admin:
            admin.delete_topic("t")
            admin.create_topic("t")
        with pytest.raises(DataLoss, match="deleted and made again"):
            native.latestOffset(known, ReadAllAvailable())


def test_ids_outlast_batches_through_kafka_s_protocol(tmp_path: Path) -> None:
    """An id that was known is compared when ids are told again."""
    settings = {"retention.ms": -1, "kafka.listen": "127.0.0.1:0"}
    with BrokerThread(tmp_path / "data", settings) as broker, blocking.Admin(broker.address) as own:
        with blocking.Producer(broker.address) as producer:
            producer.send_batch("t", [b"v"] * 10)
            _, native = stream(broker.address, subscribe="t")
            end = native.latestOffset(native.initialOffset(), ReadAllAvailable())
            own.delete_topic("t")
            own.create_topic("t")
            producer.send_batch("t", [b"new"] * 25)
        _, through = stream(f"kafka://{broker.kafka_address}", subscribe="t")
        after = through.latestOffset(end, ReadAllAvailable())
        assert plain(after) == {"t": {"0": 25}}
        with pytest.raises(DataLoss, match="deleted and made again"):
            native.latestOffset(after, ReadAllAvailable())


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "batch"])
def test_offsets_of_a_checkpoint_as_a_start(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    streaming: bool,
) -> None:
    topic = make_topic()
    producer.send_batch(topic, [b"v"] * 10, timestamps_ms=[T0_MS] * 10)
    _, reader = stream(broker.address, subscribe=topic, maxOffsetsPerTrigger=4)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    options = {"subscribe": topic, "startingOffsets": json.dumps(end)}

    def start_of(**more: object) -> int:
        made, again = stream(broker.address, **options, **more)
        if streaming:
            return int(again.initialOffset()[topic]["0"])
        (one,) = made.reader(made.schema()).partitions()
        return int(one.span.start)  # type: ignore[attr-defined]

    assert start_of() == 4
    make_again(admin, producer, topic, 25)
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and made again"):
        start_of()
    assert start_of(failOnDataLoss=False) == 0
