"""Measures the slowest answers that a fast producer gets: alone, and while other clients load the
broker. Each client is a process."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Final

from ..config.address import split_address
from ..protocol.records.messages.sets import NewRecord, build_set
from ..testing.requests import create_topic, fetch, list_offsets, produce
from .brokers import MIB, RETENTION_LIMIT, broker, sets
from .figure import Figure, quantile
from .raw_client import RawClient, check_end, encoded

TOPIC: Final = "beside"
"""A topic of `MESSAGES` messages, 64 MiB in one segment."""

SCANNED_TOPIC: Final = "scanned"
"""The same, but the index has no entries to help a search."""

MESSAGES: Final = 500_000
FIRST_MS: Final = 1_479_144_272_509
"""Time of its first message; each is a millisecond later than the one before."""

_SLOW_CONNECTIONS: Final = 8
_SETS_IN_FLIGHT: Final = 8
_OLD_FETCH: Final = 1
"""A version of fetch that gives messages of format v0: all have to be converted."""

_ROUNDS: Final = 5
_REQUESTS: Final = 1_000
_IN_A_SET: Final = 1_000


def slow_client(address: str) -> None:
    """Run connections that fetch 8 MiB each and read a few bytes at a time, and one that sends a
    request byte by byte."""
    wanted = encoded(fetch(TOPIC, (0, 0), partition_max_bytes=MIB)) * 8
    trickled = encoded(produce(TOPIC, bytes(1000), acks=1))
    readers = [_connected(address) for _ in range(_SLOW_CONNECTIONS)]
    for reader in readers:
        reader.sendall(wanted)
    sender = _connected(address)
    _say_running()
    sent = 0
    while True:
        for number, reader in enumerate(readers):
            if not reader.recv(4096):
                readers[number] = _connected(address)
                readers[number].sendall(wanted)
        sender.sendall(trickled[sent : sent + 1])
        sent = min(sent + 1, len(trickled) - 1)
        if sent == len(trickled) - 1:
            sender.close()
            sender, sent = _connected(address), 0
        time.sleep(0.005)


def time_scan(address: str) -> None:
    """Search by time again and again, one search at a time. Each search reads the whole log."""
    client = RawClient(address)
    request = encoded(list_offsets(SCANNED_TOPIC, (0, FIRST_MS + MESSAGES - 1)))
    client.exchange(request)
    _say_running()
    while True:
        client.exchange(request)


def converting_reader(address: str) -> None:
    """Fetch 1 MiB again and again, one request at a time, as a reader that only knows format v0."""
    client = RawClient(address)
    requests = [
        encoded(fetch(TOPIC, (0, offset), partition_max_bytes=MIB), _OLD_FETCH)
        for offset in range(0, MESSAGES, MESSAGES // 64)
    ]
    client.exchange(requests[0])
    _say_running()
    while True:
        for request in requests:
            client.exchange(request)


def bulk_producer(address: str) -> None:
    """Produce sets of 900 KiB, with enough of them in flight that the broker never waits for the
    next."""
    client = RawClient(address)
    request = encoded(produce(TOPIC, sets(100, 900 << 10)[0], acks=1))
    client.exchange(request)
    _say_running()
    while True:
        client.pipeline(request, 1, 100 * _SETS_IN_FLIGHT, _SETS_IN_FLIGHT)


KINDS: Final[Mapping[str, Callable[[str], None]]] = {
    "slow_client": slow_client,
    "time_scan": time_scan,
    "converting_reader": converting_reader,
}

BULK: Final = "bulk_producer"


def _connected(address: str) -> socket.socket:
    connected = socket.socket()
    # A small receive buffer, so that the broker has to hold the unread answers.
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    connected.connect(split_address(address))
    return connected


def _say_running() -> None:
    print("running", flush=True)


def fast_beside_slow() -> Iterator[Figure]:
    """Yield the 99th percentile of a produce request beside the worst of the three clients, divided
    by the percentile alone."""
    with broker() as (server, client):
        _fill(client)
        alone, beside = _percentiles(client, server.native, KINDS)
    ratios = {kind: found / alone for kind, found in beside.items()}
    worst = max(ratios, key=ratios.__getitem__)
    for kind, ratio in ratios.items():
        yield Figure(f"fast_beside_{kind}", beside[kind], "s", "fast_alone", ratio)
    yield Figure("fast_alone", alone, "s")
    yield Figure("fast_beside_slow", ratios[worst], "ratio", "fast_alone", ratios[worst])


def fast_beside_bulk() -> Iterator[Figure]:
    """Yield the same ratio beside a producer that always has large sets in flight."""
    with broker() as (server, client):
        client.call(create_topic(TOPIC, **RETENTION_LIMIT))
        alone, beside = _percentiles(client, server.native, [BULK])
    found = beside[BULK]
    yield Figure("fast_beside_bulk", found, "s", "fast_beside_bulk_alone", found / alone)
    yield Figure("fast_beside_bulk_alone", alone, "s")


def _percentiles(
    client: RawClient, address: str, kinds: Iterable[str]
) -> tuple[float, dict[str, float]]:
    """Return the 99th percentile of a produce request alone, and beside each client, in turns."""
    alone: list[float] = []
    beside: dict[str, list[float]] = {kind: [] for kind in kinds}
    client.call(create_topic("bench", **RETENTION_LIMIT))
    data, count = sets(100, 16 << 10)
    request = encoded(produce("bench", data, acks=1))
    for _ in range(_ROUNDS):
        alone.append(_p99(client, request))
        for kind, found in beside.items():
            with _running(kind, address):
                found.append(_p99(client, request))
    check_end(client, "bench", _ROUNDS * (1 + len(beside)) * _REQUESTS * count)
    return median(alone), {kind: median(found) for kind, found in beside.items()}


def _p99(client: RawClient, request: bytes) -> float:
    times = []
    for _ in range(_REQUESTS):
        began = time.perf_counter()
        client.exchange(request)
        times.append(time.perf_counter() - began)
    return quantile(times, 0.99)


def _fill(client: RawClient) -> None:
    """Fill the topics that the other clients read."""
    settings = {"retention_ms": -1, "segment_bytes": 128 * MIB}
    client.call(create_topic(TOPIC, **settings))
    client.call(create_topic(SCANNED_TOPIC, **settings, index_interval_bytes=128 * MIB))
    for first in range(0, MESSAGES, _IN_A_SET):
        records = [
            NewRecord(b"v" * 100, timestamp_ms=FIRST_MS + number)
            for number in range(first, first + _IN_A_SET)
        ]
        data = bytes(build_set(records))
        for topic in (TOPIC, SCANNED_TOPIC):
            client.exchange(encoded(produce(topic, data, acks=1)))
    for topic in (TOPIC, SCANNED_TOPIC):
        check_end(client, topic, MESSAGES)


@contextmanager
def _running(kind: str, address: str) -> Iterator[None]:
    command = [sys.executable, "-m", "horolog.bench.beside", kind, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "running\n":
                raise RuntimeError(f"{kind} does not run")
            yield
            if process.poll() is not None:
                raise RuntimeError(f"{kind} ended early")
        finally:
            process.kill()


if __name__ == "__main__":
    {**KINDS, BULK: bulk_producer}[sys.argv[1]](sys.argv[2])
