"""A producer whose broker goes away, says nothing, or cannot for a while."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from horolog import (
    ConnectionFailed,
    Consumer,
    LeaderNotAvailable,
    NewRecord,
    Producer,
    RequestTimedOut,
    StorageError,
)
from horolog.client.client import route_to
from horolog.client.cluster.retry import Backoff, retry
from horolog.client.produce.delivery import Delivery
from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native.frames import RequestHead
from horolog.protocol.api.topics.metadata import METADATA
from horolog.protocol.errors import HorologError, InvalidTopic
from horolog.protocol.records.messages.sets import build_set

from .conftest import Expire
from .fakes import Log, refusal
from .test_consumer import fetching


class Flaky:
    """A scripted broker that treats the first sets as told, and then takes everything."""

    def __init__(self, *faults: Any) -> None:
        self.log = Log()
        self.faults = list(faults)
        self.when_silent: Callable[[], None] = lambda: None

    async def serve(self, head: RequestHead, body: Any, writer: Any) -> Any:
        if head.api_key == METADATA.key:
            return self.log.metadata()
        if not self.faults:
            return self.log.append(body)
        partition, _ = self.log.saw(body)
        fault = self.faults.pop(0)
        if fault == "break":
            writer.transport.abort()
            return None
        if fault == "append and break":
            self.log.sets.pop()
            self.log.append(body)
            writer.transport.abort()
            return None
        if fault == "silence":
            self.when_silent()
            return None
        return refusal(partition, fault)


FIRST, SECOND = [b"a"], [b"b", b"c"]


async def send_three(address: str, **options: Any) -> list[int]:
    """One set and then another; the offsets in the order of sending."""
    async with Producer(address, **options) as producer:
        first = await producer.enqueue("t", b"a")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiters = [first] + [await producer.enqueue("t", value) for value in SECOND]
        return [one.offset for one in await asyncio.gather(*waiters)]


@pytest.mark.parametrize("fault", ["break", LeaderNotAvailable, StorageError])
async def test_a_set_that_has_to_go_again_is_not_overtaken(
    scripted_broker: Any, fault: Any
) -> None:
    flaky = Flaky(fault, fault)
    async with scripted_broker(flaky.serve) as broker:
        assert await send_three(broker.address) == [0, 1, 2]
    assert [values for _, values in flaky.log.sets] == [FIRST, FIRST, FIRST, SECOND]
    assert flaky.log.stored == {0: [b"a", b"b", b"c"]}


async def test_a_lost_answer_means_a_second_copy_in_its_place(scripted_broker: Any) -> None:
    flaky = Flaky("append and break")
    async with scripted_broker(flaky.serve) as broker:
        assert await send_three(broker.address) == [1, 2, 3]
    assert flaky.log.stored == {0: [b"a", b"a", b"b", b"c"]}


async def test_a_silent_connection_is_given_up_for_a_new_one(
    scripted_broker: Any, expire: Expire
) -> None:
    flaky = Flaky("silence", "silence")
    flaky.when_silent = partial(expire, PRODUCE)
    async with scripted_broker(flaky.serve) as broker:
        assert await send_three(broker.address, acks=1) == [0, 1, 2]
        assert len(broker.connections) == 3
    assert [values for _, values in flaky.log.sets] == [FIRST, FIRST, FIRST, SECOND]


async def test_a_broker_that_answers_nothing_fails_all_in_time(scripted_broker: Any) -> None:
    flaky = Flaky(*["silence"] * 50)
    async with (
        scripted_broker(flaky.serve) as broker,
        Producer(broker.address, delivery_timeout_ms=1500, batch_bytes=1) as producer,
    ):
        # In one go: what comes later has its time for longer.
        waiters = await asyncio.gather(*(producer.enqueue("t", b"%d" % n) for n in range(5)))
        answers = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(one) for one in answers] == [RequestTimedOut] * 5
    assert "delivery_timeout_ms=1500" in str(answers[0])
    not_sent = [
        b"%d" % number
        for number, one in enumerate(answers)
        if "not sent: delivery_timeout_ms=1500 was over" in str(one)
    ]
    assert not_sent
    # A set that was sent just before its deadline may not have been read by the broker.
    assert not {value for _, (value,) in flaky.log.sets} & set(not_sent)


async def test_a_set_is_not_sent_when_less_is_left_than_a_step_of_the_clock(
    scripted_broker: Any,
) -> None:
    flaky = Flaky()
    async with scripted_broker(flaky.serve) as broker:
        cluster = route_to(broker.address, client_id=None, request_timeout_ms=30_000)
        delivery = Delivery(cluster, ack_timeout_ms=300, delivery_timeout_ms=300)
        for left_s in (0.0004, 1e-9, 0.0, -1e-9):
            since = asyncio.get_running_loop().time() - 0.3 + left_s
            with pytest.raises(RequestTimedOut, match="not sent: delivery_timeout_ms=300"):
                await delivery.until_answered("t", 0, b"", 1, since=since)
        await cluster.close()
    assert flaky.log.sets == []


async def test_a_broker_that_is_gone_fails_all_in_time(scripted_broker: Any) -> None:
    async with scripted_broker(Flaky().serve) as broker:
        producer = Producer(broker.address, delivery_timeout_ms=1500)
        await producer.partition_for("t", None)
    with pytest.raises(ConnectionFailed, match="given up after delivery_timeout_ms=1500"):
        await producer.send("t", b"a")
    await producer.close()


async def test_what_no_waiting_helps_is_told_at_once(scripted_broker: Any) -> None:
    flaky = Flaky(InvalidTopic)
    async with scripted_broker(flaky.serve) as broker, Producer(broker.address) as producer:
        with pytest.raises(InvalidTopic):
            await producer.send("t", b"a")
    assert len(flaky.log.sets) == 1


async def test_p13_a_timed_out_wait_is_an_answer(scripted_broker: Any) -> None:
    """Sending the set again would double it, unless it is numbered."""
    flaky = Flaky(RequestTimedOut)
    async with scripted_broker(flaky.serve) as broker, Producer(broker.address) as producer:
        await producer.send("t", b"a")
    assert len(flaky.log.sets) == 2
    flaky = Flaky(RequestTimedOut)
    async with (
        scripted_broker(flaky.serve) as broker,
        Producer(broker.address, idempotent=False) as producer,
    ):
        with pytest.raises(RequestTimedOut, match=r"no$"):
            await producer.send("t", b"a")
    assert len(flaky.log.sets) == 1


async def test_without_acks_a_lost_connection_is_made_again(scripted_broker: Any) -> None:
    flaky = Flaky("break")
    async with scripted_broker(flaky.serve) as broker, Producer(broker.address, acks=0) as producer:
        await producer.send("t", b"lost")
        await flaky.log.arrived.wait()
        flaky.log.arrived.clear()
        while not flaky.log.stored:
            await producer.send("t", b"kept")
    assert set(flaky.log.stored[0]) == {b"kept"}


async def test_a_reader_leaves_a_connection_that_has_gone_silent(
    scripted_broker: Any, expire: Expire
) -> None:
    async def silent_once(head: RequestHead, body: Any, writer: Any) -> Any:
        if head.api_key == FETCH.key and len(broker.connections) == 1:
            expire(FETCH)
            return None
        return await whole(head, body, writer)

    whole = fetching(bytes(build_set([NewRecord(b"a"), NewRecord(b"b")])))
    async with (
        scripted_broker(silent_once) as broker,
        Consumer(broker.address, max_wait_ms=0) as consumer,
    ):
        consumer.assign("t", 0, offset=0)
        assert [record.value for record in await consumer.fetch()] == [b"a", b"b"]
        assert len(broker.connections) == 2


class TestBackoff:
    def test_it_doubles_up_to_its_limit_with_chance(self) -> None:
        for seed in range(50):
            backoff = Backoff(100, 1_000, chance=random.Random(seed))
            waits = [backoff.next_s() for _ in range(8)]
            for wait_s, whole_s in zip(waits, (0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1), strict=True):
                assert whole_s / 2 <= wait_s <= whole_s
            assert len(set(waits)) == 8
            backoff.reset()
            assert backoff.next_s() <= 0.1

    def test_many_failures_are_no_number_too_large(self) -> None:
        backoff = Backoff()
        assert max(backoff.next_s() for _ in range(5_000)) <= 2


class TestPatience:
    async def test_the_time_counts_from_the_first_failure(self) -> None:
        calls = 0

        async def slow_then_gone() -> None:
            nonlocal calls
            calls += 1
            raise ConnectionFailed("gone")

        with pytest.raises(ConnectionFailed, match="gone; given up after x_ms=120"):
            await retry(slow_then_gone, timeout_ms=120, setting="x_ms")
        assert calls >= 2

    async def test_an_end_that_has_passed_is_an_end(self) -> None:
        async def never() -> None:
            await asyncio.Event().wait()

        before = asyncio.get_running_loop().time() - 1
        with pytest.raises(RequestTimedOut, match="no answer within x_ms=5"):
            await retry(never, timeout_ms=5, setting="x_ms", until=before)

    async def test_a_timeout_of_somebody_else_stays_one(self) -> None:
        async def somebody() -> None:
            raise TimeoutError("else")

        with pytest.raises(TimeoutError, match="else"):
            await retry(somebody, timeout_ms=5, setting="x_ms")

    async def test_errors_keep_their_class(self) -> None:
        async def full() -> None:
            raise StorageError("disk full")

        with pytest.raises(HorologError) as caught:
            await retry(full, timeout_ms=1, setting="x_ms", retriable=(StorageError,))
        assert caught.value.message == "disk full; given up after x_ms=1"


async def test_one_attempt_to_connect_answers_all_who_wait() -> None:
    """Fifty senders do not make fifty attempts."""
    attempts = 0

    async def refuse(_: Any, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with contextlib.AsyncExitStack() as stack:
            producer = Producer(address, delivery_timeout_ms=0)
            stack.push_async_callback(producer.close)
            sends = [producer.send("t", b"a", partition=number) for number in range(50)]
            answers = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(one) for one in answers} == {ConnectionFailed}
        assert attempts == 1
