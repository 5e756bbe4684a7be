"""`python -m horolog.bench.guard.half_open [COUNT]`: clients that begin a TLS handshake and send no
more, by default 10,000, beside one connected client that sends requests.

There are two runs: with default settings, where few handshakes are held and the others are closed;
and with settings under which all are held. The table has the growth of the broker's memory, the
time to accept and to drop all of them, and the longest wait of the connected client.
"""

import os
import re
import socket
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from ...config.address import split_address
from ...server.network.listener import raise_file_limit
from ...testing.program import ServerProcess
from ...values import value_class
from ..brokers import MIB, broker, echo_request, resident_bytes
from .costs import make_certificate

COUNT: Final = 10_000
_SENT_BYTES: Final = 100
"""Bytes of a TLS hello that each client sends: never a whole one."""
_EACH: Final = 50
"""The connected client sends a request after this many handshakes."""
_LONGEST_SECONDS: Final = 60
_REFUSED: Final = re.compile(
    r'^horolog_connections_refused_total\{reason="unauthenticated"\} (\d+)', re.MULTILINE
)
_WAITING: Final = re.compile(r"^horolog_unauthenticated_connections (\d+)", re.MULTILINE)


@value_class
class HalfOpen:
    """The results of one run."""

    name: str
    begun: int
    held: int
    refused: int
    taken_seconds: float
    freed_seconds: float
    grown_bytes: int
    median_seconds: float
    longest_seconds: float


def half_open(count: int) -> Iterator[HalfOpen]:
    """Run both measurements."""
    places = f"max.connections={count + 100}", f"max.connections.per.ip={count + 100}"
    waiting = f"connections.unauthenticated.max={count + 1}", "authentication.deadline.ms=300000"
    yield _measured("default", count, places)
    yield _measured("all held", count, (*places, *waiting))


def _measured(name: str, count: int, settings: tuple[str, ...]) -> HalfOpen:
    with TemporaryDirectory(prefix="horolog-bench-") as folder:
        pem = Path(folder) / "own.pem"
        make_certificate(pem)
        tls = ssl.create_default_context(cafile=str(pem))
        options = [word for each in settings for word in ("--set", each)]
        options += ["--listen", "tls://127.0.0.1:0", "--set", f"tls.cert={pem}"]
        with broker(*options, tls=tls) as (server, client):
            return _found(name, count, server, client.exchange, _hello(tls))


def _found(name: str, count: int, server: ServerProcess, ask: object, hello: bytes) -> HalfOpen:
    assert callable(ask)
    echo, address = echo_request(), split_address(server.native)
    for _ in range(100):
        ask(echo)
    before_bytes, before_files = resident_bytes(server), _files(server)
    sockets: list[socket.socket] = []
    waits: list[float] = []
    began = time.perf_counter()
    for number in range(count):
        opened = socket.create_connection(address)
        sockets.append(opened)
        with suppress(ConnectionError):  # it is one of those that were closed
            opened.sendall(hello)
        if number % _EACH == 0:
            asked = time.perf_counter()
            ask(echo)
            waits.append(time.perf_counter() - asked)
    ask(echo)
    taken = time.perf_counter() - began
    grown = resident_bytes(server) - before_bytes
    held, refused = _counted(server)
    began = time.perf_counter()
    for opened in sockets:
        opened.close()
    while _files(server) > before_files + 8:
        if time.perf_counter() - began > _LONGEST_SECONDS:
            raise RuntimeError("the broker still has connections that are gone")
        ask(echo)
    freed = time.perf_counter() - began
    return HalfOpen(*(name, count, held, refused, taken, freed, grown, median(waits), max(waits)))


def _files(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def _counted(server: ServerProcess) -> tuple[int, int]:
    """Return the number of connections in a handshake, and of refused connections."""
    with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    held, refused = _WAITING.search(text), _REFUSED.search(text)
    return int(held[1]) if held else 0, int(refused[1]) if refused else 0


def _hello(tls: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = tls.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()[:_SENT_BYTES]


def main(arguments: list[str]) -> None:
    """Measure, and print a table."""
    raise_file_limit()
    count = int(arguments[0]) if arguments else COUNT
    names = ("held", "closed", "s in all", "s to free", "MiB", "echo p50 ms", "longest ms")
    print(f"{count:<9,}" + "".join(f"{name:>13}" for name in names))
    for each in half_open(count):
        seconds = f"{each.taken_seconds:>13.2f}{each.freed_seconds:>13.2f}"
        waits = f"{each.median_seconds * 1000:>13.2f}{each.longest_seconds * 1000:>13.1f}"
        memory = f"{each.grown_bytes / MIB:>13.1f}"
        print(f"{each.name:<9}{each.held:>13,}{each.refused:>13,}{seconds}{memory}{waits}")


if __name__ == "__main__":
    main(sys.argv[1:])
