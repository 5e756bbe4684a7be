"""A TCP proxy that damages connections at a byte that a test chooses, and a way to a server that
can be cut, in one direction or both, for all connections or some.

The way to a server is for programs in their own processes. It runs in a thread with its own loop,
and a call returns when it has taken effect. The proxy damages one connection at a chosen byte; a
cut affects all connections at a chosen moment.
"""

import asyncio
import contextlib
import enum
import socket
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from ..config.address import join_address, split_address

_PIECE_BYTES: Final = 1 << 16
_DEADLINE_S: Final = 60.0
_TURNS_TO_ACCEPT: Final = 4
"""Turns of the event loop until `_accept` gets an accepted connection. If its server is closed
before that, asyncio leaves the connection open without notice."""

EVERYBODY: Final = ""
"""In place of a name: all clients."""

_CHUNK_BYTES: Final = 64 * 1024
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""Value of `SO_LINGER` with which a close sends a reset instead of an orderly end."""


class Direction(enum.Enum):
    """Direction in which bytes pass."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


class Traffic(enum.Enum):
    """What happens to the bytes of one direction."""

    PASS = "they arrive"
    WAIT = "they stay under way, in order, and arrive once the way is open; neither end is notified"
    VANISH = "they never arrive; connections that lost some are reset once the way is open"


def _anybody(_: int) -> str:
    return EVERYBODY


class NetworkGate:
    """A proxy that passes connections on while it is open."""

    def __init__(self, server: str, name_of: Callable[[int], str] = _anybody) -> None:
        """`name_of` returns the name of the client that connects from a local port, if it is known.
        It runs in the gate's thread."""
        self.name_of = name_of
        self.address = ""
        """Address for clients."""
        self._server = split_address(server)
        self._rules: dict[tuple[str, Direction], Traffic] = {}
        self._delay_s = 0.0
        self._withheld: Counter[tuple[str, Direction]] = Counter()
        self._links: set[_Link] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(_DEADLINE_S)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed, self._end = asyncio.Condition(), asyncio.Event()
        listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = "{}:{}".format(*listening.sockets[0].getsockname()[:2])
        self._ready.set()
        await self._end.wait()
        for one in listening.sockets:
            self._loop.remove_reader(one.fileno())
        for _ in range(_TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        listening.close()
        while self._links:
            tasks = [link.task for link in self._links]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # For any thread.

    def shut(self, *ways: Direction, of: str = EVERYBODY) -> None:
        """Hold back the bytes in these directions, or in both."""
        self._set(Traffic.WAIT, ways, of)

    def lose(self, *ways: Direction, of: str = EVERYBODY) -> None:
        """Drop the bytes in these directions, or in both."""
        self._set(Traffic.VANISH, ways, of)

    def slow(self, delay_s: float) -> None:
        """Delay all bytes by `delay_s`, in both directions."""
        self._delay_s = delay_s

    def open(self) -> None:
        """Pass the waiting bytes, and all later ones, at once."""
        self._delay_s = 0.0
        self._call(self._open())

    def withheld(self, way: Direction, of: str = EVERYBODY) -> int:
        """Return the bytes of `of`, or of all clients, that have waited or vanished so far."""
        counts = list(self._withheld.items())
        return sum(count for (name, its), count in counts if its is way and of in (EVERYBODY, name))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_DEADLINE_S)

    def _set(self, traffic: Traffic, ways: tuple[Direction, ...], of: str) -> None:
        async def change() -> None:
            for link in self._links:
                link.name = self.name_of(link.port) or link.name  # The name may be known by now.
            for way in ways or tuple(Direction):
                self._rules[of, way] = traffic
            await self._notify()

        self._call(change())

    async def _open(self) -> None:
        self._rules.clear()
        for link in [link for link in self._links if link.torn]:
            link.task.cancel()
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _call(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(_DEADLINE_S)

    # In the gate's thread.

    def _traffic(self, name: str, way: Direction) -> Traffic:
        for_all = self._rules.get((EVERYBODY, way), Traffic.PASS)
        return self._rules.get((name, way), for_all)

    async def arrives(self, link: "_Link", way: Direction, size_bytes: int) -> bool:
        """Wait while the direction is shut. Returns whether the bytes arrive at all."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if self._traffic(link.name, way) is not Traffic.PASS:
            self._withheld[link.name, way] += size_bytes
        async with self._changed:
            await self._changed.wait_for(lambda: self._traffic(link.name, way) is not Traffic.WAIT)
        if self._traffic(link.name, way) is Traffic.VANISH:
            link.torn.add(way)
        return way not in link.torn

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, writer)
        self._links.add(link)
        link.task = self._loop.create_task(link.run(reader, self._server))
        link.task.add_done_callback(lambda _: self._ended(link))

    def _ended(self, link: "_Link") -> None:
        # Called even if the connection was cancelled before it began.
        self._links.discard(link)
        link.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Link:
    """One connection through a gate."""

    def __init__(self, gate: NetworkGate, writer: asyncio.StreamWriter) -> None:
        self.task: asyncio.Task[None]
        self.port = writer.get_extra_info("peername")[1]
        self.name = gate.name_of(self.port)
        self.torn: set[Direction] = set()
        """Directions in which bytes have vanished: TCP delivers nothing after a gap."""
        self._gate = gate
        self._here = writer
        self._there: asyncio.StreamWriter | None = None

    async def run(self, reader: asyncio.StreamReader, server: tuple[str, int]) -> None:
        """Run until both directions have ended, the task is cancelled, or the server cannot be
        reached."""
        with suppress(asyncio.CancelledError, OSError):
            if not await self._gate.arrives(self, Direction.TO_SERVER, 0):
                await asyncio.Event().wait()  # Until the gate opens.
            answers, self._there = await asyncio.open_connection(*server)
            await asyncio.gather(
                self._pump(reader, self._there, Direction.TO_SERVER),
                self._pump(answers, self._here, Direction.TO_CLIENT),
            )

    def abort(self) -> None:
        """Reset both ends."""
        for end in (self._here, self._there):
            if end is not None:
                self._abort(end)

    def _abort(self, end: asyncio.StreamWriter) -> None:
        if self.torn and not end.transport.is_closing():
            of_end = end.get_extra_info("socket")
            of_end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        end.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: Direction
    ) -> None:
        data = b"-"
        while data:
            try:
                data = await source.read(_PIECE_BYTES)
            except OSError:
                data = b""  # A reset ends the stream too, and travels in a packet like data.
            if await self._gate.arrives(self, way, len(data)) and data:
                sink.write(data)
                await sink.drain()
        if way in self.torn:
            await asyncio.Event().wait()  # Until the gate opens.
        sink.close()


class InjectedFault(enum.Enum):
    """How a connection is broken."""

    RESET = "both ends get a reset"
    HALF_CLOSE = "the receiver of that direction sees its end, the other direction goes on"
    CLOSE = "both ends are closed in order"
    STALL = "nothing passes any more in that direction, and neither end is notified"


@dataclass(frozen=True, slots=True)
class Plan:
    """When a connection is broken, and how."""

    direction: Direction
    after_bytes: int
    """Bytes that pass in that direction before the connection is broken."""
    harm: InjectedFault


class Proxy:
    """A proxy in front of one server. Created by `proxied`."""

    def __init__(self, server: str, listening: socket.socket) -> None:
        self.address = join_address(*listening.getsockname()[:2])
        """Address for clients."""
        self.plan: Plan | None = None
        """Plan for new connections; `None` to leave them intact."""
        self.links: list[ProxiedConnection] = []
        """All connections so far, oldest first."""
        self._server = split_address(server)
        self._listening = listening

    async def accept(self) -> None:
        """Accept connections until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(self._listening)
            server = socket.socket()
            server.setblocking(False)
            try:
                await loop.sock_connect(server, self._server)
            except OSError:
                client.close()
                server.close()
                continue
            self.links.append(ProxiedConnection(client, server, self.plan))

    async def close(self) -> None:
        """Close every connection."""
        for link in self.links:
            await link.close()


class ProxiedConnection:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket, plan: Plan | None) -> None:
        self.harmed = asyncio.Event()
        """Set once the planned harm has been done."""
        self.passed = dict.fromkeys(Direction, 0)
        """Bytes that have passed, by direction."""
        self._sockets = (client, server)
        self._plan = plan
        for end in self._sockets:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pumps = [
            asyncio.ensure_future(self._pump(client, server, Direction.TO_SERVER)),
            asyncio.ensure_future(self._pump(server, client, Direction.TO_CLIENT)),
        ]

    async def _pump(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        loop = asyncio.get_running_loop()
        plan = self._plan if self._plan and self._plan.direction is direction else None
        with contextlib.suppress(OSError):
            while plan is None or self.passed[direction] < plan.after_bytes:
                left = _CHUNK_BYTES if plan is None else plan.after_bytes - self.passed[direction]
                data = await loop.sock_recv(source, min(left, _CHUNK_BYTES))
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                await loop.sock_sendall(sink, data)
                self.passed[direction] += len(data)
            await self._harm(plan.harm, sink)

    async def _harm(self, harm: InjectedFault, sink: socket.socket) -> None:
        match harm:
            case InjectedFault.RESET:
                for end in self._sockets:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                await self.close()
            case InjectedFault.CLOSE:
                await self.close()
            case InjectedFault.HALF_CLOSE:
                sink.shutdown(socket.SHUT_WR)
            case InjectedFault.STALL:
                pass
        self.harmed.set()

    async def close(self) -> None:
        """Close both ends."""
        others = [pump for pump in self._pumps if pump is not asyncio.current_task()]
        for pump in others:
            pump.cancel()
        # A socket that a task still reads must not be closed, because its file descriptor may be
        # reused.
        await asyncio.gather(*others, return_exceptions=True)
        for end in self._sockets:
            end.close()


@asynccontextmanager
async def proxied(server: str) -> AsyncIterator[Proxy]:
    """Run a proxy in front of the server at `HOST:PORT`, in the current event loop."""
    with socket.socket() as listening:
        listening.setblocking(False)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        proxy = Proxy(server, listening)
        accepting = asyncio.ensure_future(proxy.accept())
        try:
            yield proxy
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
            await proxy.close()
