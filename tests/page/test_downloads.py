"""Downloads of the page: clients that stop reading, and the number of downloads at a time."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

import pytest
from aiohttp import web

from horolog.server.broker import Broker
from horolog.server.page import routes
from horolog.testing.requests import create_topic
from horolog.testing.wire import Wire

from .conftest import Get

PIECE = b'{"value": "%s"}\n' % (b"x" * 50_000)
BUFFERED_MAX = 16 * 1024 * 1024
"""More than the broker's connection and the buffers of two sockets take."""


END = b"0\r\n\r\n"
"""End of a complete answer in chunks."""


class Pieces:
    """Stands for the messages of a window; counts the pieces that were taken."""

    def __init__(self, count: int) -> None:
        self.taken = 0
        self._count = count

    async def __call__(self, services: object, query: object) -> AsyncIterator[bytes]:
        for _ in range(self._count):
            self.taken += 1
            yield PIECE


class StalledClient(AbstractContextManager["StalledClient"]):
    """A client that asks for a download and reads nothing but the start of the answer."""

    def __init__(self, broker: Broker) -> None:
        self._address = str(broker.addresses.http)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)

    async def ask(self) -> bytes:
        """Ask; return the start of the answer."""
        loop = asyncio.get_running_loop()
        host, _, port = self._address.rpartition(":")
        await loop.sock_connect(self._socket, (host, int(port)))
        head = f"GET /page/download?topic=t&from=0 HTTP/1.1\r\nHost: {self._address}"
        await loop.sock_sendall(self._socket, f"{head}\r\n\r\n".encode())
        return await loop.sock_recv(self._socket, 12)

    async def rest(self) -> bytes:
        """Return what the broker sent until it closed the connection."""
        found = b""
        with suppress(ConnectionError):
            while piece := await asyncio.get_running_loop().sock_recv(self._socket, 1 << 20):
                found += piece
        return found

    def __exit__(self, *error: object) -> None:
        self._socket.close()


@contextmanager
def stalled_clients(broker: Broker) -> Iterator[list[StalledClient]]:
    """As many clients as there may be downloads."""
    with ExitStack() as stack:
        yield [stack.enter_context(StalledClient(broker)) for _ in range(routes.DOWNLOADS)]


@pytest.fixture
async def topic(client: Wire) -> str:
    await client.call(create_topic("t"))
    return "t"


async def test_a_download_that_stalls_is_ended_and_holds_little(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, get: Get
) -> None:
    pieces = Pieces(10**9)
    monkeypatch.setattr(routes, "lines", pieces)
    monkeypatch.setattr(routes, "STALL_SECONDS", 0.2)
    with stalled_clients(broker) as clients:
        for client in clients:
            assert await client.ask() == b"HTTP/1.1 200"
        monkeypatch.setattr(routes, "lines", Pieces(1))
        await until_accepted(get, topic)
        assert pieces.taken * len(PIECE) <= BUFFERED_MAX
        for client in clients:
            rest = await client.rest()
            assert rest.count(b'"value"') <= pieces.taken
            assert not rest.endswith(END)


async def test_a_download_that_stalls_at_its_end_is_ended(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, get: Get
) -> None:
    async def never(response: web.StreamResponse, data: bytes = b"") -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(routes, "lines", Pieces(1))
    monkeypatch.setattr(routes, "STALL_SECONDS", 0.2)
    with monkeypatch.context() as patched, stalled_clients(broker) as clients:
        patched.setattr(web.StreamResponse, "write_eof", never)
        for client in clients:
            assert await client.ask() == b"HTTP/1.1 200"
        async with asyncio.timeout(20):
            for client in clients:
                assert not (await client.rest()).endswith(END)
    await until_accepted(get, topic)


async def test_two_downloads_run_at_a_time(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, get: Get
) -> None:
    monkeypatch.setattr(routes, "lines", Pieces(10**9))
    with stalled_clients(broker) as (first, second):
        for client in (first, second):
            assert await client.ask() == b"HTTP/1.1 200"
        monkeypatch.setattr(routes, "lines", Pieces(1))
        for _ in range(3):
            refused = await get("/page/download", topic=topic)
            assert refused.status == 503
            assert refused.body == {"error": "2 downloads are in progress already; try again later"}
        assert (await get("/page/topics")).status == 200
        with first:
            pass  # its connection is closed
        await until_accepted(get, topic)


async def until_accepted(get: Get, topic: str) -> None:
    """Ask for a download until it is not refused."""
    answer = await get("/page/download", topic=topic)
    for _ in range(3_000):
        if answer.status != 503:
            break
        await asyncio.sleep(0.02)
        answer = await get("/page/download", topic=topic)
    assert answer.status == 200
    assert answer.text.encode() == PIECE
