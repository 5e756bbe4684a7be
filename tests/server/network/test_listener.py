"""Accepting connections: the cap, running out of descriptors, addresses that are taken."""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import cast

import pytest

from horolog import congestion
from horolog.server.network.listener import (
    RESERVED_FILES,
    CannotListen,
    Listener,
    Shares,
    address_of,
    bind,
    share_files,
)

pytestmark = pytest.mark.both_loops


Address = tuple[str, int]


class Greeter(asyncio.Protocol):
    """Says hello and stays."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(b"hello")


class Endpoint:
    """Admits up to a number of connections and counts the rest."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.inside: list[Greeter] = []
        self.turned_away = 0
        self.reasons: list[str] = []
        self.told = asyncio.Event()

    def admit(self, address: str) -> Greeter | None:
        if len(self.inside) >= self.places:
            self.turned_away += 1
            return None
        self.inside.append(Greeter())
        return self.inside[-1]

    def failed(self, protocol: asyncio.BaseProtocol) -> None:
        self.inside.remove(protocol)  # type: ignore[arg-type]

    def refused(self, reason: str) -> None:
        self.reasons.append(reason)
        self.told.set()


@asynccontextmanager
async def open_endpoint(places: int) -> AsyncIterator[tuple[Endpoint, Listener, Address]]:
    endpoint = Endpoint(places)
    listening = bind("127.0.0.1:0", "listen")
    listener = Listener(
        asyncio.get_running_loop(),
        listening,
        admit=endpoint.admit,
        failed=endpoint.failed,
        refused=endpoint.refused,
    )
    listening.listen()
    listener.start()
    try:
        yield endpoint, listener, listening.getsockname()
    finally:
        listener.close()
        for greeter in endpoint.inside:
            greeter.transport.abort()


async def greeting(address: Address) -> tuple[bytes, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*address)
    return await reader.read(5), writer


async def test_connections_above_the_cap_are_closed_at_once() -> None:
    async with open_endpoint(2) as (endpoint, _, address):
        greetings = [await greeting(address) for _ in range(5)]
        assert [text for text, _ in greetings] == [b"hello", b"hello", b"", b"", b""]
        assert endpoint.turned_away == 3
        for _, writer in greetings:
            writer.close()


async def test_closing_stops_accepting_and_keeps_connections() -> None:
    async with open_endpoint(2) as (endpoint, listener, address):
        reader, writer = await asyncio.open_connection(*address)
        assert await reader.readexactly(5) == b"hello"
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        endpoint.inside[0].transport.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        listener.close()
        writer.close()


def another_congestion_control() -> bytes:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_bytes().split()
    return next(name for name in allowed if name != congestion.LOCAL)


async def test_only_connections_that_stay_on_the_machine_are_not_paced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = another_congestion_control()
    monkeypatch.setattr(congestion, "of_system", lambda: system)
    found = []
    async with open_endpoint(2) as (endpoint, _, address):
        # What has another address at the other end could come from another machine.
        for own in ("127.0.0.1", "127.0.0.2"):
            reader, writer = await asyncio.open_connection(*address, local_addr=(own, 0))
            await reader.readexactly(5)
            transport = endpoint.inside[-1].transport
            found.append(congestion.of(transport.get_extra_info("socket")))
            writer.close()
    assert found == [congestion.LOCAL, system]


async def test_a_system_that_does_not_tell_its_congestion_control(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(*_: object) -> bytes:
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    monkeypatch.setattr(congestion, "of", refuses)
    async with open_endpoint(1) as (_, _, address):
        text, writer = await greeting(address)
        assert text == b"hello"
        writer.close()


def test_a_congestion_control_that_is_chosen_by_route_stays() -> None:
    by_route = another_congestion_control()
    listening = bind("127.0.0.1:0", "listen")
    # Connections get what the listening socket has, as they do what their route has.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, by_route)
    listening.listen()
    connecting = socket.create_connection(listening.getsockname(), source_address=("127.0.0.2", 0))
    with listening, connecting, listening.accept()[0] as accepted:
        congestion.settle(accepted, congestion.LOCAL)
        assert congestion.of(accepted) == by_route


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open no further file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    gaps = []
    try:
        while True:
            try:
                gaps.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for gap in gaps:
            os.close(gap)


async def test_without_descriptors_surplus_connections_are_closed_and_it_recovers() -> None:
    loop = asyncio.get_running_loop()
    async with open_endpoint(10) as (endpoint, _, address):
        _, first = await greeting(address)
        clients = [socket.socket() for _ in range(3)]
        with no_descriptors():
            for client in clients:
                client.setblocking(False)
                client.connect_ex(address)
            await endpoint.told.wait()
            received = [await loop.sock_recv(client, 5) for client in clients]
        assert received == [b"", b"", b""]
        assert endpoint.reasons == ["no_descriptors"] * 3
        text, again = await greeting(address)
        assert text == b"hello"
        first.close()
        again.close()
        for client in clients:
            client.close()


def test_an_address_that_is_taken() -> None:
    taken = bind("127.0.0.1:0", "listen")
    taken.listen()
    with pytest.raises(CannotListen, match=rf"{address_of(taken)} \(http\.listen\): Address alre"):
        bind(address_of(taken), "http.listen")
    taken.close()


def test_an_address_of_another_machine() -> None:
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1:0"):
        bind("192.0.2.1:0", "listen")


def test_an_address_in_brackets() -> None:
    bound = bind("[::1]:0", "listen")
    assert address_of(bound).startswith("[::1]:")
    bound.close()


@pytest.mark.parametrize(
    ("limit", "connections", "files", "http"),
    [
        pytest.param(20_000, 1000, 1000, 200, id="enough for all"),
        pytest.param(2200 + RESERVED_FILES, 1000, 1000, 200, id="just enough"),
        pytest.param(2199 + RESERVED_FILES, 1000, 999, 200, id="one too few"),
        pytest.param(1200 + RESERVED_FILES, 525, 525, 150, id="half each"),
        pytest.param(128, 42, 42, 12, id="a low limit"),
        pytest.param(64, 14, 14, 4, id="tc18: a very low limit"),
        pytest.param(8, 4, 4, 2, id="hardly any"),
    ],
)
def test_descriptors_are_shared_out(limit: int, connections: int, files: int, http: int) -> None:
    shares = share_files(limit, Shares(1000, 1000, 200))
    assert shares == Shares(connections, files, http)
    assert limit < 50 or connections + files + http + RESERVED_FILES <= limit


def test_fewer_files_leave_room_for_connections() -> None:
    limit = 1000 + RESERVED_FILES
    assert share_files(limit, Shares(900, 100, 0)) == Shares(900, 100, 0)
    assert share_files(limit, Shares(100, 1000, 0)) == Shares(100, 900, 0)
