"""Where a consumer is: paused, moved by time with a margin, stored by name, and how far behind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from horolog import (
    Admin,
    AfterEnd,
    Consumer,
    Found,
    Lag,
    NewRecord,
    Producer,
    UnknownTopicOrPartition,
)
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock

T0 = 1_479_144_272_509


async def fill(address: str, topic: str, times: list[int], partition: int = 0) -> None:
    async with Producer(address) as producer:
        records = [NewRecord(b"%d" % n, None, time) for n, time in enumerate(times)]
        await producer.send_many(topic, records, partition=partition)


async def test_a_paused_partition_gives_out_nothing(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("t", partitions=2)
    await fill(address, "t", [T0] * 3, 0)
    await fill(address, "t", [T0] * 3, 1)
    async with Consumer(address, max_wait_ms=0) as consumer:
        consumer.assign("t", 0)
        consumer.assign("t", 1)
        assert (await anext(consumer)).offset == 0
        consumer.pause("t", 0)
        read = [await anext(consumer) for _ in range(3)]
        assert [(one.partition, one.offset) for one in read] == [(1, 0), (1, 1), (1, 2)]
        assert await consumer.fetch() == []
        consumer.pause("t", 1)
        assert await consumer.fetch(max_wait_ms=1) == []
        assert consumer.position("t", 0) == 1
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        consumer.resume("t", 0)
        assert (await asyncio.wait_for(waiting, 30)).offset == 1


async def test_pausing_while_a_fetch_waits(address: str) -> None:
    await fill(address, "t", [T0])
    async with Consumer(address, max_wait_ms=30_000) as consumer:
        consumer.assign("t", 0, offset=1)
        waiting = asyncio.ensure_future(consumer.fetch())
        await asyncio.sleep(0)
        consumer.pause("t")
        await fill(address, "t", [T0])
        assert await waiting == []
        consumer.resume("t")
        assert [one.offset for one in await consumer.fetch()] == [1]


async def test_seed_002_use_case_3_failover_by_time_with_a_margin(address: str) -> None:
    """What was created before the last message read, and came after it here, is not missed."""
    await fill(address, "here", [T0, T0 + 50, T0 + 100, T0 + 40, T0 + 160])
    last_read_ms, max_latency_ms = T0 + 100, 60
    async with Consumer(address) as consumer:
        consumer.assign("here")
        exact = await consumer.seek_to_time(timestamp_ms=last_read_ms)
        assert exact == {("here", 0): Found(2, T0 + 100)}
        found = await consumer.seek_to_time(timestamp_ms=last_read_ms, margin_ms=max_latency_ms)
        assert found == {("here", 0): Found(1, T0 + 50)}
        late = [record for record in await consumer.fetch() if record.timestamp_ms == T0 + 40]
        assert len(late) == 1
        assert await consumer.seek_to_time(timestamp_ms=T0, margin_ms=2 * T0) == {
            ("here", 0): Found(0, T0)
        }
        assert await consumer.seek_to_time(timestamp_ms=T0 + 900, margin_ms=1) == {
            ("here", 0): AfterEnd(5)
        }
        wrong: Any
        for wrong in (-1, 1.5):
            with pytest.raises(ValueError, match="margin_ms is an integer from 0 on"):
                await consumer.seek_to_time(timestamp_ms=T0, margin_ms=wrong)


async def test_a_resume_point_on_the_broker(address: str, clock: ManualClock) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("t", partitions=2)
    await fill(address, "t", [T0 + n for n in range(5)], 0)
    async with Consumer(address, name="billing") as consumer:
        consumer.assign("t", 0)
        await consumer.commit()  # nothing was read yet: nothing to store
        assert await consumer.seek_to_committed() == {("t", 0): None}
        for _ in range(3):
            await anext(consumer)
        await consumer.commit()
        await consumer.commit("copy")
    async with Consumer(address, name="billing") as consumer:
        consumer.assign("t", 0)
        consumer.assign("t", 1, offset=0)
        found = await consumer.seek_to_committed()
        position = found["t", 0]
        assert position is not None
        assert (position.offset, position.timestamp_ms) == (3, T0 + 2)
        assert position.commit_time_ms == clock.now_ms()
        assert found["t", 1] is None
        assert (await anext(consumer)).offset == 3
        await consumer.seek_to_committed("copy")
        assert consumer.position("t", 0) == 3


async def test_positions_need_a_name(address: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign("t", 0, offset=0)
        with pytest.raises(ValueError, match="under a name"):
            await consumer.commit()
        with pytest.raises(ValueError, match="under a name"):
            await consumer.seek_to_committed()


async def test_a_position_after_a_seek_has_no_time(address: str) -> None:
    await fill(address, "t", [T0, T0 + 1])
    async with Consumer(address, name="n") as consumer, Admin(address) as admin:
        consumer.assign("t")
        await anext(consumer)
        consumer.seek("t", 0, 2)
        await consumer.commit()
        position = await admin.position("n", "t")
        assert position is not None
        assert (position.offset, position.timestamp_ms) == (2, None)


async def test_seed_002_use_case_4_lag_in_messages_and_seconds(
    address: str, clock: ManualClock
) -> None:
    await fill(address, "t", [T0 - 5_000] * 3)
    clock.advance(2_000)
    await fill(address, "t", [T0 - 5_000] * 2)
    async with Consumer(address) as consumer:
        consumer.assign("t")
        clock.advance(10_000)
        assert await consumer.lag() == {("t", 0): Lag(5, 12.0, False, None)}
        for _ in range(3):
            await anext(consumer)
        assert await consumer.lag() == {("t", 0): Lag(2, 10.0, False, None)}
        await consumer.seek_to_end()
        assert await consumer.lag() == {("t", 0): Lag(0, 0.0, False, 0.0)}
        assert await consumer.catch_up_s() == 0.0


def forget_append_times(data_dir: Path) -> None:
    (kept,) = data_dir.glob("t-0/*.appendtime")
    kept.unlink()


async def test_lag_by_create_time_is_an_estimate(tmp_path: Path, clock: ManualClock) -> None:
    async with running_broker(tmp_path, clock=clock, http_listen="off") as broker:
        await fill(broker.addresses.native, "t", [T0 - 5_000, T0])
    forget_append_times(tmp_path)
    async with running_broker(tmp_path, clock=clock, http_listen="off") as broker:
        clock.advance(1_000)
        async with Consumer(broker.addresses.native) as consumer:
            consumer.assign("t")
            assert await consumer.lag() == {("t", 0): Lag(2, 6.0, True, None)}


async def test_where_no_time_is_known_there_is_no_lag_in_seconds(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with (
        running_broker(tmp_path, clock=clock, http_listen="off") as broker,
        Producer(broker.addresses.native, stamp_missing=False) as producer,
    ):
        await producer.send("t", b"a")
    forget_append_times(tmp_path)
    async with (
        running_broker(tmp_path, clock=clock, http_listen="off") as broker,
        Consumer(broker.addresses.native) as consumer,
    ):
        consumer.assign("t")
        assert await consumer.lag() == {("t", 0): Lag(1, None, False, None)}


async def test_lag_of_a_partition_that_is_not_there(address: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign("nowhere", 3, offset=0)
        with pytest.raises(UnknownTopicOrPartition):
            await consumer.lag()


async def test_the_time_to_catch_up_is_at_the_pace_of_the_last_minute(address: str) -> None:
    clock = ManualClock()
    await fill(address, "t", [T0] * 100)
    async with Consumer(address, clock=clock, max_wait_ms=0) as consumer:
        consumer.assign("t", 0, offset=0)
        assert await consumer.catch_up_s() is None  # no pace is known yet
        for _ in range(20):
            await anext(consumer)
        clock.advance(10_000)
        assert await consumer.catch_up_s() == 40.0  # 80 messages at 2 a second
        await fill(address, "t", [T0] * 200)
        clock.advance(10_000)
        assert await consumer.catch_up_s() is None  # more came than was read
        consumer.seek("t", 0, 0)
        assert await consumer.catch_up_s() is None  # what came before the seek is no pace
