"""A reader that is closed, or a step that is cancelled, never looks like the end of messages."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from horolog import (
    Admin,
    ClientClosed,
    ColumnBatch,
    Consumer,
    ConsumerRecord,
    NewRecord,
    Producer,
    TimeWindow,
    blocking,
)
from horolog.protocol.api.log.count_by_time import CountByTimeResponse
from horolog.server.broker import Broker
from horolog.testing.broker import BrokerThread, running_broker

T0 = 1_479_144_272_000
SETS = 20
"""Sets of each partition, of two messages each."""

TOTAL = 2 * 2 * SETS

WITHIN_S = 60
"""A call that should have ended is not waited for any longer."""

Message = ConsumerRecord | ColumnBatch


async def fill(address: str) -> None:
    """Fill the topic `t`, which has two partitions."""
    records = [NewRecord(bytes(500), None, T0), NewRecord(bytes(500), None, T0 + 1)]
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("t", partitions=2)
        for number in range(2 * SETS):
            await producer.send_many("t", records, partition=number % 2)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path, http_listen="off", kafka_listen="127.0.0.1:0", retention_ms=-1
    ) as started:
        await fill(str(started.addresses.native))
        yield started


@pytest.fixture(params=["native", "kafka"])
def reader_address(request: pytest.FixtureRequest, broker: Broker) -> str:
    native, kafka = broker.addresses.native, broker.addresses.kafka
    return str(native) if request.param == "native" else f"kafka://{kafka}"


def messages_of(window: TimeWindow, *, in_columns: bool) -> AsyncIterator[Message]:
    return window.columns() if in_columns else aiter(window)


def count(message: Message) -> int:
    return message.count if isinstance(message, ColumnBatch) else 1


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("whole_client", [False, True])
async def test_a_closed_window(reader_address: str, in_columns: bool, whole_client: bool) -> None:
    async with Consumer(reader_address) as consumer:
        window = consumer.window("t", T0, None)
        messages = messages_of(window, in_columns=in_columns)
        await anext(messages)
        await (consumer if whole_client else window).close()
        for _ in range(2):
            with pytest.raises(ClientClosed, match="closed before its end was reached"):
                await anext(messages)
    with pytest.raises(ClientClosed):
        await anext(messages)


@pytest.mark.parametrize("in_columns", [False, True])
async def test_a_window_that_was_read_to_its_end_stays_so(
    reader_address: str, in_columns: bool
) -> None:
    async with Consumer(reader_address) as consumer:
        window = consumer.window("t", T0, None)
        messages = messages_of(window, in_columns=in_columns)
        assert sum([count(each) async for each in messages]) == window.messages == TOTAL
        await window.close()
        assert [each async for each in messages] == []
    assert [each async for each in messages] == []


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("whole_client", [False, True])
async def test_a_window_that_is_closed_while_it_waits(
    reader_address: str, in_columns: bool, whole_client: bool
) -> None:
    async with Consumer(reader_address, max_wait_ms=60_000) as consumer:
        window = consumer.window("t", T0 + 2, None, follow=timedelta(days=1))
        messages = messages_of(window, in_columns=in_columns)

        async def step() -> Message:
            return await anext(messages)

        waiting = asyncio.create_task(step())
        await asyncio.wait({waiting}, timeout=0.1)
        await (consumer if whole_client else window).close()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(waiting, WITHIN_S)


async def test_a_closed_consumer_returns_nothing_more(reader_address: str) -> None:
    async with Consumer(reader_address) as consumer:
        consumer.assign("t")
        await anext(consumer)
        await consumer.close()
        for call in (consumer.__anext__, consumer.fetch, consumer.fetch_columns, consumer.fill):
            with pytest.raises(ClientClosed):
                await call()
        with pytest.raises(ClientClosed):
            consumer.take()


@pytest.mark.parametrize("step", ["__anext__", "fetch", "fetch_columns"])
async def test_a_consumer_that_is_closed_while_it_waits(reader_address: str, step: str) -> None:
    async with Consumer(reader_address, max_wait_ms=60_000) as consumer:
        consumer.assign("t")
        await consumer.seek_to_end()
        waiting = asyncio.create_task(getattr(consumer, step)())
        await asyncio.wait({waiting}, timeout=0.1)
        await consumer.close()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(waiting, WITHIN_S)


@pytest.mark.parametrize("in_columns", [False, True])
async def test_a_cancelled_step_loses_nothing(reader_address: str, in_columns: bool) -> None:
    async with Consumer(reader_address, partition_max_bytes=1) as consumer:
        window = consumer.window("t", T0, None)
        messages = messages_of(window, in_columns=in_columns)
        offsets: list[tuple[int, int]] = []
        turns = 0
        while True:
            step = asyncio.ensure_future(anext(messages))
            for _ in range(turns % 7):
                await asyncio.sleep(0)
            turns += 1
            if turns < 300:
                step.cancel()
            try:
                each = await step
            except asyncio.CancelledError:
                continue
            except StopAsyncIteration:
                break
            if isinstance(each, ColumnBatch):
                offsets += [(each.partition, offset) for offset in each.offsets]
            else:
                offsets.append((each.partition, each.offset))
        assert offsets == [(n, offset) for n in range(2) for offset in range(2 * SETS)]
        assert window.messages == TOTAL


async def test_columns_go_on_where_another_iterator_stopped(reader_address: str) -> None:
    async with Consumer(reader_address) as consumer:
        window = consumer.window("t", T0, None)
        first = await anext(window.columns(columns=["values"]))
        with pytest.raises(ValueError, match=r"with the columns \['values'\]"):
            await anext(window.columns())
        rest = [batch.count async for batch in window.columns(columns=["values"])]
        assert first.count + sum(rest) == TOTAL


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    settings = {"kafka.listen": "127.0.0.1:0", "retention.ms": "-1"}
    with BrokerThread(tmp_path_factory.mktemp("data"), settings) as running:
        asyncio.run(fill(running.address))
        yield running


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("whole_client", [False, True])
def test_the_blocking_forms(thread: BrokerThread, in_columns: bool, whole_client: bool) -> None:
    for address in (thread.address, f"kafka://{thread.kafka_address}"):
        with blocking.Consumer(address) as consumer:
            window = consumer.window("t", T0, None)
            window.begin()
            assert window.count_untimed() == (0 if address == thread.address else None)
            messages: Iterator[Message] = window.columns() if in_columns else iter(window)
            next(messages)
            (consumer if whole_client else window).close()
            for _ in range(2):
                with pytest.raises(ClientClosed):
                    deque(messages, maxlen=0)


def test_a_blocking_consumer(thread: BrokerThread) -> None:
    with blocking.Consumer(thread.address) as consumer:
        consumer.assign("t")
        next(consumer)
        consumer.close()
        with pytest.raises(ClientClosed):
            next(consumer)
        with pytest.raises(ClientClosed):
            consumer.take()


async def test_a_close_that_is_cancelled_closes_the_connections(
    reader_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(reader_address)
    window = consumer.window("t", None, None)
    await anext(window)

    async def never() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(window, "close", never)
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(ClientClosed):
        await consumer._cluster.partition_counts(["t"])


async def test_an_answer_that_goes_back_costs_only_the_count(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages without a time are counted after a window, which is not lost with the count."""
    async with Consumer(str(broker.addresses.native)) as consumer:
        window = consumer.window("t", None, None)
        await anext(window)
        assert await window.count_untimed() == 0
        back = CountByTimeResponse(next_offset=0)

        async def answer(*asked: object, **options: object) -> CountByTimeResponse:
            return back

        monkeypatch.setattr(window._cluster, "request", answer)
        assert await window.count_untimed() is None
