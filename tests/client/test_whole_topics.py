"""A topic that is assigned without a partition is read whole."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog import (
    Admin,
    AfterEnd,
    ConnectionFailed,
    Consumer,
    ConsumerRecord,
    Found,
    OffsetOutOfRange,
    Producer,
    UnknownTopicOrPartition,
    blocking,
)
from horolog.client.results import NoTimestamps
from horolog.protocol.records.layout import NO_TIMESTAMP
from horolog.protocol.records.messages.sets import NewRecord
from horolog.testing.broker import BrokerThread
from horolog.testing.clock import MovingClock

T0 = 1_479_144_272_509


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    folder: Path = tmp_path_factory.mktemp("data")
    settings = {"kafka.listen": "127.0.0.1:0", "retention.ms": -1}
    with BrokerThread(folder, settings) as running:
        yield running


@pytest.fixture(params=["native", "kafka"])
def address(request: pytest.FixtureRequest, broker: BrokerThread) -> str:
    return broker.address if request.param == "native" else f"kafka://{broker.kafka_address}"


@pytest.fixture
async def topic(request: pytest.FixtureRequest, address: str) -> str:
    """Three partitions of 3, 2 and 1 messages, a second apart, those of one partition later."""
    name: str = request.node.name.translate({ord("["): ".", ord("]"): "", ord(":"): "."})
    async with Admin(address) as admin:
        await admin.create_topic(name, partitions=3)
    for partition, count in enumerate((3, 2, 1)):
        await fill(address, name, partition, [T0 + 1000 * n + partition for n in range(count)])
    return name


async def fill(address: str, topic: str, partition: int, times: list[int]) -> None:
    async with Producer(address) as producer:
        records = [NewRecord(b"%d" % n, None, time) for n, time in enumerate(times)]
        await producer.send_many(topic, records, partition=partition)


async def take(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    async with asyncio.timeout(60):
        return places([await anext(consumer) for _ in range(count)])


def places(records: list[ConsumerRecord]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


ALL = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]


async def test_every_partition_is_read(address: str, topic: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign(topic)
        assert consumer.position(topic) is None
        assert consumer.position(topic, 1) is None
        assert await take(consumer, 6) == ALL
        assert consumer.assignment == [(topic, 0), (topic, 1), (topic, 2)]
        assert [consumer.position(topic, number) for number in range(3)] == [3, 2, 1]


async def test_every_partition_is_read_in_columns(address: str, topic: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign(topic)
        read = []
        for _ in range(3):  # one fetch brings all; one more may have begun before that
            for batch in await consumer.fetch_columns(max_wait_ms=0):
                read += [(batch.partition, offset) for offset in batch.offsets]
        assert sorted(read) == ALL


async def test_a_position_without_a_partition_is_one_of_one(address: str, topic: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign(topic, 1, offset=1)
        assert consumer.position(topic) == 1
        consumer.assign(topic, 2)
        with pytest.raises(ValueError, match=r"partitions 1 and 2 .*: say which"):
            consumer.position(topic)


async def test_an_offset_for_a_whole_topic_goes_for_each_partition(
    address: str, topic: str
) -> None:
    async with Consumer(address) as consumer:
        consumer.assign(topic, offset=1)
        assert await take(consumer, 3) == [(0, 1), (0, 2), (1, 1)]
    async with Consumer(address) as consumer:
        consumer.assign(topic, offset=2)
        with pytest.raises(OffsetOutOfRange):
            await take(consumer, 6)


async def test_a_seek_before_the_partitions_are_known(address: str, topic: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign(topic)
        consumer.seek(topic, 0, 2)
        assert consumer.position(topic, 0) == 2
        assert await take(consumer, 4) == [(0, 2), (1, 0), (1, 1), (2, 0)]


async def test_a_partition_that_the_topic_has_not(address: str, topic: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign(topic)
        await take(consumer, 6)
        with pytest.raises(ValueError, match=f"{topic}-3 is not assigned"):
            consumer.seek(topic, 3, 0)
    async with Consumer(address, retry_timeout_ms=0) as consumer:
        consumer.assign(topic)
        consumer.seek(topic, 3, 0)
        with pytest.raises(UnknownTopicOrPartition):
            await take(consumer, 7)


async def test_a_seek_by_time_moves_every_partition(address: str, topic: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign(topic)
        assert await consumer.seek_to_time(timestamp_ms=T0 + 1000) == {
            (topic, 0): Found(1, T0 + 1000),
            (topic, 1): Found(1, T0 + 1001),
            (topic, 2): AfterEnd(1),
        }
        assert await take(consumer, 3) == [(0, 1), (0, 2), (1, 1)]


async def test_a_seek_by_time_leaves_a_partition_without_times(address: str, topic: str) -> None:
    async with Admin(address) as admin:
        await admin.create_partitions(topic, 4)
    async with Producer(address, check_units=False, stamp_missing=False) as producer:
        await producer.send_many(topic, [NewRecord(b"", None, NO_TIMESTAMP)], partition=3)
    async with Consumer(address) as consumer:
        consumer.assign(topic)
        found = await consumer.seek_to_time(timestamp_ms=T0 + 1000)
        assert found[topic, 3] == NoTimestamps()
        assert await take(consumer, 4) == [(0, 1), (0, 2), (1, 1), (3, 0)]


async def test_a_seek_that_fails_for_one_partition_moves_none(address: str, topic: str) -> None:
    async with Consumer(address, retry_timeout_ms=0) as consumer:
        consumer.assign(topic, 0, offset=0)
        consumer.assign(topic, 9, offset=0)
        for seek in (
            consumer.seek_to_time(timestamp_ms=T0 + 1000),
            consumer.seek_to_end(),
        ):
            with pytest.raises(UnknownTopicOrPartition):
                await seek
            assert consumer.position(topic, 0) == 0


async def test_to_the_end_and_back(address: str, topic: str) -> None:
    async with Consumer(address, max_wait_ms=0) as consumer:
        consumer.assign(topic)
        await consumer.seek_to_end()
        assert [consumer.position(topic, number) for number in range(3)] == [3, 2, 1]
        assert await consumer.fetch() == []
        await consumer.seek_to_beginning()
        assert await take(consumer, 6) == ALL


async def test_what_was_read_of_all_partitions_is_committed(address: str, topic: str) -> None:
    async with Consumer(address, name=topic) as consumer, Admin(address) as admin:
        consumer.assign(topic)
        assert await consumer.seek_to_committed() == dict.fromkeys(
            [(topic, 0), (topic, 1), (topic, 2)]
        )
        await take(consumer, 6)
        await consumer.commit()
        found = [await admin.position(topic, topic, number) for number in range(3)]
        assert [one and one.offset for one in found] == [3, 2, 1]
    await fill(address, topic, 2, [T0 + 5000])
    async with Consumer(address, name=topic) as consumer:
        consumer.assign(topic)
        found_again = await consumer.seek_to_committed()
        assert [one and one.offset for one in found_again.values()] == [3, 2, 1]
        assert await take(consumer, 1) == [(2, 1)]


async def test_where_a_topic_was_assigned_at_is_committed_before_anything_is_read(
    address: str, topic: str
) -> None:
    async with Consumer(address, name=topic) as consumer, Admin(address) as admin:
        consumer.assign(topic, offset=1)
        await consumer.commit()
        found = [await admin.position(topic, topic, number) for number in range(3)]
        assert [one and one.offset for one in found] == [1, 1, 1]


async def test_the_lag_of_every_partition(address: str, topic: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign(topic)
        lags = await consumer.lag()
        assert {key: lag.messages for key, lag in lags.items()} == {
            (topic, 0): 3,
            (topic, 1): 2,
            (topic, 2): 1,
        }
        await take(consumer, 6)
        assert [lag.messages for lag in (await consumer.lag()).values()] == [0, 0, 0]
        assert await consumer.catch_up_s() == 0.0


async def test_pausing_a_topic_pauses_every_partition(address: str, topic: str) -> None:
    async with Consumer(address, max_wait_ms=0) as consumer:
        consumer.assign(topic)
        consumer.pause(topic)
        assert await consumer.fetch() == []
        consumer.resume(topic, 1)
        assert await take(consumer, 2) == [(1, 0), (1, 1)]
        assert await consumer.fetch() == []
        consumer.resume(topic)
        assert await take(consumer, 4) == [(0, 0), (0, 1), (0, 2), (2, 0)]


async def test_a_partition_is_left_out_and_taken_back(address: str, topic: str) -> None:
    async with Consumer(address, metadata_max_age_ms=0) as consumer:
        consumer.assign(topic)
        consumer.unassign(topic, 0)
        assert await take(consumer, 3) == [(1, 0), (1, 1), (2, 0)]
        assert await consumer.fetch(max_wait_ms=0) == []
        consumer.assign(topic, 0)
        assert await take(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        consumer.unassign(topic)
        assert consumer.assignment == []
        with pytest.raises(ValueError, match="nothing is assigned"):
            await consumer.fetch()


async def test_the_rest_of_a_topic(address: str, topic: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign(topic, 0, offset=2)
        consumer.assign(topic)
        assert await take(consumer, 4) == [(0, 2), (1, 0), (1, 1), (2, 0)]
        with pytest.raises(ValueError, match="is assigned already"):
            consumer.assign(topic)
        with pytest.raises(ValueError, match="is assigned already"):
            consumer.assign(topic, 1)


async def test_partitions_that_are_added_are_read_from_their_first_message(
    broker: BrokerThread, address: str, topic: str
) -> None:
    clock = MovingClock()
    async with Consumer(
        address, max_wait_ms=0, clock=clock, metadata_max_age_ms=30_000
    ) as consumer:
        consumer.assign(topic)
        await consumer.seek_to_end()
        async with Admin(address) as admin:
            await admin.create_partitions(topic, 5)
        await fill(address, topic, 4, [T0])
        assert await consumer.fetch() == []
        clock.step(30)
        assert await take(consumer, 1) == [(4, 0)]
        assert len(consumer.assignment) == 5


async def test_a_seek_finds_partitions_that_were_added(address: str, topic: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign(topic)
        await take(consumer, 6)
        async with Admin(address) as admin:
            await admin.create_partitions(topic, 4)
        await fill(address, topic, 3, [T0, T0 + 1000])
        found = await consumer.seek_to_time(timestamp_ms=T0 + 1000)
        assert found[topic, 3] == Found(1, T0 + 1000)
        assert len(await consumer.lag()) == 4


async def test_several_topics(address: str, topic: str) -> None:
    other = f"{topic}-other"
    await fill(address, other, 0, [T0])
    async with Consumer(address) as consumer:
        consumer.assign(topic)
        consumer.assign(other)
        async with asyncio.timeout(60):
            records = [await anext(consumer) for _ in range(7)]
        assert places([one for one in records if one.topic == topic]) == ALL
        assert places([one for one in records if one.topic == other]) == [(0, 0)]


async def test_a_topic_that_is_not_there(address: str) -> None:
    async with Consumer(address, retry_timeout_ms=0) as consumer, Admin(address) as admin:
        consumer.assign("nowhere")
        with pytest.raises(UnknownTopicOrPartition):
            await consumer.fetch()
        assert "nowhere" not in await admin.list_topics()


async def test_a_broker_that_was_away_when_the_partitions_were_asked_for(tmp_path: Path) -> None:
    with BrokerThread(tmp_path, {"retention.ms": -1}) as broker:
        address = broker.address
        async with Admin(address) as admin:
            await admin.create_topic("t", partitions=2)
        await fill(address, "t", 1, [T0])
        consumer = Consumer(address, retry_timeout_ms=0)
        await consumer.__aenter__()
        consumer.assign("t")
        await asyncio.to_thread(broker.stop)
        with pytest.raises(ConnectionFailed):
            await consumer.fetch()
        await asyncio.to_thread(broker.start)
        assert await take(consumer, 1) == [(1, 0)]
        await consumer.close()


def test_the_same_without_asyncio(broker: BrokerThread) -> None:
    with blocking.Admin(broker.address) as admin, blocking.Producer(broker.address) as producer:
        admin.create_topic("without-asyncio", partitions=2)
        for partition in range(2):
            producer.send("without-asyncio", b"v", partition=partition)
    with blocking.Consumer(broker.address, name="without-asyncio") as consumer:
        consumer.assign("without-asyncio")
        assert places(consumer.fetch()) == [(0, 0), (1, 0)]
        consumer.pause("without-asyncio")
        consumer.resume("without-asyncio", 1)
        consumer.commit()
        assert len(consumer.seek_to_committed()) == 2
        assert consumer.position("without-asyncio", 1) == 1
