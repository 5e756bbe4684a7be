"""Consuming from a real broker."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from horolog import (
    Admin,
    AfterEnd,
    Consumer,
    ConsumerRecord,
    CorruptMessage,
    Found,
    MessageTooLarge,
    NewRecord,
    NoTimestamps,
    OffsetOutOfRange,
    Producer,
    RequestTimedOut,
    TimeError,
    UnknownTopicOrPartition,
)
from horolog.protocol.api.log.fetch import (
    FETCH,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
)
from horolog.protocol.api.log.list_offsets import (
    ListOffsetsPartitionResult,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)
from horolog.protocol.api.native.frames import RequestHead
from horolog.protocol.records.messages.sets import build_set

T0 = 1_479_144_272_000


async def fill(address: str, topic: str, times: list[int], **options: Any) -> None:
    """One message for each time, in format v1; its value is its offset."""
    async with Producer(address, idempotent=False) as producer:
        records = [NewRecord(str(n).encode(), None, time) for n, time in enumerate(times)]
        await producer.send_many(topic, records, **options)


async def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    return [await anext(consumer) for _ in range(count)]


async def test_reading_begins_with_the_first_message_stored(address: str) -> None:
    await fill(address, "t", [T0, T0 + 1, T0 + 2])
    async with Consumer(address) as consumer:
        consumer.assign("t")
        assert consumer.position("t") is None
        records = await take(consumer, 3)
        assert [(r.topic, r.partition, r.offset, r.value) for r in records] == [
            ("t", 0, 0, b"0"),
            ("t", 0, 1, b"1"),
            ("t", 0, 2, b"2"),
        ]
        assert consumer.position("t") == 3


async def test_the_position_is_behind_what_was_given_out(address: str) -> None:
    await fill(address, "t", [T0] * 5)
    async with Consumer(address) as consumer:
        consumer.assign("t", 0, offset=1)
        await take(consumer, 2)
        assert consumer.position("t") == 3
        assert [record.offset for record in await consumer.fetch()] == [3, 4]
        assert consumer.position("t") == 5


async def test_nothing_new_is_an_empty_batch(address: str) -> None:
    await fill(address, "t", [T0])
    async with Consumer(address) as consumer:
        consumer.assign("t", 0, offset=1)
        assert await consumer.fetch(max_wait_ms=0) == []
        assert consumer.position("t") == 1


async def test_f21_a_waiting_fetch_is_woken_by_an_append(address: str) -> None:
    await fill(address, "t", [T0])
    async with Consumer(address, max_wait_ms=30_000) as consumer:
        consumer.assign("t", 0, offset=1)
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        await fill(address, "t", [T0 + 1])
        assert (await asyncio.wait_for(waiting, 30)).offset == 1


async def test_questions_do_not_stand_behind_a_waiting_fetch(address: str) -> None:
    await fill(address, "t", [T0])
    async with Consumer(address, max_wait_ms=30_000) as consumer:
        consumer.assign("t", 0, offset=1)
        waiting = asyncio.ensure_future(consumer.fetch())
        await asyncio.sleep(0)
        await asyncio.wait_for(consumer.seek_to_beginning(), 30)
        assert consumer.position("t") == 0
        await fill(address, "t", [T0 + 1])
        assert await waiting == []  # it was asked for another position
        assert [record.offset for record in await consumer.fetch()] == [0, 1]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4"])
async def test_f11_offsets_below_the_position_are_dropped(address: str, compression: Any) -> None:
    await fill(address, "t", [T0 + n for n in range(10)], compression=compression)
    async with Consumer(address) as consumer:
        consumer.assign("t", 0, offset=6)
        records = await consumer.fetch()
    assert [(r.offset, r.value) for r in records] == [(n, b"%d" % n) for n in range(6, 10)]


async def test_seeking_by_offset_drops_what_was_fetched(address: str) -> None:
    await fill(address, "t", [T0] * 6)
    async with Consumer(address) as consumer:
        consumer.assign("t")
        await take(consumer, 2)
        consumer.seek("t", 0, 5)
        assert (await anext(consumer)).offset == 5
        await consumer.seek_to_beginning()
        assert (await anext(consumer)).offset == 0
        await consumer.seek_to_end()
        assert consumer.position("t") == 6


async def test_seeking_by_time(address: str) -> None:
    await fill(address, "t", [T0, T0 + 2000, T0 + 1000, T0 + 3000])
    async with Consumer(address) as consumer:
        consumer.assign("t")
        found = await consumer.seek_to_time(timestamp_ms=T0 + 500)
        assert found == {("t", 0): Found(1, T0 + 2000)}
        assert (await anext(consumer)).offset == 1
        found = await consumer.seek_to_time(datetime.fromtimestamp(T0 // 1000 + 3, UTC))
        assert found == {("t", 0): Found(3, T0 + 3000)}
        behind = datetime.fromtimestamp(T0 // 1000 + 2, UTC) + timedelta(microseconds=1)
        assert await consumer.seek_to_time(behind) == found  # The one of T0 + 2000 is before it.
        found = await consumer.seek_to_time(timestamp_ms=T0 + 3001)
        assert found == {("t", 0): AfterEnd(4)}
        assert consumer.position("t") == 4


async def test_seeking_by_time_where_nothing_has_one(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("empty")
    async with Consumer(address) as consumer:
        consumer.assign("empty")
        assert await consumer.seek_to_time(timestamp_ms=T0) == {("empty", 0): NoTimestamps()}
        assert consumer.position("empty") is None


async def test_a_time_that_must_be_guessed_is_refused(address: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign("t")
        with pytest.raises(TimeError, match="looks like seconds"):
            await consumer.seek_to_time(timestamp_ms=T0 // 1000)
        with pytest.raises(TimeError, match="no time zone"):
            await consumer.seek_to_time(datetime(2016, 11, 14))
        with pytest.raises(TypeError, match="needs a datetime or timestamp_ms"):
            await consumer.seek_to_time()


async def test_several_partitions_are_read_in_turn(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("wide", partitions=3)
    for partition in range(3):
        await fill(address, "wide", [T0] * 4, partition=partition)
    async with Consumer(address, max_bytes=1, partition_max_bytes=1) as consumer:
        for partition in range(3):
            consumer.assign("wide", partition)
        assert consumer.assignment == [("wide", 0), ("wide", 1), ("wide", 2)]
        records = await take(consumer, 12)
    # One message a response (F-14), from another partition each time.
    assert [record.partition for record in records] == [0, 1, 2] * 4
    assert [record.offset for record in records] == [n for n in range(4) for _ in range(3)]


async def test_a_partition_that_is_not_wanted_any_more(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("wide", partitions=2)
    for partition in range(2):
        await fill(address, "wide", [T0] * 3, partition=partition)
    async with Consumer(address) as consumer:
        consumer.assign("wide", 0)
        consumer.assign("wide", 1)
        first = await anext(consumer)
        consumer.unassign("wide", first.partition)
        assert [record.partition for record in await consumer.fetch()] == [1 - first.partition] * 3


async def test_partitions_may_go_while_a_fetch_waits(address: str) -> None:
    await fill(address, "t", [T0])
    async with Consumer(address, max_wait_ms=30_000) as consumer:
        consumer.assign("t", 0, offset=1)
        waiting = asyncio.ensure_future(consumer.fetch())
        await asyncio.sleep(0)
        consumer.unassign("t", 0)
        await fill(address, "t", [T0])
        assert await waiting == []


async def test_two_readers_of_one_consumer_get_each_message_once(address: str) -> None:
    await fill(address, "t", [T0] * 10)
    async with Consumer(address) as consumer:
        consumer.assign("t")
        halves = await asyncio.gather(take(consumer, 5), take(consumer, 5))
    offsets = [record.offset for half in halves for record in half]
    assert sorted(offsets) == list(range(10))


async def test_an_offset_out_of_range_is_the_readers_business(address: str) -> None:
    await fill(address, "t", [T0])
    async with Consumer(address) as consumer:
        consumer.assign("t", 0, offset=2)
        with pytest.raises(OffsetOutOfRange):
            await consumer.fetch()
        assert consumer.position("t") == 2
        await consumer.seek_to_beginning()
        assert len(await consumer.fetch()) == 1


async def test_an_unknown_topic(address: str) -> None:
    async with Consumer(address) as consumer:
        consumer.assign("nothing", 0)
        with pytest.raises(UnknownTopicOrPartition):
            await consumer.fetch()


async def test_misuse_is_told(address: str) -> None:
    async with Consumer(address) as consumer:
        for ask in (
            consumer.fetch,
            consumer.lag,
            consumer.catch_up_s,
            consumer.seek_to_beginning,
            consumer.seek_to_end,
            partial(consumer.seek_to_time, timestamp_ms=0),
            partial(consumer.seek_to_committed, "name"),
            partial(consumer.commit, "name"),
        ):
            with pytest.raises(
                ValueError, match=r"nothing is assigned; call assign\(\) or subscribe\(\) first"
            ):
                await ask()
        with pytest.raises(ValueError, match="t-0 is not assigned"):
            consumer.seek("t", 0, 1)
        consumer.assign("t")
        with pytest.raises(ValueError, match="t is assigned already"):
            consumer.assign("t")
        for offset in (-1, 1.0):
            with pytest.raises(ValueError, match="an offset is an integer from 0 on"):
                consumer.seek("t", 0, offset)  # type: ignore[arg-type]


async def test_faults_8_a_bomb_is_not_unpacked(address: str) -> None:
    async with Producer(address, compression="gzip") as producer:
        await producer.send("t", bytes(900_000))
    async with Consumer(address, max_decompressed_bytes=100_000) as consumer:
        consumer.assign("t")
        with pytest.raises(MessageTooLarge):
            await consumer.fetch()
    async with Consumer(address) as consumer:
        consumer.assign("t")
        assert (await anext(consumer)).value == bytes(900_000)


def fetching(data: bytes) -> Any:
    """A broker whose partition begins at offset 0 and always gives these bytes."""

    async def handle(head: RequestHead, body: FetchRequest, _: Any) -> Any:
        if head.api_key == FETCH.key:
            wanted = body.topics[0].partitions[0].fetch_offset
            records = data if wanted == 0 else data[len(data) // 2 :]
            result = FetchPartitionResult(partition=0, high_watermark=2, records=records)
            return FetchResponse(topics=[FetchTopicResult(name="t", partitions=[result])])
        earliest = ListOffsetsPartitionResult(partition=0, offset=0)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResult(name="t", partitions=[earliest])])

    return handle


async def test_messages_before_a_damaged_one_are_given_out(scripted_broker: Any) -> None:
    data = build_set([NewRecord(b"good", None, T0), NewRecord(b"evil", None, T0)])
    data[-1] ^= 1
    async with (
        scripted_broker(fetching(bytes(data))) as broker,
        Consumer(broker.address) as consumer,
    ):
        consumer.assign("t", 0)
        assert (await anext(consumer)).value == b"good"
        with pytest.raises(CorruptMessage):
            await anext(consumer)
        assert consumer.position("t") == 1


async def test_f13_a_message_that_never_comes_whole_is_told(scripted_broker: Any) -> None:
    data = bytes(build_set([NewRecord(bytes(100), None, T0)])[:50])
    async with scripted_broker(fetching(data)) as broker, Consumer(broker.address) as consumer:
        consumer.assign("t", 0)
        with pytest.raises(MessageTooLarge, match=r"offset 0 of t-0 .* partition_max_bytes"):
            await consumer.fetch()


async def test_messages_without_a_time(scripted_broker: Any) -> None:
    data = bytes(
        build_set([NewRecord(b"v")], magic=0) + build_set([NewRecord(b"v")], base_offset=1)
    )
    async with scripted_broker(fetching(data)) as broker, Consumer(broker.address) as consumer:
        consumer.assign("t", 0)
        old, new = await consumer.fetch()
    assert (old.timestamp_ms, old.timestamp_type) == (None, None)
    assert (new.timestamp_ms, new.timestamp_type) == (None, "CreateTime")


async def test_the_wait_at_the_broker_is_added_to_the_timeout(scripted_broker: Any) -> None:
    async def silent(*_: Any) -> None:
        return None

    async with (
        scripted_broker(silent) as broker,
        Consumer(
            broker.address, request_timeout_ms=1500, max_wait_ms=50, retry_timeout_ms=0
        ) as consumer,
    ):
        consumer.assign("t", 0, offset=0)
        with pytest.raises(RequestTimedOut, match="did not answer fetch in 1550 ms"):
            await consumer.fetch()
