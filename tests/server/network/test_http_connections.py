"""Connections of the HTTP port: how many there may be, and how long each may take."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from horolog.clock import SystemClock
from horolog.config.address import split_address
from horolog.server.metrics.figures import Figures
from horolog.server.network.listener import HTTP_CONNECTIONS, address_of, bind
from horolog.server.web.port import HttpLimits, HttpPort
from horolog.server.web.server import HttpServer, HttpState
from horolog.testing.broker import plain_port
from horolog.testing.logs import RecordedEvents
from horolog.testing.waiting import until

pytestmark = pytest.mark.both_loops

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
OK = b"HTTP/1.1 200 OK"
LONG = 3600.0


class Port:
    """A running HTTP port and what it counts."""

    def __init__(self, address: str, figures: Figures, events: RecordedEvents) -> None:
        self.address = split_address(address)
        self.figures = figures
        self.events = events


@asynccontextmanager
async def http_port(limits: HttpLimits, text: bytes = b"") -> AsyncIterator[Port]:
    figures, events = Figures(SystemClock(), 1000), RecordedEvents()

    async def render() -> bytes:
        return text

    server = HttpServer(HttpPort(figures, events, limits=limits), render, lambda: HttpState.READY)
    listening = bind("127.0.0.1:0", "http.listen")
    listening.listen()
    port = Port(address_of(listening), figures, events)
    await server.start([plain_port(listening)])
    try:
        yield port
    finally:
        await server.stop()
    await until(lambda: figures.http_connections == 0)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: bytes = HEAD) -> bytes:
        self.writer.write(request)
        return await self.reader.readuntil(b"\r\n\r\nok\n")

    async def closed(self) -> bool:
        """Wait until the other side closes; False if it says something instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def connected(port: Port, host: str = "127.0.0.1") -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(*port.address, local_addr=(host, 0))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def limits(head: float = LONG, idle: float = LONG, connections: int = 10) -> HttpLimits:
    return HttpLimits(connections=connections, head_seconds=head, idle_seconds=idle)


def test_the_limits_there_are() -> None:
    assert HTTP_CONNECTIONS == 200
    assert HttpLimits() == HttpLimits(200, 0, 10.0, 60.0)


@pytest.mark.parametrize("before", [b"", HEAD], ids=["first", "later"])
@pytest.mark.parametrize("sent", [b"", b"GET /hea", HEAD[:-2]], ids=["none", "line", "head"])
async def test_half_a_head_meets_its_deadline(before: bytes, sent: bytes) -> None:
    async with http_port(limits(head=0.15)) as port, connected(port) as client:
        if before:
            await client.ask(before)
            sent = sent or b"G"
        client.writer.write(sent)
        assert await client.closed()
        assert port.figures.connections_dropped == {"http_head": 1}
        (dropped,) = port.events.named("connection_dropped")
        assert "0.15 s" in dropped["cause"]


async def test_a_trickle_does_not_prolong_the_deadline() -> None:
    async with http_port(limits(head=0.15)) as port, connected(port) as slow:
        slow.writer.write(HEAD[:-2] + b"A: ")
        ended = asyncio.ensure_future(slow.closed())
        while not ended.done():
            slow.writer.write(b"b")
            async with connected(port) as honest:
                await honest.ask()
        assert await ended
    assert port.figures.connections_dropped == {"http_head": 1}


async def test_an_idle_connection_is_closed_and_one_in_use_is_not() -> None:
    loop = asyncio.get_running_loop()
    async with http_port(limits(idle=0.3)) as port, connected(port) as idle:
        await idle.ask()
        ended = asyncio.ensure_future(idle.closed())
        async with connected(port) as used:
            started = loop.time()
            while not ended.done() or loop.time() < started + 0.6:
                await used.ask()
        assert await ended
        assert port.figures.connections_dropped == {"http_idle": 1}
        assert port.events.named("connection_idle")
        assert not port.events.named("connection_dropped")


async def test_half_a_head_behind_a_request_counts_as_idle() -> None:
    async with http_port(limits(idle=0.15)) as port, connected(port) as client:
        await client.ask(HEAD + HEAD[:-2])
        assert await client.closed()
        assert port.figures.connections_dropped == {"http_idle": 1}


async def test_a_reader_that_never_reads_is_closed() -> None:
    loop = asyncio.get_running_loop()
    async with http_port(limits(idle=0.3), text=bytes(20 << 20)) as port:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, port.address)
            await loop.sock_sendall(client, METRICS)
            await until(lambda: bool(port.figures.connections_dropped))
        assert port.figures.connections_dropped == {"http_idle": 1}


async def test_a_slow_reader_that_does_read_gets_everything() -> None:
    """Longer than the limit in all, with a part in each stretch of that length."""
    loop, size, seconds = asyncio.get_running_loop(), 20 << 20, 1.2
    async with http_port(limits(idle=0.3), text=bytes(size)) as port, connected(port) as client:
        client.writer.write(METRICS)
        started = loop.time()
        received = 0
        while received < size:
            part = await client.reader.read(200_000)
            assert part, port.figures.connections_dropped
            received += len(part)
            # Evenly, whatever a busy machine leaves it.
            early_s = started + seconds * received / size - loop.time()
            if early_s > 0:
                await asyncio.sleep(early_s)


async def test_connections_above_the_limit_are_closed_at_once() -> None:
    async with http_port(limits(connections=4)) as port, AsyncExitStack() as clients:

        async def one(host: str) -> Client:
            return await clients.enter_async_context(connected(port, host))

        kept = [await one("127.0.0.1"), await one("127.0.0.1")]
        assert await (await one("127.0.0.1")).closed()
        assert port.figures.connections_refused == {"http_max_connections_per_ip": 1}
        kept += [await one("127.0.0.2"), await one("127.0.0.2")]
        for client in kept:
            assert (await client.ask()).startswith(OK)
        assert await (await one("127.0.0.3")).closed()
        assert port.figures.connections_refused["http_max_connections"] == 1
        kept[0].writer.close()
        await until(lambda: port.figures.http_connections == 3)
        assert (await (await one("127.0.0.3")).ask()).startswith(OK)
    refused = port.events.named("connection_refused")
    assert [event["address"] for event in refused] == ["127.0.0.1", "127.0.0.3"]


@pytest.mark.parametrize(
    ("per_ip", "admitted"), [(0, 5), (1, 1), (7, 5)], ids=["unset", "fewer", "more"]
)
def test_at_most_half_of_the_places_are_for_one_address(per_ip: int, admitted: int) -> None:
    port = HttpPort(Figures(SystemClock(), 1000), RecordedEvents(), limits=HttpLimits(10, per_ip))
    admit: Callable[[str], bool] = port.admit
    assert [admit("10.0.0.1") for _ in range(8)].count(True) == admitted
    assert admit("10.0.0.2")
