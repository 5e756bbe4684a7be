"""Fault 14 and what is like it: thousands of slow, silent, greedy and mad clients at one time.

A real server process stays within the memory that follows from its settings, and an honest client
is served meanwhile.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from horolog.config.address import split_address
from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.testing.program import ServerProcess, serving
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

MIB = 1 << 20
EACH_KIND = 500
"""Hostile connections of each of five kinds."""

MAX_BUFFERED_BYTES = 64 * MIB
ANSWER_BYTES = MIB // 4
LARGE_FRAME_BYTES = 30 * MIB
DEADLINE_MS = 3_000

CONNECTION_BYTES = 80 * 1024
"""What a connection may cost beside what it holds: a request's first 64 KiB, and objects."""

WORKING_BYTES = 4 * LARGE_FRAME_BYTES
"""What the largest request or answer may take while it is worked on, its copies included, and what
was freed and is not given back to the system yet."""


def resident_bytes(server: ServerProcess) -> int:
    statm = Path(f"/proc/{server.process.pid}/statm").read_text()
    return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Crowd:
    """Raw sockets that are never read from."""

    server: ServerProcess
    open: ExitStack
    largest_bytes: int = 0
    """The most memory that the server was seen to have."""
    sockets: list[socket.socket] = field(default_factory=list)
    late: list[socket.socket] = field(default_factory=list)
    """Those of which the server expects the rest of a request."""

    async def connect(self, count: int) -> list[socket.socket]:
        loop = asyncio.get_running_loop()
        made = []
        for _ in range(count):
            client = self.open.enter_context(socket.socket())
            client.setblocking(False)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(client, split_address(self.server.native))
            made.append(client)
        self.sockets += made
        self.look()
        return made

    def look(self) -> None:
        self.largest_bytes = max(self.largest_bytes, resident_bytes(self.server))

    async def push(self, client: socket.socket, data: bytes) -> None:
        """Send as much as is taken; the server may have had enough of it."""
        with suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(client, data)
        self.look()


async def silent(crowd: Crowd, _: Random) -> None:
    """Say nothing at all."""
    await crowd.connect(EACH_KIND)


async def half_sent(crowd: Crowd, random: Random) -> None:
    """Begin a request, and add a byte to it now and then."""
    made = crowd.late = await crowd.connect(EACH_KIND)
    for client in made:
        await crowd.push(client, struct.pack(">i", 1000) + bytes(random.randrange(20)))
    for _ in range(5):
        for client in made:
            await crowd.push(client, b"\0")


async def mad(crowd: Crowd, random: Random) -> None:
    """Send garbage, some of it in frames of the right length."""
    for number, client in enumerate(await crowd.connect(EACH_KIND)):
        garbage = random.randbytes(random.randrange(1, 3000))
        await crowd.push(client, struct.pack(">i", len(garbage)) * (number % 2) + garbage)


async def greedy(crowd: Crowd, _: Random) -> None:
    """Ask for a megabyte in four answers, and read nothing."""
    asked = fetch("data", (0, 0), partition_max_bytes=ANSWER_BYTES, max_bytes=ANSWER_BYTES)
    request = native.encode_request(FETCH, 3, 1, "greedy", asked)
    for client in await crowd.connect(EACH_KIND):
        await crowd.push(client, request * 4)


async def waiting(crowd: Crowd, _: Random) -> None:
    """Have many fetches wait, each for one partition named over and over."""
    asked = fetch("empty", *[(0, 0)] * 100, min_bytes=1, max_wait_ms=60_000)
    request = native.encode_request(FETCH, 3, 1, "waiting", asked)
    for client in await crowd.connect(EACH_KIND):
        await crowd.push(client, request * 2)


async def heavy(crowd: Crowd, _: Random) -> None:
    """Send nearly all of requests that are as large as is allowed."""
    most = struct.pack(">i", LARGE_FRAME_BYTES) + b"\x95" + bytes(LARGE_FRAME_BYTES - MIB)
    for client in await crowd.connect(8):
        await crowd.push(client, most)


async def at_end(client: socket.socket) -> bool:
    """Wait until the server has closed; False if it sends something instead."""
    try:
        return not await asyncio.get_running_loop().sock_recv(client, 1)
    except ConnectionError:
        return True


KINDS: tuple[Callable[[Crowd, Random], Awaitable[None]], ...] = (
    silent,
    half_sent,
    mad,
    greedy,
    waiting,
    heavy,
)


class Honest:
    """A client that asks for what clients ask for."""

    def __init__(self, client: Wire) -> None:
        self.answered = 0
        """Messages that it has sent, and found in the log."""
        self._client = client
        self._sent = 0

    async def go_on(self, done: asyncio.Future[None]) -> None:
        while not done.done():
            sent = result(await self._client.call(produce("honest", message_set(5), acks=-1)))
            assert (sent.error_code, sent.base_offset) == (0, self._sent)
            read = result(await self._client.call(fetch("honest", (0, self._sent))))
            assert (read.error_code, read.high_watermark) == (0, self._sent + 1)
            self._sent += 1
            self.answered += 1

    async def goes_on(self) -> None:
        """Wait until it was answered twice: one that was sent since then is among them."""
        enough = self.answered + 2
        await until(lambda: self.answered >= enough)


async def crowded(server: ServerProcess, random: Random) -> tuple[Crowd, int]:
    async with wire(server.native) as client, wire(server.native) as feeder:
        await client.call(create_topic("empty"))
        await feeder.call(produce("data", message_set(*[5] * 10, value=bytes(90_000))))
        honest = Honest(client)
        with ExitStack() as stack:
            crowd = Crowd(server, stack)
            crowd.look()
            attack = asyncio.ensure_future(asyncio.wait_for(_attack(crowd, honest, random), 200))
            await honest.go_on(attack)
            await attack
            await feeder.call(MetadataRequest())
            crowd.look()
        return crowd, honest.answered


async def _attack(crowd: Crowd, honest: Honest, random: Random) -> None:
    for kind in KINDS:
        await kind(crowd, random)
        await honest.goes_on()
    for client in crowd.late:
        assert await at_end(client), "the deadline closes it, whatever trickles"


@pytest.mark.timeout(300)
def test_14_thousands_of_hostile_clients(
    tmp_path: Path, request: pytest.FixtureRequest, tell: Callable[[str], None]
) -> None:
    random = Random(f"{request.config.getoption('--hypothesis-seed')}")
    settings = {
        "max.connections": 6 * EACH_KIND,
        "max.connections.per.ip": 6 * EACH_KIND,
        "max.buffered.bytes": MAX_BUFFERED_BYTES,
        "max.frame.bytes": LARGE_FRAME_BYTES,
        "request.deadline.ms": DEADLINE_MS,
        "log.level": "error",
        "retention.ms": -1,
    }
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with serving(tmp_path / "data", *given) as server:
        idle_bytes = resident_bytes(server)
        crowd, answered = asyncio.run(crowded(server, random))
        count = len(crowd.sockets)
        bound = idle_bytes + MAX_BUFFERED_BYTES + count * CONNECTION_BYTES + WORKING_BYTES
        tell(
            f"{count} hostile connections: {idle_bytes / MIB:.0f} MiB idle, at most "
            f"{crowd.largest_bytes / MIB:.0f} MiB, bound {bound / MIB:.0f}; {answered} honest "
            "requests"
        )
        assert count > 2000
        assert crowd.largest_bytes < bound
        assert asyncio.run(_still_serves(server))
        assert server.stop() == 0


async def _still_serves(server: ServerProcess) -> bool:
    async with wire(server.native) as client:
        got = result(await client.call(produce("honest", message_set(5))))
        return bool(got.error_code == 0)
