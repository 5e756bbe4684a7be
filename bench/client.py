"""Messages a second through the client library, from one process with one event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from statistics import median
from typing import Any, Final

import uvloop

from ..client.consume.consumer import Consumer
from ..client.produce.producer import Producer
from ..clock import SystemClock
from ..testing.requests import create_topic
from .brokers import MIB, RETENTION_LIMIT, broker
from .figure import Figure, rates
from .raw_client import check_end

_VALUE: Final = b"v" * 100
_BATCH: Final = 100_000
_SENDERS: Final = 2_000
_SENDS_EACH: Final = 20
_STORED: Final = 1_000_000
_ROUNDS: Final = 7
_SECONDS: Final = 0.5


def client_send() -> Iterator[Figure]:
    """`await producer.send(...)` in many tasks, each of which waits for its answer."""

    async def step(producer: Producer) -> int:
        async def sender() -> None:
            for _ in range(_SENDS_EACH):
                await producer.send("bench", _VALUE)

        await asyncio.gather(*(sender() for _ in range(_SENDERS)))
        return _SENDERS * _SENDS_EACH

    yield from _produced("client_send", step)


def client_send_batch() -> Iterator[Figure]:
    """`await producer.send_batch(...)` of columns: a list of values and one of times."""

    async def step(producer: Producer) -> int:
        times_ms = [SystemClock().now_ms()] * _BATCH
        sent = await producer.send_batch("bench", [_VALUE] * _BATCH, timestamps_ms=times_ms)
        return sent.count

    yield from _produced("client_send_batch", step)


def _produced(name: str, step: Callable[[Producer], Coroutine[Any, Any, int]]) -> Iterator[Figure]:
    with (
        broker() as (server, raw),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        raw.call(create_topic("bench", **RETENTION_LIMIT))
        sent = 0

        async def open_producer() -> Producer:
            return await Producer(server.native, acks=1).__aenter__()

        producer = runner.run(open_producer())

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


def client_columns() -> Iterator[Figure]:
    """`await consumer.fetch_columns()` from the beginning to the end of a log in memory."""

    async def fill(address: str) -> None:
        async with Producer(address, acks=1) as producer:
            for _ in range(_STORED // _BATCH):
                await producer.send_batch("bench", [_VALUE] * _BATCH)

    async def open_consumer(address: str) -> Consumer:
        consumer = await Consumer(address, partition_max_bytes=MIB).__aenter__()
        consumer.assign("bench", 0, offset=0)
        return consumer

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
        runner.run(fill(server.native))
        check_end(raw, "bench", _STORED)
        consumer = runner.run(open_consumer(server.native))
        runner.run(read_all(consumer))
        found = rates(lambda: runner.run(read_all(consumer)), rounds=_ROUNDS, seconds=_SECONDS)
        runner.run(consumer.close())
        yield Figure("client_columns", median(found), "msg/s")
