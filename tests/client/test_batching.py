"""Messages share sets, wait for room, and are refused one by one."""

import asyncio
import random
from typing import Any

import pytest

from horolog import Admin, ClientClosed, Consumer, InvalidTimestamp, MessageTooLarge, Producer
from horolog.client.produce.batching import RECORD_OVERHEAD
from horolog.protocol.api.native.frames import RequestHead
from horolog.protocol.api.topics.metadata import METADATA
from horolog.protocol.errors import InvalidRecord
from horolog.testing.clock import ManualClock

from .fakes import Log, refusal

SIZE = RECORD_OVERHEAD + 1
"""Bytes that a message with a value of one byte takes."""


class Gate:
    """A scripted broker that answers when it is told to."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.open = asyncio.Event()

    async def serve(self, head: RequestHead, body: Any, _: Any) -> Any:
        if head.api_key == METADATA.key:
            return self.log.metadata()
        response = self.log.append(body)
        await self.open.wait()
        return response


async def values(address: str, topic: str, partition: int = 0) -> list[bytes | None]:
    async with Consumer(address, max_wait_ms=0) as consumer:
        consumer.assign(topic, partition, offset=0)
        found: list[bytes | None] = []
        while batch := await consumer.fetch():
            found += [record.value for record in batch]
        return found


async def test_sends_made_together_go_together(scripted_broker: Any) -> None:
    log = Log()
    async with scripted_broker(log.serve) as broker, Producer(broker.address) as producer:
        sent = await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(9)))
    assert [one.offset for one in sent] == list(range(9))
    assert log.sets == [(0, [b"%d" % n for n in range(9)])]


async def test_a_set_is_as_large_as_it_may_be(scripted_broker: Any) -> None:
    log = Log()
    async with (
        scripted_broker(log.serve) as broker,
        Producer(broker.address, batch_bytes=2 * SIZE) as producer,
    ):
        await asyncio.gather(*(producer.send("t", value) for value in (b"a", b"b", b"c", b"dd")))
        await producer.send("t", b"x" * SIZE * 3)  # one that is larger goes alone
    assert [values for _, values in log.sets] == [[b"a", b"b"], [b"c"], [b"dd"], [b"x" * SIZE * 3]]


async def test_a_set_waits_for_the_one_before_it_in_its_partition(scripted_broker: Any) -> None:
    log = Log(partitions=2, wanted=2)
    gate = Gate(log)
    async with scripted_broker(gate.serve) as broker, Producer(broker.address) as producer:
        first = await producer.enqueue("t", b"a", partition=0)
        await log_has(log, 1)
        others = [await producer.enqueue("t", value, partition=0) for value in (b"b", b"c")]
        elsewhere = await producer.enqueue("t", b"x", partition=1)
        assert log.sets == [(0, [b"a"])]
        gate.open.set()
        await asyncio.gather(first, elsewhere, *others)
    assert sorted(log.sets) == [(0, [b"a"]), (0, [b"b", b"c"]), (1, [b"x"])]


async def log_has(log: Log, count: int) -> None:
    log.wanted = count
    if len(log.sets) < count:
        log.arrived.clear()
        await log.arrived.wait()


async def test_who_was_answered_is_awaited_by_the_set_that_is_open(scripted_broker: Any) -> None:
    """The second messages of a thousand callers go as two sets, not as one for each turn of the
    loop that gives some of them their first results."""
    log = Log()

    async def caller(producer: Producer) -> None:
        for value in (b"a", b"b"):
            await producer.send("t", value)

    async with scripted_broker(log.serve) as broker, Producer(broker.address) as producer:
        await producer.partition_for("t", None)
        await asyncio.gather(*(caller(producer) for _ in range(1000)))
    first, second, third = [values for _, values in log.sets]
    assert first == [b"a"] * 1000
    assert second + third == [b"b"] * 1000


async def test_lingering_ends_when_the_set_is_full_or_at_a_flush(scripted_broker: Any) -> None:
    log = Log()
    async with (
        scripted_broker(log.serve) as broker,
        Producer(broker.address, linger_ms=3_600_000, batch_bytes=2 * SIZE) as producer,
    ):
        waiters = [await producer.enqueue("t", value) for value in (b"a", b"b", b"c")]
        await asyncio.gather(*waiters[:2])
        assert log.sets == [(0, [b"a", b"b"])]
        assert not waiters[2].done()
        await producer.flush()
        assert waiters[2].result().offset == 2
    assert [values for _, values in log.sets] == [[b"a", b"b"], [b"c"]]


async def test_lingering_gathers_what_comes_later(scripted_broker: Any) -> None:
    log = Log()
    async with (
        scripted_broker(log.serve) as broker,
        Producer(broker.address, linger_ms=1500) as producer,
    ):
        first = await producer.enqueue("t", b"a")
        await producer.partition_for("t", None)
        await asyncio.sleep(0)
        await asyncio.gather(first, producer.send("t", b"b"))
    assert log.sets == [(0, [b"a", b"b"])]


async def test_a_full_buffer_makes_senders_wait_in_their_order(scripted_broker: Any) -> None:
    log = Log()
    gate = Gate(log)
    async with (
        scripted_broker(gate.serve) as broker,
        Producer(broker.address, buffer_bytes=2 * SIZE, batch_bytes=SIZE) as producer,
    ):
        for value in (b"a", b"b"):
            await producer.enqueue("t", value)
        waiting = [asyncio.ensure_future(producer.enqueue("t", value)) for value in (b"c", b"d")]
        await log_has(log, 1)
        assert not any(one.done() for one in waiting)
        gate.open.set()
        for one in waiting:
            await (await one)
    assert [values for _, values in log.sets] == [[b"a"], [b"b"], [b"c"], [b"d"]]


async def test_who_gives_up_waiting_for_room_is_not_sent(scripted_broker: Any) -> None:
    log = Log()
    gate = Gate(log)
    async with (
        scripted_broker(gate.serve) as broker,
        Producer(broker.address, buffer_bytes=SIZE) as producer,
    ):
        await producer.enqueue("t", b"a")
        lost = asyncio.ensure_future(producer.send("t", b"b"))
        kept = asyncio.ensure_future(producer.send("t", b"c"))
        await log_has(log, 1)
        lost.cancel()
        gate.open.set()
        assert (await kept).offset == 1
        with pytest.raises(ValueError, match=f"buffer_bytes is {SIZE}"):
            await producer.send("t", b"four")
    assert log.stored[0] == [b"a", b"c"]


async def test_cancelling_the_wait_does_not_take_the_message_back(scripted_broker: Any) -> None:
    log = Log()
    gate = Gate(log)
    async with scripted_broker(gate.serve) as broker, Producer(broker.address) as producer:
        impatient = asyncio.ensure_future(producer.send("t", b"a"))
        patient = asyncio.ensure_future(producer.send("t", b"b"))
        await log_has(log, 1)
        impatient.cancel()
        gate.open.set()
        assert (await patient).offset == 1
    assert log.stored[0] == [b"a", b"b"]


async def test_p28_a_refused_message_fails_alone(address: str, clock: ManualClock) -> None:
    now_ms = clock.now_ms()
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("strict", settings={"max.message.time.difference.ms": "1000"})
        times = [now_ms + (5_000 if n in (3, 16) else n) for n in range(20)]
        answers = await asyncio.gather(
            *(producer.send("strict", b"%d" % n, timestamp_ms=t) for n, t in enumerate(times)),
            return_exceptions=True,
        )
    assert [n for n, one in enumerate(answers) if isinstance(one, InvalidTimestamp)] == [3, 16]
    offsets = [one.offset for one in answers if not isinstance(one, BaseException)]
    assert offsets == list(range(18))
    expected = [b"%d" % n for n in range(20) if n not in (3, 16)]
    assert await values(address, "strict") == expected


async def test_a_wrapper_too_large_is_cut(address: str) -> None:
    async with Admin(address) as admin, Producer(address, compression="gzip") as producer:
        await admin.create_topic("small", settings={"max.message.bytes": "400"})
        chunks = [random.Random(n).randbytes(30) for n in range(40)]
        answers = await asyncio.gather(*(producer.send("small", chunk) for chunk in chunks))
        assert [one.offset for one in answers] == list(range(40))
        with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes"):
            await producer.send("small", random.Random(1).randbytes(500))
    assert await values(address, "small") == chunks


async def test_a_refusal_of_all_is_told_to_all(scripted_broker: Any) -> None:
    async def refuse(head: RequestHead, body: Any, _: Any) -> Any:
        if head.api_key == METADATA.key:
            return log.metadata()
        return refusal(log.saw(body)[0], InvalidRecord, f"no {len(log.sets)}")

    log = Log()
    async with scripted_broker(refuse) as broker, Producer(broker.address) as producer:
        answers = await asyncio.gather(
            *(producer.send("t", value) for value in (b"a", b"b", b"c")), return_exceptions=True
        )
    assert [type(one) for one in answers] == [InvalidRecord] * 3
    assert [v for _, v in log.sets] == [[b"a", b"b", b"c"], [b"a"], [b"b", b"c"], [b"b"], [b"c"]]


async def test_leaving_the_block_sends_what_is_there(scripted_broker: Any) -> None:
    log = Log()
    async with scripted_broker(log.serve) as broker:
        async with Producer(broker.address, linger_ms=3_600_000) as producer:
            waiter = await producer.enqueue("t", b"a")
        assert waiter.result().offset == 0
        with pytest.raises(ClientClosed):
            await producer.send("t", b"b")
        with pytest.raises(ClientClosed):
            await producer.send_batch("t", [b"b"])
        await producer.close()
    assert log.stored == {0: [b"a"]}


async def test_closing_without_a_flush_gives_up_what_is_not_answered(scripted_broker: Any) -> None:
    log = Log()
    gate = Gate(log)
    async with scripted_broker(gate.serve) as broker:
        producer = Producer(broker.address, buffer_bytes=2 * SIZE, batch_bytes=SIZE)
        waiters = [await producer.enqueue("t", value) for value in (b"a", b"b")]
        outside = asyncio.ensure_future(producer.send("t", b"c"))
        await log_has(log, 1)
        await producer.close(flush=False)
        answers = await asyncio.gather(*waiters, outside, return_exceptions=True)
        assert [type(one) for one in answers] == [ClientClosed] * 3
    assert log.stored == {0: [b"a"]}


async def test_who_is_interrupted_does_not_wait_for_answers(scripted_broker: Any) -> None:
    log = Log()

    async def body(address: str) -> None:
        async with Producer(address) as producer:
            await producer.send("t", b"a")

    async with scripted_broker(Gate(log).serve) as broker:
        task = asyncio.ensure_future(body(broker.address))
        await log_has(log, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 30)


def test_sizes_that_make_no_sense() -> None:
    options: Any
    for options in ({"linger_ms": -1}, {"batch_bytes": 0}, {"buffer_bytes": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            Producer("127.0.0.1:1", **options)
