"""Many messages given as columns."""

import asyncio
from array import array
from datetime import UTC, datetime
from typing import Any

import pytest

from horolog import (
    Admin,
    ClientClosed,
    Consumer,
    ConsumerRecord,
    InvalidTimestamp,
    PartlySent,
    Producer,
    SentBatch,
    SentRange,
    TimeError,
)
from horolog.client.produce import group_sending
from horolog.client.produce.encoding import encode
from horolog.protocol.api.topics.metadata import METADATA
from horolog.protocol.partitioner import partition_of
from horolog.testing.clock import ManualClock

from .fakes import Log

T0 = 1_479_144_272_000


async def stored(address: str, topic: str, partition: int = 0) -> list[ConsumerRecord]:
    async with Consumer(address, max_wait_ms=0) as consumer:
        consumer.assign(topic, partition, offset=0)
        found: list[ConsumerRecord] = []
        while batch := await consumer.fetch():
            found += batch
        return found


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("acks", ["all", 1])
async def test_columns_in_one_result(address: str, compression: Any, acks: Any) -> None:
    values = [None if n % 7 == 0 else b"%d" % n for n in range(1000)]
    keys = [None if n % 5 == 0 else b"k%d" % n for n in range(1000)]
    times = [T0 + n for n in range(1000)]
    options: Any = {"compression": compression, "acks": acks}
    async with Producer(address, batch_bytes=5_000, **options) as producer:
        assert (await producer.send("t", b"first", timestamp_ms=T0)).offset == 0
        sent = await producer.send_batch("t", values, timestamps_ms=times, keys=keys)
    assert sent == SentBatch("t", (SentRange(0, 1, 1000, None),))
    assert sent.count == 1000
    found = (await stored(address, "t"))[1:]
    assert [(one.value, one.key, one.timestamp_ms) for one in found] == list(
        zip(values, keys, times, strict=True)
    )


async def test_times_of_each_of_all_and_of_now(address: str) -> None:
    clock = ManualClock(T0)
    async with Producer(address, clock=clock) as producer:
        await producer.send_batch("t", [b"a", b"b"])
        await producer.send_batch("t", [b"c", b"d"], timestamps_ms=T0 + 1)
        await producer.send_batch("t", [b"e", b"f"], timestamps_ms=array("q", [T0 + 2, 0]))
    async with Producer(address, stamp_missing=False) as producer:
        await producer.send_batch("t", [b"g"])
    times = [record.timestamp_ms for record in await stored(address, "t")]
    assert times == [T0, T0, T0 + 1, T0 + 1, T0 + 2, 0, None]


async def test_p41_the_append_time_is_reported(address: str, clock: ManualClock) -> None:
    async with Admin(address) as admin, Producer(address, batch_bytes=100) as producer:
        await admin.create_topic("stamped", settings={"message.timestamp.type": "LogAppendTime"})
        sent = await producer.send_batch("stamped", [b"v" * 50] * 10, timestamps_ms=T0)
    assert sent.ranges == (SentRange(0, 0, 10, clock.now_ms()),)


async def test_keys_choose_partitions(address: str) -> None:
    keys = [None if n % 10 == 9 else b"key %d" % (n % 17) for n in range(200)]
    values = [b"%d" % n for n in range(200)]
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("wide", partitions=3)
        sent = await producer.send_batch("wide", values, keys=keys)
        assert [part.partition for part in sent.ranges] == [0, 1, 2]
        assert sent.count == 200
        for part in sent.ranges:
            found = await stored(address, "wide", part.partition)
            expected = [
                value
                for key, value in zip(keys, values, strict=True)
                if (0 if key is None else partition_of(key, 3)) == part.partition
            ]
            assert [record.value for record in found] == expected
            assert (part.base_offset, part.count) == (0, len(expected))


async def test_batches_without_keys_take_turns_and_a_partition_may_be_named(address: str) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("wide", partitions=3)
        sent = [await producer.send_batch("wide", [b"a", b"b"]) for _ in range(3)]
        assert [one.ranges[0].partition for one in sent] == [0, 1, 2]
        named = await producer.send_batch("wide", [b"a"], keys=[b"k"], partition=1)
        assert named.ranges == (SentRange(1, 2, 1, None),)


async def test_an_empty_batch_is_nothing(address: str) -> None:
    async with Producer(address) as producer:
        assert await producer.send_batch("t", []) == SentBatch("t", ())
        assert (await producer.send_batch("t", [], timestamps_ms=[], keys=[])).count == 0


async def test_p11_without_acks_nothing_is_known_of_offsets(address: str) -> None:
    async with Producer(address, acks=0, batch_bytes=100) as producer:
        sent = await producer.send_batch("t", [b"v" * 20] * 9, timestamps_ms=T0)
    assert sent.ranges == (SentRange(0, -1, 9, None),)


async def test_p28_what_comes_before_a_refused_message_is_sent_and_nothing_behind_it(
    address: str, clock: ManualClock
) -> None:
    now_ms = clock.now_ms()
    async with Admin(address) as admin, Producer(address, batch_bytes=500) as producer:
        await admin.create_topic("strict", settings={"max.message.time.difference.ms": "1000"})
        times = [now_ms + (9_000 if n == 33 else 0) for n in range(100)]
        values = [b"%d" % n for n in range(100)]
        with pytest.raises(PartlySent, match="33 messages of the batch were appended") as caught:
            await producer.send_batch("strict", values, timestamps_ms=times)
        assert caught.value.sent.ranges == (SentRange(0, 0, 33, None),)
        assert isinstance(caught.value.__cause__, InvalidTimestamp)
        with pytest.raises(InvalidTimestamp):
            await producer.send_batch("strict", values[:50], timestamps_ms=now_ms - 9_000)
        assert (await producer.send("strict", b"next", timestamp_ms=now_ms)).offset == 33
    assert [one.value for one in await stored(address, "strict")] == [*values[:33], b"next"]


async def test_a_batch_larger_than_the_buffer_goes_through_it(scripted_broker: Any) -> None:
    log = Log()
    async with (
        scripted_broker(log.serve) as broker,
        Producer(broker.address, buffer_bytes=1_000, batch_bytes=300) as producer,
    ):
        values = [b"%d" % n for n in range(500)]
        assert (await producer.send_batch("t", values)).ranges == (SentRange(0, 0, 500, None),)
        with pytest.raises(ValueError, match="buffer_bytes is 1000"):
            await producer.send_batch("t", [b"a", bytes(1_000)])
        assert (await producer.send("t", b"next")).offset == 500
    assert log.stored[0][:500] == values


@pytest.mark.parametrize("waiting", [0, 1, 20])
async def test_a_batch_is_cut_to_a_buffer_smaller_than_a_set(
    scripted_broker: Any, waiting: int
) -> None:
    """It waits for room, also for that of messages sent before, and refuses only what can never
    fit."""

    async def hold(head: Any, body: Any, _: Any) -> Any:
        if head.api_key != METADATA.key:
            log.saw(body)
            await go.wait()
            log.sets.pop()
        return await log.serve(head, body, _)

    log, go = Log(), asyncio.Event()
    async with (
        scripted_broker(hold) as broker,
        Producer(broker.address, buffer_bytes=2_000, acks=1) as producer,
    ):
        before = [await producer.enqueue("t", b"w" * 50) for _ in range(waiting)]
        values = [b"q" * 300] * 50
        batch = asyncio.ensure_future(producer.send_batch("t", values))
        await log.arrived.wait()
        go.set()
        assert (await batch).count == 50
        await asyncio.gather(*before)
        keys = [b"k" * 1_667, b"k" * 1_666]
        with pytest.raises(ValueError, match="a message of 2001 bytes does not fit"):
            await producer.send_batch("t", [bytes(300)] * 2, keys=keys[::-1])
        await producer.send_batch("t", [bytes(300)], keys=keys[1:])
    assert [value for _, stored in log.sets for value in stored] == [
        *[b"w" * 50] * waiting,
        *values,
        bytes(300),
    ]
    assert max(len(stored) for _, stored in log.sets if stored[0] == values[0]) == 5


async def test_order_with_sends_around_it(scripted_broker: Any) -> None:
    log = Log()
    async with (
        scripted_broker(log.serve) as broker,
        Producer(broker.address, batch_bytes=200) as producer,
    ):
        before = await producer.enqueue("t", b"before")
        batch = asyncio.ensure_future(producer.send_batch("t", [b"1", b"2", b"3"]))
        await batch
        after = await producer.enqueue("t", b"after")
        await asyncio.gather(before, after)
    assert log.stored[0] == [b"before", b"1", b"2", b"3", b"after"]


async def test_a_cancelled_batch_is_not_sent_further(scripted_broker: Any) -> None:
    async def hold(head: Any, body: Any, _: Any) -> Any:
        if head.api_key == METADATA.key:
            return log.metadata()
        response = log.append(body)
        await go.wait()
        return response

    log, go = Log(), asyncio.Event()
    async with (
        scripted_broker(hold) as broker,
        Producer(broker.address, batch_bytes=50) as producer,
    ):
        batch = asyncio.ensure_future(producer.send_batch("t", [b"%d" % n for n in range(20)]))
        await log.arrived.wait()
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        go.set()
        assert (await producer.send("t", b"next")).offset == 1
    assert log.stored[0] == [b"0", b"next"]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_batch_whose_producer_is_closed_says_what_was_stored(
    scripted_broker: Any, count: int
) -> None:
    """A set waits for room in the buffer, in the same partition or another one, while the set
    before it is on its way."""

    async def hold(head: Any, body: Any, _: Any) -> Any:
        if head.api_key == METADATA.key:
            return log.metadata()
        response = log.append(body)
        await go.wait()
        return response

    log, go = Log(partitions=count), asyncio.Event()
    keys = sorted((b"%d" % n for n in range(6)), key=lambda key: partition_of(key, count))
    first = partition_of(keys[0], count)
    expected = [key for key in keys if partition_of(key, count) == first]
    async with scripted_broker(hold) as broker:
        room = 50 * (len(expected) if count > 1 else 3)
        producer = Producer(broker.address, buffer_bytes=room, acks=1)
        batch = asyncio.ensure_future(producer.send_batch("t", keys, keys=keys))
        await log.arrived.wait()
        closing = asyncio.ensure_future(producer.close())
        done, _ = await asyncio.wait([batch], timeout=0.02)
        assert not done
        go.set()
        await closing
        with pytest.raises(PartlySent) as caught:
            await batch
    assert isinstance(caught.value.__cause__, ClientClosed)
    assert {part.partition: part.count for part in caught.value.sent.ranges} == {
        partition: len(values) for partition, values in log.stored.items()
    }


async def test_a_part_that_cannot_be_encoded_does_not_end_the_others(
    scripted_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised when the sets of the other partitions are answered."""

    async def hold(head: Any, body: Any, _: Any) -> Any:
        if head.api_key == METADATA.key:
            return log.metadata()
        await go.wait()
        return log.append(body)

    def encoded(keys: Any, values: Any, *args: Any, **options: Any) -> bytearray:
        if values == bad:
            raise MemoryError("no room")
        return encode(keys, values, *args, **options)

    log, go = Log(partitions=3), asyncio.Event()
    keys = [b"%d" % n for n in range(30)]
    rows = [[key for key in keys if partition_of(key, 3) == number] for number in range(3)]
    bad = rows[0]
    monkeypatch.setattr(group_sending, "encode", encoded)
    async with (
        scripted_broker(hold) as broker,
        Producer(broker.address, acks=1, buffer_bytes=100_000) as producer,
    ):
        batch = asyncio.ensure_future(producer.send_batch("t", keys, keys=keys))
        done, _ = await asyncio.wait([batch], timeout=0.05)
        assert not done
        go.set()
        with pytest.raises(PartlySent, match=f"{30 - len(bad)} messages .*: no room") as caught:
            await batch
        assert isinstance(caught.value.__cause__, MemoryError)
        assert [part.partition for part in caught.value.sent.ranges] == [1, 2]
        assert producer._budget.taken_bytes == 0
        with pytest.raises(MemoryError):
            await producer.send_batch("t", bad, keys=bad)
    assert log.stored == {1: rows[1], 2: rows[2]}


async def test_arguments_of_the_wrong_kind() -> None:
    wrong: Any

    async def refused(error: type[Exception], match: str, *args: Any, **options: Any) -> None:
        with pytest.raises(error, match=match):
            await producer.send_batch("t", *args, **options)

    producer = Producer("127.0.0.1:1")
    for wrong in (b"bytes", "text"):
        await refused(TypeError, "values is a sequence of bytes, not one", wrong)
    await refused(TypeError, "a value is bytes or None, not str", [b"a", "b"])
    await refused(TypeError, "a key is bytes or None, not int", [b"a"], keys=[1])
    await refused(ValueError, "keys has 1 items, and there are 2 values", [b"", b""], keys=[b""])
    await refused(ValueError, "timestamps_ms has 2 items", [b""], timestamps_ms=[0, 0])
    await refused(TimeError, "looks like seconds", [b""], timestamps_ms=1_479_144_272)
    await refused(TimeError, "looks like micro", [b"", b""], timestamps_ms=[T0, T0 * 1000])
    await refused(TypeError, "not float", [b""], timestamps_ms=[float(T0)])
    when = datetime.fromtimestamp(0, UTC)
    for wrong in (when, [when]):
        told = "timestamps_ms is milliseconds .* a sequence of ints, not datetime"
        await refused(TypeError, told, [b""], timestamps_ms=wrong)
    for wrong in ((value for value in [b""]), None, {b""}):
        kind = type(wrong).__name__
        await refused(TypeError, f"values is a sequence of bytes or None.*, not {kind}", wrong)
    await refused(TypeError, "keys is a sequence", [b""], keys=iter([b""]))
    await refused(TypeError, "headers is a sequence", [b""], headers=iter([None]))
    await producer.close()
    with pytest.raises(ClientClosed):
        await producer.send_batch("t", [b"a"])
