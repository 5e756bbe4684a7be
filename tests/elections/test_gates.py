"""The gates by which the other tests here cut ways between processes."""

import asyncio
import gc
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import ModuleType

import pytest

from horolog.testing import proxy
from horolog.testing.ports import connected_by
from horolog.testing.proxy import EVERYBODY, Direction, NetworkGate
from horolog.testing.waiting import wait_until

PATIENCE_S = 0.2
"""So long it is looked whether something comes that must not."""

LONG_S = 60.0
"""So long it is waited for what has to come."""


class Ends:
    """Both ends of a connection through a gate."""

    def __init__(self, gate: NetworkGate, client: socket.socket, server: socket.socket) -> None:
        self.gate = gate
        self.client = client
        self.server = server
        for end in (client, server):
            end.settimeout(LONG_S)

    def request(self, text: bytes) -> None:
        self.client.sendall(text)
        assert self.server.recv(100) == text

    def answer(self, text: bytes) -> None:
        self.server.sendall(text)
        assert self.client.recv(100) == text


def nothing_comes(end: socket.socket) -> None:
    end.settimeout(PATIENCE_S)
    with pytest.raises(TimeoutError):
        end.recv(1)
    end.settimeout(LONG_S)


def withheld(gate: NetworkGate, way: Direction, size_bytes: int, of: str = EVERYBODY) -> None:
    """Wait until the gate's own thread has read so much, and kept it."""
    wait_until(lambda: gate.withheld(way, of) >= size_bytes)
    assert gate.withheld(way, of) == size_bytes


@asynccontextmanager
async def connected() -> AsyncIterator[Ends]:
    """A gate before a server, with one connection that has been used."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = "{}:{}".format(*listening.getsockname())
        with NetworkGate(address) as gate:
            host, _, port = gate.address.rpartition(":")
            with socket.create_connection((host, int(port)), LONG_S) as client:
                listening.settimeout(LONG_S)
                server, _ = await asyncio.to_thread(listening.accept)
                with server:
                    ends = Ends(gate, client, server)
                    ends.request(b"a")
                    ends.answer(b"b")
                    yield ends


def test_a_gate_that_closes_leaves_no_connection_open() -> None:
    """Not that of a client that came just then, either."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = "{}:{}".format(*listening.getsockname())
        for _ in range(100):
            with socket.socket() as client:
                with NetworkGate(address) as gate:
                    host, _, port = gate.address.rpartition(":")
                    client.connect((host, int(port)))
                client.settimeout(LONG_S)
                with suppress(ConnectionResetError):
                    assert client.recv(1) == b""
    gc.collect()  # Which gives a warning for each that is left, and that is an error.


@pytest.mark.parametrize("lost", list(Direction))
async def test_what_goes_one_way_vanishes_while_the_other_way_works(lost: Direction) -> None:
    async with connected() as ends:
        ends.gate.lose(lost)
        loses, works = ends.client, ends.server
        if lost is Direction.TO_CLIENT:
            loses, works = works, loses
        for _ in range(2):
            loses.sendall(b"lost")
            nothing_comes(works)
            works.sendall(b"there")
            assert loses.recv(100) == b"there"
        withheld(ends.gate, lost, 8)
        # What comes behind a hole must not arrive: both ends are reset.
        ends.gate.open()
        for end in (ends.client, ends.server):
            with pytest.raises(ConnectionResetError):
                end.recv(1)


@pytest.mark.parametrize("shut", list(Direction))
async def test_what_waits_arrives_in_order_on_the_same_connection(shut: Direction) -> None:
    async with connected() as ends:
        ends.gate.shut(shut)
        source, sink = ends.client, ends.server
        if shut is Direction.TO_CLIENT:
            source, sink = sink, source
        source.sendall(b"1")
        nothing_comes(sink)
        source.sendall(b"2")
        sink.sendall(b"other way")
        assert source.recv(100) == b"other way"
        source.shutdown(socket.SHUT_WR)
        nothing_comes(sink)
        ends.gate.open()
        assert sink.recv(1) + sink.recv(1) == b"12"
        assert sink.recv(1) == b""


async def test_only_who_is_named_is_cut_off() -> None:
    async with connected() as ends:
        ends.gate.name_of = lambda port: connected_by(port, {"this": os.getpid()}) or ""
        ends.gate.lose(of="another")
        ends.request(b"x")
        ends.answer(b"y")
        ends.gate.lose(of="this")
        ends.client.sendall(b"lost")
        nothing_comes(ends.server)
        withheld(ends.gate, Direction.TO_SERVER, 4, of="this")
        assert ends.gate.withheld(Direction.TO_SERVER, "another") == 0


async def test_what_is_slow_arrives_late(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noting(delay_s: float) -> None:
        waits.append(delay_s)
        await sleep(0)

    async with connected() as ends:
        ends.gate.slow(7.5)
        patched = ModuleType("asyncio")
        vars(patched).update({**vars(asyncio), "sleep": noting})
        monkeypatch.setattr(proxy, "asyncio", patched)
        ends.request(b"x")
        ends.answer(b"y")
        assert waits.count(7.5) == 2
        ends.gate.open()
        ends.request(b"x")
        assert waits.count(7.5) == 2
        monkeypatch.undo()
