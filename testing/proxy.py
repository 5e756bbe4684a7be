"""A TCP proxy that harms the connections that go through it, at a byte that a test chooses."""

import asyncio
import contextlib
import enum
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from ..config.address import join_address, split_address

_CHUNK_BYTES: Final = 64 * 1024
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""Of `SO_LINGER`: the other end gets a reset, no orderly end."""


class Direction(enum.Enum):
    """Which way bytes go."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


class Harm(enum.Enum):
    """What becomes of a connection."""

    RESET = "both ends get a reset"
    HALF_CLOSE = "the receiver of that direction sees its end, the other direction goes on"
    CLOSE = "both ends are closed in order"
    STALL = "nothing passes any more in that direction, and neither end is notified"


@dataclass(frozen=True, slots=True)
class Plan:
    """When a connection is harmed, and how."""

    direction: Direction
    after_bytes: int
    """How many bytes pass in that direction before it."""
    harm: Harm


class Proxy:
    """Passes connections on to one server. Made by `proxied`."""

    def __init__(self, server: str, listening: socket.socket) -> None:
        self.address = join_address(*listening.getsockname()[:2])
        """Where clients connect."""
        self.plan: Plan | None = None
        """What happens to the connections that are made from now on."""
        self.links: list[ProxiedConnection] = []
        """All connections that were made, the oldest first."""
        self._server = split_address(server)
        self._listening = listening

    async def accept(self) -> None:
        """Take connections until cancelled."""
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
        """Set when the harm that was planned has been done."""
        self.passed = dict.fromkeys(Direction, 0)
        """Bytes that have passed."""
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

    async def _harm(self, harm: Harm, sink: socket.socket) -> None:
        match harm:
            case Harm.RESET:
                for end in self._sockets:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                await self.close()
            case Harm.CLOSE:
                await self.close()
            case Harm.HALF_CLOSE:
                sink.shutdown(socket.SHUT_WR)
            case Harm.STALL:
                pass
        self.harmed.set()

    async def close(self) -> None:
        """Close both ends."""
        others = [pump for pump in self._pumps if pump is not asyncio.current_task()]
        for pump in others:
            pump.cancel()
        # A socket that a task still reads from must not be closed: its number is given again.
        await asyncio.gather(*others, return_exceptions=True)
        for end in self._sockets:
            end.close()


@asynccontextmanager
async def proxied(server: str) -> AsyncIterator[Proxy]:
    """A proxy in front of the server at `HOST:PORT`, in the running event loop."""
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
