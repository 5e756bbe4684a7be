"""What no client library in Python exceeds: its figures beside clients that do only what cannot be
left out, in turns, at one broker.

    client_send        one call of a coroutine, one look at the clock, one future, one result and
                       two places in lists for each message; what has come is encoded with one call
                       of the kernel, and goes when the set before it has been answered. It checks
                       nothing, knows one partition, sends nothing again and bounds no memory
    client_send_batch  the sets of `Producer.send_batch`, each made with one call of the kernel
                       while the one before it is in flight, and one in flight, because the sets of
                       a partition go one after the other. `client_send_batch 2` is the same beside
                       a least broker (`loops.py`, `appends`)
    client_columns     the fetches of `fetch_columns`, the next one under way while the columns of
                       one are made by the kernel
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Final, cast

import uvloop

from ...client.consume.consumer import Consumer
from ...client.produce.producer import Producer
from ...clock import SystemClock
from ...config.address import split_address
from ...protocol.api.log.fetch import FETCH
from ...protocol.records.columns import read_columns
from ...protocol.records.messages.sets import build_columns
from ...testing.requests import create_topic, produce, result
from ..brokers import MIB, RETENTION_LIMIT, broker, sets
from ..client import BATCH, VALUE, open_consumer, open_producer, send_each
from ..fetching import filled
from ..figure import times_in_turns
from ..raw_client import RawClient, decoded, encoded
from .loops import looping

_ROUNDS: Final = 9
_SET_MESSAGES: Final = 7_000
"""About as many as the client's largest sets have."""
_LENGTH_BYTES: Final = 4
_OPENED_BYTES: Final = 64 * MIB

_Place = tuple[int, int, int]
"""A partition, a number in the set, and a time."""

Row = tuple[str, float, float, float]
"""A name, the library's figure, that of the least client, and the first as a share of it."""


def rows() -> Iterator[Row]:
    """Messages a second."""
    with (
        broker() as (server, raw),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        raw.call(create_topic("bench", **RETENTION_LIMIT))
        producer = runner.run(open_producer(server.native))
        yield _sends(runner, producer, server.native)
        with looping(server.data_dir.parent, "appends") as (least_broker, _):
            yield from _batches(runner, producer, raw, least_broker)
        runner.run(producer.close())
    with (
        broker() as (server, raw),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        requests = filled(raw, MIB, 128 * MIB)
        consumer = runner.run(open_consumer(server.native))
        yield _columns(runner, consumer, raw, requests)
        runner.run(consumer.close())


def _row(name: str, messages: int, works: Sequence[Callable[[], object]]) -> Row:
    for work in works:
        work()
    ours, least = times_in_turns(works, rounds=_ROUNDS, each=1)
    return name, messages / ours, messages / least, least / ours


def _sends(runner: asyncio.Runner, producer: Producer, address: str) -> Row:
    least = runner.run(_LeastProducer.connected(address))

    def work(send: Callable[[bytes], Awaitable[object]]) -> Callable[[], int]:
        return lambda: runner.run(send_each(send))

    works = work(partial(producer.send, "bench")), work(least.send)
    row = _row("client_send", works[0](), works)
    runner.run(least.close())
    return row


def _batches(
    runner: asyncio.Runner, producer: Producer, raw: RawClient, least_broker: RawClient
) -> Iterator[Row]:
    _, count = sets(100, runner.run(producer.set_bytes_for("bench")))
    times = BATCH // count
    values, times_ms = [VALUE] * (times * count), [SystemClock().now_ms()] * (times * count)

    def send() -> Coroutine[Any, Any, object]:
        return producer.send_batch("bench", values, timestamps_ms=times_ms)

    def least(client: RawClient) -> None:
        made = _made(values[:count], times_ms[:count])
        for following in range(count, (times + 1) * count, count):
            client.send(made)
            if following < times * count:
                rows = slice(following, following + count)
                made = _made(values[rows], times_ms[rows])
            client.answer()

    name, works = "client_send_batch", (lambda: runner.run(send()), partial(least, raw))
    yield _row(name, times * count, works)
    yield _row(f"{name} 2", times * count, (works[0], partial(least, least_broker)))


def _made(values: list[bytes], times_ms: list[int]) -> bytes:
    """The request of one set."""
    return encoded(produce("bench", build_columns(values, times_ms, None), acks=1))


def _columns(
    runner: asyncio.Runner, consumer: Consumer, raw: RawClient, requests: Sequence[bytes]
) -> Row:
    answer = raw.exchange(requests[0])
    records = result(decoded(FETCH, FETCH.last_version(native=True), answer)).records
    messages, head_bytes = _rows_of(records), len(answer) - len(records)

    def least() -> None:
        raw.send(requests[0])
        for request in requests[1:]:
            frame = raw.answer()
            raw.send(request)
            _rows_of(frame[head_bytes:])
        _rows_of(raw.answer()[head_bytes:])

    async def read() -> None:
        consumer.seek("bench", 0, 0)
        for _ in requests:
            await consumer.fetch_columns()

    return _row("client_columns", messages * len(requests), (lambda: runner.run(read()), least))


def _rows_of(records: bytes | memoryview) -> int:
    found = read_columns(records, max_decompressed_bytes=_OPENED_BYTES)
    return sum(columns.count for columns in found)


class _LeastProducer(asyncio.Protocol):
    """Sends to one partition of one broker."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._clock = SystemClock()
        self._values: list[bytes] = []
        self._times_ms: list[int] = []
        self._waiters: list[asyncio.Future[_Place]] = []
        self._under_way: tuple[list[asyncio.Future[_Place]], list[int]] | None = None
        """Who waits for the set that is under way, and the times of its messages."""
        self._due = False
        self._received = bytearray()

    @classmethod
    async def connected(cls, address: str) -> "_LeastProducer":
        loop = asyncio.get_running_loop()
        _, producer = await loop.create_connection(cls, *split_address(address))
        return producer

    async def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    async def send(self, value: bytes) -> _Place:
        """Append a message; where it is."""
        waiter: asyncio.Future[_Place] = self._loop.create_future()
        self._values.append(value)
        self._times_ms.append(self._clock.now_ms())
        self._waiters.append(waiter)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._send_set)
        return await waiter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _LENGTH_BYTES:
            size = _LENGTH_BYTES + int.from_bytes(received[:_LENGTH_BYTES], "big")
            if len(received) < size:
                break
            del received[:size]
            assert self._under_way is not None
            (waiters, times_ms), self._under_way = self._under_way, None
            self._send_set()
            for number, (waiter, time_ms) in enumerate(zip(waiters, times_ms, strict=True)):
                waiter.set_result((0, number, time_ms))

    def _send_set(self) -> None:
        assert self._transport is not None
        self._due = False
        if self._values and self._under_way is None:
            values, times_ms = self._values[:_SET_MESSAGES], self._times_ms[:_SET_MESSAGES]
            self._under_way = self._waiters[:_SET_MESSAGES], times_ms
            for column in (self._values, self._times_ms, self._waiters):
                del column[:_SET_MESSAGES]
            self._transport.write(_made(values, times_ms))
