"""Windows of time: what their ends are, what they leave alone, and what ends them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from horolog import (
    Admin,
    ClientClosed,
    Consumer,
    NewRecord,
    OffsetOutOfRange,
    Producer,
    StorageError,
    TimeError,
    TimeWindow,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock

T0 = 1_479_144_272_000

WITHIN_S = 60
"""A window that does not give what it should is not waited for any longer."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path, http_listen="off", kafka_listen="127.0.0.1:0", retention_ms=-1
    ) as started:
        yield started


async def send(address: str, topic: str, *after_ms: int, partition: int = 0, **more: Any) -> None:
    """One message for each time; its value is the time."""
    async with Producer(address) as producer:
        records = [NewRecord(b"%d" % ms, b"k", T0 + ms) for ms in after_ms]
        await producer.send_many(topic, records, partition=partition, **more)


async def values(window: TimeWindow) -> list[int]:
    return [int(record.value or b"") async for record in window]


async def test_ends_are_datetimes_or_milliseconds(address: str) -> None:
    await send(address, "t", 0, 2000, 1000, 3000, 1999)
    moment = datetime.fromtimestamp(T0 / 1000, UTC)
    async with Consumer(address) as consumer:
        read = partial(consumer.window, "t")
        assert await values(read(T0 + 1000, T0 + 2000)) == [1000, 1999]
        second = timedelta(seconds=1)
        assert await values(read(moment + second, moment + 2 * second)) == [1000, 1999]
        assert await values(read(None, moment + second)) == [0]
        assert await values(read(T0 + 2000, None)) == [2000, 3000]
        assert await values(read(None, None)) == [0, 2000, 1000, 3000, 1999]


async def test_the_empty_window_is_no_error(address: str) -> None:
    await send(address, "t", 0)
    async with Consumer(address) as consumer:
        window = consumer.window("t", T0, T0, follow=timedelta(days=1))
        assert await values(window) == []
        assert (window.messages, window.read_bytes) == (0, 0)
        with pytest.raises(UnknownTopicOrPartition):
            await values(consumer.window("nowhere", T0, T0))
        with pytest.raises(UnknownTopicOrPartition):
            await values(consumer.window("t", T0, T0 + 1, partitions=[0, 1]))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"start": T0 + 1, "end": T0}, ValueError, "before it starts"),
        ({"start": datetime(2016, 1, 1)}, TimeError, "no time zone"),
        ({"start": 1_479_144_272}, TimeError, "start=1479144272 looks like seconds"),
        ({"end": -1}, TimeError, "end is from 0"),
        ({"end": "now"}, TypeError, "end is a datetime or epoch milliseconds"),
        ({"start": True}, TypeError, "start is a datetime"),
        ({"by": "timestamp"}, ValueError, "'create' or 'append', not 'timestamp'"),
        ({"partitions": [0, -1]}, ValueError, "from 0 on, not -1"),
        ({"partitions": "0"}, TypeError, "a sequence of numbers, not '0'"),
        ({"follow": timedelta(seconds=-1)}, ValueError, "from 0 on"),
        ({"follow": 5}, TypeError, "follow is a timedelta"),
    ],
)
async def test_what_is_no_window_is_refused_at_once(
    address: str, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    asked = {"start": None, "end": None, **arguments}
    async with Consumer(address) as consumer:
        with pytest.raises(error, match=text):
            consumer.window("t", **asked)


async def test_it_ends_where_the_log_ended_when_it_began(address: str) -> None:
    await send(address, "t", 0, 1, 2)
    async with Consumer(address, partition_max_bytes=1) as consumer:
        window = consumer.window("t", T0, None)
        assert (await anext(window)).offset == 0
        await send(address, "t", 3)
        assert await values(window) == [1, 2]
        assert await values(consumer.window("t", T0, None)) == [0, 1, 2, 3]


async def test_what_is_assigned_stays_as_it_is(address: str) -> None:
    await send(address, "t", 0, 1, 2)
    async with Consumer(address) as consumer:
        consumer.assign("t")
        first = await anext(consumer)
        assert await values(consumer.window("t", T0 + 1, T0 + 2)) == [1]
        assert consumer.assignment == [("t", 0)]
        assert consumer.position("t") == first.offset + 1 == 1
        assert [record.offset for record in await consumer.fetch()] == [1, 2]


async def test_partitions_come_in_order(broker: Broker, address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("t", partitions=3)
    for partition in (2, 0, 1):
        await send(address, "t", 9, 1, partition=partition)
    async with Consumer(address) as consumer:
        found = [(one.partition, one.offset) async for one in consumer.window("t", T0, None)]
        assert found == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


async def test_columns_have_only_what_is_asked_for(address: str) -> None:
    await send(address, "t", 5, 1, 7, 2, compression="gzip")
    async with Consumer(address) as consumer:
        window = consumer.window("t", T0 + 2, T0 + 7)
        (batch,) = [batch async for batch in window.columns(columns=["keys"])]
        assert batch.count == window.messages == 2
        assert batch.offsets.tolist() == [0, 3]
        assert batch.timestamps_ms.tolist() == [T0 + 5, T0 + 2]
        assert batch.keys.contents() == [b"k", b"k"]
        assert batch.values.contents() == [None, None]
        with pytest.raises(ValueError, match="columns"):
            await anext(consumer.window("t", None, None).columns(columns=["times"]))  # type: ignore[list-item]


async def test_it_is_read_in_one_way(address: str) -> None:
    await send(address, "t", 0)
    async with Consumer(address) as consumer:
        window = consumer.window("t", None, None)
        await anext(window)
        with pytest.raises(ValueError, match="as records or in columns"):
            await anext(window.columns())


async def test_it_follows_for_a_while_after_its_end(address: str) -> None:
    clock = ManualClock(T0)
    await send(address, "t", 500, 1500)
    async with Consumer(address, clock=clock, max_wait_ms=20) as consumer:
        window = consumer.window("t", T0, T0 + 1000, follow=timedelta(seconds=5))
        assert (await anext(window)).value == b"500"
        clock.advance(2000)
        await send(address, "t", 2000, 700)
        assert (await anext(window)).value == b"700"
        await send(address, "t", 800)
        clock.advance(4000)  # its time is over, and what came until then is part of it
        assert await values(window) == [800]
        await send(address, "t", 900)
        assert await values(window) == []


@pytest.mark.parametrize("closes", [False, True])
async def test_it_follows_partitions_that_are_added(address: str, closes: bool) -> None:
    clock = ManualClock(T0)
    async with (
        asyncio.timeout(WITHIN_S),
        Admin(address) as admin,
        Producer(address) as producer,
        Consumer(address, clock=clock, max_wait_ms=20, metadata_max_age_ms=1000) as consumer,
    ):
        await admin.create_topic("growing")
        await producer.send("growing", b"old", timestamp_ms=T0, partition=0)
        every = consumer.window("growing", T0, None, follow=timedelta(seconds=5))
        first = consumer.window("growing", T0, None, follow=timedelta(seconds=5), partitions=[0])
        assert (await anext(every)).value == (await anext(first)).value == b"old"
        await admin.create_partitions("growing", 3)
        await producer.send("growing", b"early", timestamp_ms=T0 - 1, partition=2)
        await producer.send("growing", b"new", timestamp_ms=T0, partition=2)
        clock.advance(5000 if closes else 1000)
        assert (await anext(every)).value == b"new"
        if not closes:
            await producer.send("growing", b"last", timestamp_ms=T0, partition=1)
            assert (await anext(every)).value == b"last"
            clock.advance(4000)
        assert [record async for record in every] == [record async for record in first] == []


async def test_without_an_end_it_follows_from_when_it_began(address: str) -> None:
    clock = ManualClock(T0)
    await send(address, "t", 1)
    async with Consumer(address, clock=clock, max_wait_ms=20) as consumer:
        window = consumer.window("t", T0, None, follow=timedelta(seconds=5))
        assert (await anext(window)).value == b"1"
        clock.advance(4999)
        await send(address, "t", -1, 2)
        assert (await anext(window)).value == b"2"
        clock.advance(1)
        assert await values(window) == []


async def test_what_was_deleted_before_it_was_reached_is_an_error(address: str) -> None:
    for after_ms in range(5):
        await send(address, "t", after_ms)
    async with Admin(address) as admin, Consumer(address, partition_max_bytes=1) as consumer:
        window = consumer.window("t", T0, None)
        assert (await anext(window)).offset == 0
        await admin.delete_records("t", 0, 4)
        with pytest.raises(OffsetOutOfRange):
            await values(window)
        assert window.messages < 4  # one more was under way
        assert await values(consumer.window("t", T0, None)) == [4]


async def test_damage_is_an_error_and_no_gap(broker: Broker, address: str, tmp_path: Path) -> None:
    for after_ms in (0, 1, 2):
        await send(address, "t", after_ms)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    with log.open("r+b") as file:
        file.write(data)
    async with Consumer(address) as consumer:
        window = consumer.window("t", T0, T0 + 10)
        found = [await anext(window)]
        for _ in range(2):
            with pytest.raises(StorageError, match="from offset 1 on, cannot be read"):
                await anext(window)
        assert [record.offset for record in found] == [0]
        assert window.messages == 1


async def test_a_cluster_is_read_from_the_first_message_as_late_as_the_start(
    broker: Broker, address: str
) -> None:
    for after_ms in (0, 1, 500, 2, 501, 3):
        await send(address, "t", after_ms)
    async with Consumer(f"kafka://{broker.addresses.kafka}") as consumer:
        window = consumer.window("t", T0 + 3, T0 + 501)
        assert await values(window) == [500, 3]
        assert 0 < window.read_bytes < window.log_bytes
        assert window.skipped_bytes == window.log_bytes - window.read_bytes
        late = consumer.window("t", T0 + 502, None)
        assert await values(late) == []
        assert (late.read_bytes, late.log_bytes) == (0, window.log_bytes)
        with pytest.raises(UnsupportedVersion, match="no window by append time"):
            consumer.window("t", T0, None, by="append")


async def test_a_window_that_is_left_is_closed_with_its_consumer(address: str) -> None:
    await send(address, "t", 0, 1)
    async with Consumer(address) as consumer:
        window = consumer.window("t", T0, None, follow=timedelta(days=1))
        assert (await anext(window)).offset == 0
        closed = consumer.window("t", T0, None)
        await closed.close()
        with pytest.raises(ClientClosed):
            await values(closed)
    with pytest.raises(ClientClosed):
        window.take()
    with pytest.raises(ClientClosed):
        await window.fill()
