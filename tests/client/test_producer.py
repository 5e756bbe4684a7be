"""Producing against a real broker."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from horolog import (
    Admin,
    Consumer,
    InvalidTimestamp,
    MessageTooLarge,
    NewRecord,
    Producer,
    RequestTimedOut,
    SentRecord,
    TimeError,
    UnknownTopicOrPartition,
)
from horolog.protocol.api.log.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResult,
)
from horolog.protocol.api.native.frames import RequestHead
from horolog.protocol.api.topics.metadata import METADATA
from horolog.testing.clock import ManualClock

MOMENT_MS = 1_479_144_272_509


async def stored(address: str, topic: str, count: int, partition: int = 0) -> list[Any]:
    """The first `count` messages of a partition, as a consumer sees them."""
    async with Consumer(address) as consumer:
        consumer.assign(topic, partition)
        return [await anext(consumer) for _ in range(count)]


async def test_a_message_and_its_answer(address: str) -> None:
    async with Producer(address) as producer:
        sent = await producer.send("clicks", b"value", key=b"k", timestamp_ms=MOMENT_MS)
        assert sent == SentRecord("clicks", 0, 0, MOMENT_MS)
        assert (await producer.send("clicks", None)).offset == 1
    first, second = await stored(address, "clicks", 2)
    assert (first.offset, first.timestamp_ms, first.key, first.value) == (
        0,
        MOMENT_MS,
        b"k",
        b"value",
    )
    assert (first.timestamp_type, first.headers) == ("CreateTime", ())
    assert (second.offset, second.key, second.value) == (1, None, None)


async def test_tc57b_without_a_timestamp_the_clock_says(address: str) -> None:
    clock = ManualClock(MOMENT_MS)
    async with Producer(address, clock=clock) as producer:
        assert (await producer.send("clicks", b"a")).timestamp_ms == MOMENT_MS
        clock.advance(250)
        sent = await producer.send_many("clicks", [NewRecord(b"b"), NewRecord(b"c", None, 0)])
        assert [record.timestamp_ms for record in sent] == [MOMENT_MS + 250, 0]
    times = [record.timestamp_ms for record in await stored(address, "clicks", 3)]
    assert times == [MOMENT_MS, MOMENT_MS + 250, 0]


async def test_messages_may_be_sent_without_a_time(address: str) -> None:
    async with Producer(address, stamp_missing=False) as producer:
        assert (await producer.send("t", b"a")).timestamp_ms is None
        assert (await producer.send("t", b"b", timestamp_ms=MOMENT_MS)).timestamp_ms == MOMENT_MS
        (sent,) = await producer.send_many("t", [NewRecord(b"c")])
        assert sent.timestamp_ms is None
    times = [record.timestamp_ms for record in await stored(address, "t", 3)]
    assert times == [None, MOMENT_MS, None]


async def test_a_datetime_for_a_timestamp(address: str) -> None:
    async with Producer(address) as producer:
        sent = await producer.send("clicks", b"a", timestamp=datetime(2020, 1, 1, tzinfo=UTC))
    assert sent.timestamp_ms == 1_577_836_800_000


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
async def test_p41_tc57c_on_a_log_append_time_topic_the_append_time_is_reported(
    address: str, clock: ManualClock, compression: Any
) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("stamped", settings={"message.timestamp.type": "LogAppendTime"})
    async with Producer(address, compression=compression) as producer:
        sent = await producer.send("stamped", b"a", timestamp_ms=MOMENT_MS - 5)
        assert sent.timestamp_ms == clock.now_ms()
        clock.advance(10)
        many = await producer.send_many("stamped", [NewRecord(b"b"), NewRecord(b"c")])
        assert [(one.offset, one.timestamp_ms) for one in many] == [
            (1, clock.now_ms()),
            (2, clock.now_ms()),
        ]
    records = await stored(address, "stamped", 3)
    assert [record.timestamp_type for record in records] == ["LogAppendTime"] * 3
    assert records[2].timestamp_ms == clock.now_ms()


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("acks", ["all", 1])
async def test_a_set_goes_as_one(address: str, compression: Any, acks: Any) -> None:
    records = [NewRecord(bytes([n]) * 50, b"key", MOMENT_MS + n) for n in range(100)]
    async with Producer(address) as producer:
        for base in (0, 100):
            sent = await producer.send_many("t", records, compression=compression, acks=acks)
            assert sent == [SentRecord("t", 0, base + n, MOMENT_MS + n) for n in range(100)]
    found = await stored(address, "t", 200)
    assert [record.value for record in found] == [record.value for record in records] * 2


async def test_an_empty_set_is_nothing(address: str) -> None:
    async with Producer(address) as producer:
        assert await producer.send_many("clicks", []) == []


async def test_p11_without_acks_nothing_is_known_of_the_offset(address: str) -> None:
    async with Producer(address, acks=0) as producer:
        sent = await producer.send("clicks", b"a", timestamp_ms=MOMENT_MS)
        assert sent == SentRecord("clicks", 0, -1, MOMENT_MS)
    (record,) = await stored(address, "clicks", 1)
    assert record.value == b"a"


async def test_keys_choose_partitions_and_others_take_turns(address: str) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("wide", partitions=3)
        turns = [(await producer.send("wide", b"v")).partition for _ in range(6)]
        assert turns == [0, 1, 2, 0, 1, 2]
        keyed = {(await producer.send("wide", b"v", key=b"21")).partition for _ in range(4)}
        assert keyed == {await producer.partition_for("wide", b"21")}
        assert (await producer.send("wide", b"v", key=b"21", partition=1)).partition == 1


async def test_many_sends_under_way_keep_their_order(address: str) -> None:
    async with Producer(address) as producer:
        values = [str(n).encode() for n in range(300)]
        sent = await asyncio.gather(*(producer.send("clicks", value) for value in values))
    assert [one.offset for one in sent] == list(range(300))
    assert [record.value for record in await stored(address, "clicks", 300)] == values


async def test_p28_the_brokers_refusal_has_its_words(address: str, clock: ManualClock) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("strict", settings={"max.message.time.difference.ms": "1000"})
        with pytest.raises(InvalidTimestamp) as caught:
            await producer.send("strict", b"a", timestamp_ms=clock.now_ms() + 1001)
        assert "max.message.time.difference.ms" in caught.value.message
        assert (await producer.send("strict", b"a", timestamp_ms=clock.now_ms())).offset == 0


async def test_a_message_too_large_is_refused(address: str) -> None:
    async with Producer(address) as producer:
        with pytest.raises(MessageTooLarge):
            await producer.send("clicks", bytes(2_000_000))


async def test_a_topic_that_vanished_is_looked_up_again(address: str) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("t", partitions=2)
        assert [(await producer.send("t", b"v")).partition for _ in range(2)] == [0, 1]
        await admin.delete_topic("t")
        await admin.create_topic("t", partitions=1)
        assert (await producer.send("t", b"v")).partition == 0
        with pytest.raises(UnknownTopicOrPartition):
            await producer.send("t", b"v")
        assert [(await producer.send("t", b"v")).partition for _ in range(3)] == [0, 0, 0]


async def test_units_are_checked_unless_told_otherwise(address: str) -> None:
    async with Producer(address) as producer:
        with pytest.raises(TimeError, match="looks like seconds"):
            await producer.send("clicks", b"a", timestamp_ms=1_479_144_272)
        with pytest.raises(TimeError, match="looks like seconds"):
            await producer.send_many("clicks", [NewRecord(b"a", None, 1_479_144_272)])
        with pytest.raises(TimeError, match="not -1"):
            await producer.send("clicks", b"a", timestamp_ms=-1)
    async with Producer(address, check_units=False) as producer:
        sent = await producer.send("clicks", b"a", timestamp_ms=1_479_144_272)
        assert (sent.offset, sent.timestamp_ms) == (0, 1_479_144_272)


async def test_arguments_of_the_wrong_kind(address: str) -> None:
    wrong: Any = "text"
    with pytest.raises(ValueError, match="acks is 'all', 0 or 1, not 2"):
        Producer(address, acks=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="compression is one of none, gzip, snappy, lz4, zstd"):
        Producer(address, compression="brotli")  # type: ignore[arg-type]
    producer = Producer(address)
    with pytest.raises(TypeError, match="a value is bytes or None, not str"):
        await producer.send("clicks", wrong)
    with pytest.raises(TypeError, match="a key is bytes or None, not str"):
        await producer.send("clicks", b"", key=wrong)
    await producer.close()


async def test_p13_a_timed_out_wait_is_an_error(scripted_broker: Any) -> None:
    async def time_out(head: RequestHead, body: ProduceRequest, _: Any) -> Any:
        assert head.api_key != METADATA.key
        assert (body.acks, body.timeout_ms) == (-1, 20_700)
        result = ProducePartitionResult(
            partition=3, error_code=RequestTimedOut.code, base_offset=5, error_message="too slow"
        )
        return ProduceResponse(topics=[ProduceTopicResult(name="t", partitions=[result])])

    async with (
        scripted_broker(time_out) as broker,
        Producer(broker.address, request_timeout_ms=20_700, delivery_timeout_ms=0) as producer,
    ):
        with pytest.raises(RequestTimedOut, match="too slow"):
            await producer.send("t", b"v", partition=3)


async def test_the_brokers_wait_is_added_to_the_clients(scripted_broker: Any) -> None:
    async def silent(*_: Any) -> None:
        return None

    async with (
        scripted_broker(silent) as broker,
        Producer(broker.address, request_timeout_ms=1500, delivery_timeout_ms=0) as producer,
    ):
        with pytest.raises(RequestTimedOut, match="did not answer produce in 3000 ms"):
            await producer.send_many("t", [NewRecord(b"v")])
        with pytest.raises(RequestTimedOut, match="did not answer produce in 1500 ms"):
            await producer.send_many("t", [NewRecord(b"v")], acks=1)


async def test_a_message_past_retention_is_told_in_its_result(
    address: str, clock: ManualClock
) -> None:
    now_ms = clock.now_ms()
    times_ms = [now_ms - 60_001, now_ms - 60_000, now_ms, now_ms - 10**9]
    past = [True, False, False, True]
    async with Admin(address) as admin, Producer(address) as producer:
        for name, settings in (
            ("short", {"retention.ms": "60000"}),
            ("endless", {"retention.ms": "-1"}),
            ("stamped", {"retention.ms": "60000", "message.timestamp.type": "LogAppendTime"}),
            ("timeless", {"retention.ms": "60000", "message.format.version": "0.9.0"}),
        ):
            await admin.create_topic(name, settings=settings)
            expected = past if name == "short" else [False] * 4
            sending = [producer.send(name, b"a", timestamp_ms=one) for one in times_ms]
            sent = await asyncio.gather(*sending)
            assert [one.past_retention for one in sent] == expected
            records = [NewRecord(b"a", None, one) for one in (*times_ms, -1)]
            sent = await producer.send_many(name, records)
            assert [one.past_retention for one in sent] == [*expected, False]
            batch = await producer.send_batch(name, [b"a"] * 4, timestamps_ms=times_ms)
            assert sum(part.past_retention for part in batch.ranges) == sum(expected)
