"""Messages of our clients in a Kafka cluster of three brokers, and on our own Kafka port."""

import asyncio
from datetime import UTC, datetime, timedelta

import confluent_kafka
import pytest

from horolog import (
    Admin,
    AfterEnd,
    Consumer,
    ConsumerRecord,
    Found,
    NoTimestamps,
    Producer,
    TimestampType,
    blocking,
)
from horolog.bench.apache_kafka import ApacheKafka
from horolog.client.produce.producer import Compression
from horolog.clock import SystemClock

from .conftest import NewTopic

pytestmark = pytest.mark.timeout(1200)

START_MS = 1_500_000_000_000
DAY_MS = 86_400_000


async def read(address: str, topic: str, count: int, partitions: int = 1) -> list[ConsumerRecord]:
    async with Consumer(address) as consumer:
        for partition in range(partitions):
            consumer.assign(topic, partition)
        found: list[ConsumerRecord] = []
        while len(found) < count:
            found += await consumer.fetch()
        return found


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_messages_come_back_as_they_were_sent(
    address: str, new_topic: NewTopic, compression: Compression
) -> None:
    topic = await new_topic(address)
    headers = (("a", b"1"), ("a", None), ("ü", b""))
    async with Producer(address, compression=compression) as producer:
        sent = await producer.send(
            topic, b"value", key=b"key", timestamp_ms=START_MS, headers=headers
        )
        assert (sent.partition, sent.offset, sent.timestamp_ms) == (0, 0, START_MS)
        await producer.send(topic, None)
        batch = await producer.send_batch(
            topic, [b"x" * 100] * 500, timestamps_ms=list(range(START_MS, START_MS + 500))
        )
        assert [(part.base_offset, part.count) for part in batch.ranges] == [(2, 500)]
    first, second, *others = await read(address, topic, 502)
    assert first == ConsumerRecord(
        topic, 0, 0, START_MS, TimestampType.CREATE_TIME, b"key", b"value", headers
    )
    assert (second.value, second.key, second.headers) == (None, None, ())
    assert [(one.offset, one.timestamp_ms) for one in others] == [
        (2 + n, START_MS + n) for n in range(500)
    ]


async def test_partitions_of_several_leaders_are_read_together(
    address: str, new_topic: NewTopic
) -> None:
    topic = await new_topic(address, 6)
    async with Producer(address, linger_ms=5) as producer:
        waiting = [await producer.enqueue(topic, b"%d" % n, key=b"%d" % n) for n in range(600)]
        await producer.flush()
        assert len({one.result().partition for one in waiting}) == 6
    found = await read(address, topic, 600, 6)
    assert sorted(int(one.value or b"") for one in found) == list(range(600))
    for partition in range(6):
        offsets = [one.offset for one in found if one.partition == partition]
        assert offsets == list(range(len(offsets)))


async def test_a_time_is_found_and_read_from_again(address: str, new_topic: NewTopic) -> None:
    topic = await new_topic(address, 2)
    async with Producer(address) as producer:
        await producer.send_batch(
            topic,
            [b"%d" % n for n in range(100)],
            timestamps_ms=[START_MS + 10 * n for n in range(100)],
            partition=0,
        )
        await producer.send(topic, b"late", timestamp_ms=START_MS + 5000, partition=0)
    async with Admin(address) as admin, Consumer(address) as consumer:
        found = await admin.find_offset(topic, 0, timestamp_ms=START_MS + 491)
        assert found == Found(50, START_MS + 500)
        assert await admin.find_offset(topic, 0, timestamp_ms=START_MS + 9000) == AfterEnd(101)
        assert await admin.find_offset(topic, 1, timestamp_ms=START_MS) == NoTimestamps()
        consumer.assign(topic, 0)
        when = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(milliseconds=700)
        for _ in range(2):  # a replay reads the same again
            assert await consumer.seek_to_time(when) == {(topic, 0): Found(70, START_MS + 700)}
            record = await anext(consumer)
            assert (record.offset, record.value) == (70, b"70")


async def test_positions_are_those_of_a_group(address: str, new_topic: NewTopic) -> None:
    topic = await new_topic(address)
    async with Producer(address) as producer:
        await producer.send_batch(topic, [b"a", b"b", b"c"], timestamps_ms=START_MS)
    name = f"name-of-{topic}"
    async with Consumer(address, name=name) as consumer:
        consumer.assign(topic)
        for value in (b"a", b"b"):
            assert (await anext(consumer)).value == value
        await consumer.commit()
    async with Consumer(address, name=name) as consumer, Admin(address) as admin:
        consumer.assign(topic)
        (position,) = (await consumer.seek_to_committed()).values()
        assert position is not None
        assert (position.offset, position.timestamp_ms, position.metadata) == (2, START_MS, "")
        assert position.commit_time_ms is None
        assert (await anext(consumer)).value == b"c"
        await admin.commit_position(name, topic, 0, 1, metadata="by hand")
        again = await admin.position(name, topic)
        assert again is not None
        assert (again.offset, again.timestamp_ms, again.metadata) == (1, None, "by hand")
        assert name in await admin.position_names()
        assert await admin.position("no such name", topic) is None


async def test_lag_is_told_in_messages_and_seconds(address: str, new_topic: NewTopic) -> None:
    own = await new_topic(address)
    stamped = await new_topic(address, message_timestamp_type="LogAppendTime")
    now_ms = SystemClock().now_ms()
    async with Producer(address) as producer:
        for topic in (own, stamped):
            times_ms = [now_ms - 3 * DAY_MS, now_ms - 2 * DAY_MS, now_ms]
            await producer.send_batch(topic, [b"a", b"b", b"c"], timestamps_ms=times_ms)
    name = f"name-of-{own}"
    async with Consumer(address, name=name) as consumer, Admin(address) as admin:
        consumer.assign(own, offset=1)
        consumer.assign(stamped, offset=1)
        lags = await consumer.lag()
        assert [lag.messages for lag in lags.values()] == [2, 2]
        assert (lags[own, 0].seconds or 0) * 1000 // DAY_MS == 2
        assert lags[own, 0].estimated
        assert (lags[stamped, 0].seconds or 0) * 1000 // DAY_MS == 0
        assert not lags[stamped, 0].estimated
        await consumer.commit()
        told = {lag.topic: lag for lag in await admin.lag(name)}
        assert told.keys() == {own, stamped}
        assert told[own].offset == 1
        behind = told[own].lag
        assert behind is not None
        assert (behind.messages, told[own].group) == (2, None)
        await consumer.seek_to_end()
        assert [(lag.messages, lag.seconds) for lag in (await consumer.lag()).values()] == [
            (0, 0.0),
            (0, 0.0),
        ]


@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_columns_are_sent_with_headers(
    address: str, new_topic: NewTopic, compression: Compression
) -> None:
    topic = await new_topic(address)
    async with Producer(address, compression=compression) as producer:
        await producer.send_batch(
            topic, [b"a", b"b", b"c"], headers=[[("h", b"1"), ("ü", None)], None, [("h", b"")]]
        )
    found = await read(address, topic, 3)
    assert [one.headers for one in found] == [(("h", b"1"), ("ü", None)), (), (("h", b""),)]


async def test_columns_have_headers(address: str, new_topic: NewTopic) -> None:
    topic = await new_topic(address)
    async with Producer(address) as producer:
        await producer.send(topic, b"a", headers=[("h", b"1")])
        await producer.send(topic, b"b")
    async with Consumer(address) as consumer:
        consumer.assign(topic)
        values: list[bytes] = []
        while len(values) < 2:
            for batch in await consumer.fetch_columns():
                values.append(bytes(batch.values.data))
                told = None if batch.headers is None else list(batch.headers)
                assert told == ([(("h", b"1"),)] if values == [b"a"] else None)
        assert consumer.position(topic) == 2


async def test_reading_goes_on_behind_marks_of_transactions(
    apache: ApacheKafka, cluster: str, new_topic: NewTopic
) -> None:
    topic = await new_topic(cluster)
    settings = {"bootstrap.servers": apache.bootstrap, "transactional.id": topic}

    def send() -> None:
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(60)
        for value in ("a", "b"):
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.commit_transaction(60)
        producer.begin_transaction()
        producer.produce(topic, "aborted")
        producer.flush(60)
        producer.abort_transaction(60)
        producer.begin_transaction()
        producer.produce(topic, "c")
        producer.commit_transaction(60)

    await asyncio.to_thread(send)
    for committed, values in ((True, [b"a", b"b", b"c"]), (False, [b"a", b"b", b"aborted", b"c"])):
        async with Consumer(cluster, read_committed=committed) as consumer:
            consumer.assign(topic)
            assert [(await anext(consumer)).value for _ in values] == values
            consumer.seek(topic, 0, 4)
            assert (await anext(consumer)).value == values[2]
    async with Consumer(cluster) as consumer:
        consumer.assign(topic)
        assert [(await anext(consumer)).offset for _ in range(4)] == [0, 2, 4, 6]
        while consumer.position(topic) != 8:
            assert await consumer.fetch() == []
        assert (await consumer.lag())[topic, 0].messages == 0
        consumer.seek(topic, 0, 7)
        lag = (await consumer.lag())[topic, 0]
        assert (lag.messages, lag.seconds) == (0, 0.0)


def test_without_asyncio(cluster: str) -> None:
    with blocking.Admin(cluster) as admin:
        admin.create_topic("blocking")
    with blocking.Producer(cluster) as producer:
        assert producer.send("blocking", b"a", headers=[("h", b"1")]).offset == 0
        assert producer.enqueue("blocking", b"b").result(30).offset == 1
    with blocking.Consumer(cluster) as consumer:
        consumer.assign("blocking")
        assert [next(consumer).headers, next(consumer).headers] == [(("h", b"1"),), ()]
