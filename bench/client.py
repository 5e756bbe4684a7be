"""Messages a second through the client library, from one process with one event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from statistics import median
from typing import Any, Final

import uvloop

from ..client.consume.consumer import Consumer
from ..client.consume.tables import read_window
from ..client.produce.producer import Producer
from ..clock import SystemClock
from ..testing.requests import create_topic
from .brokers import MIB, RETENTION_LIMIT, broker
from .figure import Figure, rates
from .raw_client import check_end

VALUE: Final = b"v" * 100
BATCH: Final = 100_000
_SENDERS: Final = 2_000
_SENDS_EACH: Final = 20
_STORED: Final = 1_000_000
_ROUNDS: Final = 7
_SECONDS: Final = 0.5


def client_send() -> Iterator[Figure]:
    """Yield messages a second of `await producer.send(...)`, called in many tasks. Each task waits
    for its answer."""

    def step(producer: Producer) -> Coroutine[Any, Any, int]:
        return send_each(partial(producer.send, "bench"))

    yield from _produced("client_send", step)


async def send_each(send: Callable[[bytes], Awaitable[object]]) -> int:
    """Call `send` in many tasks; return the number of calls."""

    async def sender() -> None:
        for _ in range(_SENDS_EACH):
            await send(VALUE)

    await asyncio.gather(*(sender() for _ in range(_SENDERS)))
    return _SENDERS * _SENDS_EACH


def client_send_batch() -> Iterator[Figure]:
    """Yield messages a second of `await producer.send_batch(...)` with columns: a list of values
    and a list of times."""

    async def step(producer: Producer) -> int:
        times_ms = [SystemClock().now_ms()] * BATCH
        sent = await producer.send_batch("bench", [VALUE] * BATCH, timestamps_ms=times_ms)
        return sent.count

    yield from _produced("client_send_batch", step)


def _produced(name: str, step: Callable[[Producer], Coroutine[Any, Any, int]]) -> Iterator[Figure]:
    with (
        broker() as (server, raw),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        raw.call(create_topic("bench", **RETENTION_LIMIT))
        sent = 0

        producer = runner.run(open_producer(server.native))

        def work() -> int:
            nonlocal sent
            count = runner.run(step(producer))
            sent += count
            return count

        work()
        found = rates(work, rounds=_ROUNDS, seconds=_SECONDS)
        runner.run(producer.close())
        check_end(raw, "bench", sent)
        yield Figure(name, median(found), "msg/s")


async def open_producer(address: str) -> Producer:
    return await Producer(address, acks=1).__aenter__()


async def open_consumer(address: str) -> Consumer:
    consumer = await Consumer(address, partition_max_bytes=MIB).__aenter__()
    consumer.assign("bench", 0, offset=0)
    return consumer


def client_columns() -> Iterator[Figure]:
    """Yield messages a second of `await consumer.fetch_columns()`, over a whole log that is in
    memory."""

    async def read_all(consumer: Consumer) -> int:
        consumer.seek("bench", 0, 0)
        count = 0
        while count < _STORED:
            count += sum(batch.count for batch in await consumer.fetch_columns())
        return count

    with (
        broker() as (server, raw),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        raw.call(create_topic("bench", retention_ms=-1))
        runner.run(_fill(server.native))
        check_end(raw, "bench", _STORED)
        consumer = runner.run(open_consumer(server.native))
        runner.run(read_all(consumer))
        found = rates(lambda: runner.run(read_all(consumer)), rounds=_ROUNDS, seconds=_SECONDS)
        runner.run(consumer.close())
        yield Figure("client_columns", median(found), "msg/s")


def client_arrow() -> Iterator[Figure]:
    """Yield messages a second of `read_window(...)`, over a whole log that is in memory."""
    with broker() as (server, raw):
        raw.call(create_topic("bench", retention_ms=-1))
        asyncio.run(_fill(server.native))
        check_end(raw, "bench", _STORED)

        def read_all() -> int:
            count: int = sum(batch.num_rows for batch in read_window(server.native, "bench"))
            assert count == _STORED, f"{count} rows of {_STORED}"
            return count

        read_all()
        found = rates(read_all, rounds=_ROUNDS, seconds=_SECONDS)
        yield Figure("client_arrow", median(found), "msg/s")


async def _fill(address: str) -> None:
    async with Producer(address, acks=1) as producer:
        for _ in range(_STORED // BATCH):
            await producer.send_batch("bench", [VALUE] * BATCH)
