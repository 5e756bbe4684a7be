"""Fault 18: clients take every descriptor there is, and a log goes on when some are free again."""

import asyncio
import os
import resource
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path

import pytest

from horolog import Consumer
from horolog.config.address import split_address
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.errors import NO_ERROR, StorageError
from horolog.testing.program import WITH_HTTP, ServerProcess, serving
from horolog.testing.requests import message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

from .disks.conftest import not_here

LIMIT = 128
SILENT_BYTES = (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"\0\0", b"\0\0\0\x20abc")
HOSTS = tuple(f"127.0.0.{number}" for number in range(2, 12))

SETTINGS = (
    *("--kafka-listen", "127.0.0.1:0", "--set", "log.format=json", "--set", "retention.ms=-1"),
    *("--set", "segment.bytes=400", "--set", "index.interval.bytes=1"),
)

NEVER_FREE = 3
"""With this limit nothing can be opened beside the standard streams, which are."""

IDLE_CALLS_MAX = 500
"""System calls in a second of a server that does nothing. It makes some 10; one that tries again
and again what cannot succeed makes thousands."""

LOOPS = pytest.mark.parametrize("event_loop", ["uvloop", "asyncio"])


@contextmanager
def serving_with(folder: Path, limit: int, event_loop: str) -> Iterator[ServerProcess]:
    loop = ("--set", f"event.loop={event_loop}")
    limits = {resource.RLIMIT_NOFILE: limit}
    with serving(folder / "data", *WITH_HTTP, *SETTINGS, *loop, limits=limits) as server:
        with urllib.request.urlopen(f"http://{server.http}/healthz", timeout=20) as answer:
            assert answer.status == 200, "all that is loaded late is"
        yield server


def descriptors(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


async def system_calls(server: ServerProcess, strace: str) -> int:
    """How many the server makes in a second."""
    tracer = await asyncio.create_subprocess_exec(
        *(strace, "-f", "-c", "-p", str(server.process.pid)), stderr=asyncio.subprocess.PIPE
    )
    assert tracer.stderr is not None
    attached = await tracer.stderr.readline()
    if b"attached" not in attached:
        not_here(f"strace cannot attach: {attached!r}")
    await asyncio.sleep(1.0)
    tracer.send_signal(signal.SIGINT)
    *_, total = (await tracer.stderr.read()).decode().splitlines()
    await tracer.wait()
    assert total.endswith("total"), total
    return int(total.split()[3])


def silent_clients(server: ServerProcess, number: int) -> list[socket.socket]:
    """Connections of many addresses to all three ports that say nothing, or half of something."""
    assert server.kafka is not None
    clients = []
    ports = cycle([server.http, server.native, server.kafka])
    for address, host, sent in islice(zip(ports, cycle(HOSTS), cycle(SILENT_BYTES)), number):
        client = socket.socket()
        client.settimeout(5)
        client.bind((host, 0))
        client.connect(split_address(address))
        with suppress(OSError):  # closed already
            client.sendall(sent)
        clients.append(client)
    return clients


class Writer:
    """Writes numbered messages to some topics, one after the other, and notes what is stored."""

    def __init__(self, client: Wire) -> None:
        self._client = client
        self._number = 0
        self.stored: dict[str, list[bytes]] = {}
        self.refused: set[int] = set()

    async def write(self, topic: str, acks: int = -1) -> bool:
        self._number += 1
        value = b"%d" % self._number
        self._client.send(PRODUCE, 2, produce(topic, message_set(1, value=value), acks=acks))
        (_, response) = await asyncio.wait_for(self._client.receive(), 20)
        code = result(response).error_code
        if code == NO_ERROR:
            self.stored.setdefault(topic, []).append(value)
        else:
            self.refused.add(code)
        return bool(code == NO_ERROR)


async def check(server: ServerProcess, writer: Writer) -> None:
    """Everything that was acknowledged is there once, and nothing that was refused; after a stop
    and a start too, and without a log that had failed."""
    for topic, stored in writer.stored.items():
        async with Consumer(server.native) as consumer:
            consumer.assign(topic, 0, offset=0)
            read: list[bytes | None] = []
            while len(read) < len(stored):
                read += [record.value for record in await consumer.fetch()]
        assert read == stored
    log = server.log.read_text()
    assert "log_failed" not in log
    assert "Traceback" not in log
    assert server.stop() == 0
    assert server.program("verify", server.data_dir).code == 0


@LOOPS
async def test_silent_clients_leave_descriptors_for_the_log(
    tmp_path: Path, event_loop: str, require_program: Callable[[str], str]
) -> None:
    strace = require_program("strace")
    topics = cycle(f"t{number}" for number in range(6))
    with serving_with(tmp_path, LIMIT, event_loop) as server, ExitStack() as clients:
        async with wire(server.native) as client:
            writer = Writer(client)
            for _ in range(12):
                assert await writer.write(next(topics))
            for _ in range(4):
                for attacker in silent_clients(server, 150):
                    clients.callback(attacker.close)
                for _ in range(20):
                    assert await writer.write(next(topics)), writer.refused
                assert descriptors(server) < LIMIT
            calls = await system_calls(server, strace)
            assert calls < IDLE_CALLS_MAX, "nothing happens, and it is busy"
            clients.close()
            for _ in range(20):
                assert await writer.write(next(topics))
        await check(server, writer)


@pytest.mark.parametrize(
    ("event_loop", "left"),
    [
        *(("uvloop", left) for left in (None, 0, 1, 3)),
        ("asyncio", 0),
        *(pytest.param("asyncio", left, marks=pytest.mark.soak) for left in (None, 1, 3)),
    ],
)
async def test_without_a_descriptor_nothing_ends(
    tmp_path: Path, event_loop: str, left: int | None, require_program: Callable[[str], str]
) -> None:
    """Whatever takes them: the limit is lowered to what the process has open. It may open again
    what it closes, and `left` more; `None`: nothing at all."""
    strace = require_program("strace")
    pid_limit = resource.RLIMIT_NOFILE
    with serving_with(tmp_path, 1024, event_loop) as server, ExitStack() as clients:
        pid = server.process.pid
        async with wire(server.native) as client:
            writer = Writer(client)
            for _ in range(3):
                for topic in ("a", "b"):
                    assert await writer.write(topic)
            taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
            limit = NEVER_FREE if left is None else max(taken) + 1 + left
            resource.prlimit(pid, pid_limit, (limit, 1024))
            for attacker in silent_clients(server, 60):
                clients.callback(attacker.close)
            for _ in range(15):
                for topic in ("a", "b", "c"):
                    # A sync needs handles, so `acks=-1` waits.
                    await writer.write(topic, acks=1)
            waiting = asyncio.ensure_future(writer.write("a"))
            calls = await system_calls(server, strace)
            assert calls < IDLE_CALLS_MAX, "nothing happens, and it is busy"
            assert writer.refused <= {StorageError.code}
            assert writer.refused or left is not None
            resource.prlimit(pid, pid_limit, (1024, 1024))
            await waiting
            for _ in range(10):
                for topic in ("a", "b", "c"):
                    assert await writer.write(topic)
        clients.close()
        await until(lambda: descriptors(server) < len(taken) + 30)
        await check(server, writer)
