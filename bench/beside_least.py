"""Compares the broker, its client library and Apache Kafka with processes that do the least work
for the same figure (`least.py`).

`loop_lines` compares the broker with least processes that have the same event loop, in turns. It
splits a request into the cost of the loop, the cost that no broker can avoid, and the rest.

Beside the times stands each process's processor time for a request, because other work on the
machine changes it least. For requests one at a time there are two more columns. `echoes` is the
processor time divided by that of an echo of the same process. `at least` is the number of echoes
that the broker would need if it did, beyond its own echo, only the work that the least process does
beyond its echo. A goal below `at least` cannot be reached.

Requests one at a time are measured three times: where the system puts the processes, with all of
them on one processor, and with the client on a processor of its own. Only one of the two processes
has work at a time. So one processor costs nothing but cache misses, and no sleeping processor has
to be woken. On a virtual machine, waking one can take longer than the request, and its cost changes
from one hour to the next. Where the system puts the processes is a matter of chance, and can differ
between the broker and a least process in one run.

`client_rows` compares the client library with clients that do only the necessary work, in turns, at
one broker.

    client_send        for each message one call of a coroutine, one read of the clock, one future,
                       one result and two places in lists. One call of the kernel encodes all
                       waiting messages; the set is sent when the set before it was answered. It
                       checks nothing, knows one partition, never retries and bounds no memory
    client_send_batch  the sets of `Producer.send_batch`. One call of the kernel makes each set
                       while the set before it is in flight. One set is in flight, because the sets
                       of a partition are sent in order. `client_send_batch 2` is the same at a
                       least broker (`appends`)
    client_columns     the fetches of `fetch_columns`. The next fetch is in flight while the kernel
                       makes the columns of the last one

`main`, which is `python -m horolog.bench.limits kafka`, shows which share of Apache Kafka's rate a
broker of one Python process can reach, and which share Horolog reaches. It sends the produce
requests and fetches of `make bench-kafka` to Kafka, Horolog and a least process, in turns. For
produce requests the least process is `kafka`, which decodes, checks, numbers, writes and answers.
For fetches it is `files`, which sends parts of a file and checks nothing.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import uvloop

from ..client.consume.consumer import Consumer
from ..client.produce.producer import Producer
from ..clock import SystemClock
from ..config.address import split_address
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.log.fetch import FETCH
from ..protocol.records.columns import read_columns
from ..protocol.records.messages.sets import build_columns
from ..testing.program import ServerProcess
from ..testing.requests import create_topic, fetch, list_offsets, produce, result
from .apache_kafka import Unavailable
from .beside_kafka import ComparedSides, Rounds, compared, in_turns, produce_rate, warm_up
from .brokers import MIB, RETENTION_LIMIT, batch, broker, echo_request, process_seconds, sets
from .client import BATCH, VALUE, open_consumer, open_producer, send_each
from .figure import times_in_turns
from .kafka_sides import Side, Sides, both, check_answer
from .least import FETCHED_BYTES, answering, looping
from .raw_client import RawClient, decoded, encoded
from .requests import fetch_all, filled

_CLIENT_ROUNDS: Final = 9

_SET_MESSAGES: Final = 7_000
"""Approximate number of messages in the largest sets of the client."""
_LENGTH_BYTES: Final = 4
_OPENED_BYTES: Final = 64 * MIB

_Place = tuple[int, int, int]
"""(partition, index in the set, time in ms)"""

Row = tuple[str, float, float, float]
"""(name, figure of the library, figure of the least client, the first divided by the second)"""
_ECHO: Final = "echo_p50"
_BROKER: Final = "broker"
_ROUNDS: Final = 20
_EACH: Final = 100
_PIPELINED_EACH: Final = 2
_BATCH: Final = 32
_BATCHES: Final = 32
_PRODUCED: Final = tuple((value, kib) for value in (100, 1024) for kib in (16, 64, 900))
_FETCHED: Final = (("fetch_1MiB", MIB), ("fetch_8MiB", 8 * MIB))
_SECONDS: Final = 0.5
_IN_FLIGHT: Final = 4
_FILLED_BYTES: Final = 64 * MIB


def client_rows() -> Iterator[Row]:
    """Return messages a second of the library and of the least clients."""
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
    ours, least = times_in_turns(works, rounds=_CLIENT_ROUNDS, each=1)
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
    """Return the produce request of one set."""
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
    """A producer for one partition of one broker."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._clock = SystemClock()
        self._values: list[bytes] = []
        self._times_ms: list[int] = []
        self._waiters: list[asyncio.Future[_Place]] = []
        self._under_way: tuple[list[asyncio.Future[_Place]], list[int]] | None = None
        """The futures and the times of the messages in the set that is in flight."""
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
        """Append a message; return where it was stored."""
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


@dataclass(slots=True)
class _Side:
    """One answering process in a comparison."""

    name: str
    request: str
    """Name of the request that it gets."""
    ask: Callable[[], object]
    pid: int
    requests: int = 1
    """Number of requests in one call of `ask`."""
    seconds: list[float] = field(default_factory=list)
    """Seconds of a request: the median of each round."""
    used: list[float] = field(default_factory=list)
    """Processor seconds of a request, for each round."""

    def measure(self, each: int) -> None:
        before = process_seconds(self.pid)
        (seconds,) = times_in_turns([self.ask], rounds=1, each=each)
        self.used.append((process_seconds(self.pid) - before) / each / self.requests)
        self.seconds.append(seconds / self.requests)


def loop_lines() -> Iterator[str]:
    """Yield the lines of three tables. There is one table if the system cannot bind a process to a
    processor, and two if the machine has one processor."""
    yield from _table("of", pipelined=True)
    if not hasattr(os, "sched_setaffinity"):
        return
    here, *others = sorted(os.sched_getaffinity(0))
    with _on(here):
        yield ""
        yield from _table("on one processor", pipelined=False)
    if others:
        with _on(others[0]):
            yield ""
            yield from _table("on one each", pipelined=False, client_at=here)


@contextmanager
def _on(processor: int) -> Iterator[None]:
    """Bind this process, and the processes that it starts in the block, to one processor."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def _table(title: str, *, pipelined: bool, client_at: int | None = None) -> Iterator[str]:
    """Yield the lines of one table. `client_at` is the processor of the client if it differs from
    that of the other processes."""
    yield f"{'':<24}{title:<16}{'us':>9}{'echoes':>9}{'at least':>10}{'cpu us':>9}"
    with broker() as (server, client), ExitStack() as stack:
        sides = [one for one in _sides(server, client, stack) if pipelined or one.requests == 1]
        if client_at is not None:
            os.sched_setaffinity(0, {client_at})
        for _ in range(_ROUNDS):
            for side in sides:
                side.measure(_EACH if side.requests == 1 else _PIPELINED_EACH)
    ours, least = (median(one.seconds) for one in sides if one.request == _ECHO)
    for side in sides:
        seconds, used = median(side.seconds), median(side.used)
        echoes = at_least = ""
        if side.requests == 1:
            is_ours = side.name == _BROKER
            echoes = f"{seconds / (ours if is_ours else least):.2f}"
            at_least = "" if is_ours else f"{(ours + seconds - least) / ours:.2f}"
        times = f"{seconds * 1e6:>9.1f}{echoes:>9}{at_least:>10}{used * 1e6:>9.1f}"
        yield f"{side.request:<24}{side.name:<16}{times}"


def _sides(server: ServerProcess, client: RawClient, stack: ExitStack) -> Iterator[_Side]:
    (fetched, *_) = filled(client, FETCHED_BYTES, 32 * MIB)
    client.call(create_topic("one"))
    requests = {
        _ECHO: echo_request(),
        "produce_one": encoded(produce("one", sets(100, 1)[0], acks=1)),
        "find_time_1": encoded(list_offsets("bench", (0, 0))),
        "fetch_64KiB": fetched,
    }
    answers = {name: bytes(client.exchange(request)) for name, request in requests.items()}
    answers["fetch_64KiB"] = answers["fetch_64KiB"][:-FETCHED_BYTES]
    folder = server.data_dir.parent
    for name, leasts in LEAST.items():
        request, answer = requests[name], answers[name]
        yield _Side(_BROKER, name, partial(client.exchange, request), server.process.pid)
        for does in leasts:
            length = len(answer) + (FETCHED_BYTES if does == "fetches" else 0)
            head = length.to_bytes(4, "big") + answer
            least, pid = stack.enter_context(looping(folder, does, head))
            yield _Side(f"loop {does}", name, partial(least.exchange, request), pid)
            if does == "appends":
                pipelined = least, pid
    one, many = requests["produce_one"] * _BATCH, _BATCH * _BATCHES
    for name, asked, pid in ((_BROKER, client, server.process.pid), ("loop appends", *pipelined)):
        ask = partial(asked.pipeline, one, _BATCH, _BATCHES, 2)
        yield _Side(name, "produce_one_pipelined", ask, pid, many)


LEAST: Final = {
    _ECHO: ("answers",),
    "produce_one": ("writes", "appends"),
    "find_time_1": ("reads",),
    "fetch_64KiB": ("fetches",),
}
"""The work of the least processes for each request."""


class _Least(Side):
    """A least process that has one topic with one partition, under any name.

    It stands in for `Sides.fsync`, which is not used here.
    """

    def topic(self, what: str, **settings: object) -> str:
        return what

    def check_end(self, topic: str, messages: int) -> None:
        """Do nothing: each answer was checked for errors."""


def main() -> int:
    print(f"{'':<24}{'Kafka':>14}{'Horolog':>14}{'ratio':>7}{'least':>14}{'ratio':>7}")
    try:
        with both() as sides, TemporaryDirectory() as folder:
            warm_up(sides.kafka)
            for row in chain(_produced(sides, Path(folder)), _fetched(sides, Path(folder))):
                assert row.fsync is not None
                figures = f"{row.kafka:>14,.5g}{row.horolog:>14,.5g}{row.ratio:>7.2f}"
                print(
                    f"{row.name:<24}{figures}{row.fsync:>14,.5g}{row.fsync / row.kafka:>7.2f}",
                    flush=True,
                )
    except Unavailable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _produced(sides: Sides, folder: Path) -> Iterator[ComparedSides]:
    with looping(folder, "kafka") as (client, pid):
        least = _Least(sides.fsync.name, "", pid, client)
        for value_bytes, kib in _PRODUCED:
            name = f"produce_{'100B' if value_bytes == 100 else '1KiB'}_{kib}KiB"
            yield from produce_rate(replace(sides, fsync=least), name, value_bytes, kib << 10)


def _fetched(sides: Sides, folder: Path) -> Iterator[ComparedSides]:
    data, _ = batch(100, 64 << 10)
    pair = (sides.kafka, sides.written)
    topics = {side.name: side.topic("fetched", retention_ms=-1) for side in pair}
    for side in pair:
        times = _FILLED_BYTES // len(data)
        side.client.pipeline(side.produce(topics[side.name], data), 1, times, _IN_FLIGHT)
    for name, size_bytes in _FETCHED:
        requests = {
            side.name: side.request(
                fetch(topics[side.name], (0, 0), partition_max_bytes=size_bytes)
            )
            for side in pair
        }
        ours = sides.written
        frame = bytes(ours.client.exchange(requests[ours.name]))
        answer = len(frame).to_bytes(4, "big") + frame
        head_bytes = len(answer) - len(result(check_answer(memoryview(frame), FETCH)).records)
        with answering(folder, answer, head_bytes, encoding=kafka) as client:
            requests[sides.fsync.name] = requests[ours.name]
            least = _Least(sides.fsync.name, "", 0, client)
            work = partial(_fetch_rate, requests)
            in_turns((*pair, least), work)
            found: Rounds = in_turns((*pair, least), work)
        yield compared(name, "bytes/s", found)


def _fetch_rate(requests: Mapping[str, bytes], side: Side) -> float:
    """Return bytes a second of one request that is repeated."""
    began, done = time.perf_counter(), 0
    while (taken := time.perf_counter() - began) < _SECONDS:
        done += fetch_all(side.client, [requests[side.name]] * 8, _IN_FLIGHT)
    return done / taken
