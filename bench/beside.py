"""The slowest answers to a fast producer, alone and beside clients that are hard work."""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from ..protocol.records.messages.sets import NewRecord, build_set
from ..testing.requests import create_topic, produce
from .brokers import MIB, RETENTION_LIMIT, broker, sets
from .figure import Figure, quantile
from .neighbours import BULK, FIRST_MS, KINDS, MESSAGES, SCANNED_TOPIC, TOPIC
from .raw_client import RawClient, check_end, encoded

_ROUNDS: Final = 5
_REQUESTS: Final = 1_000
_IN_A_SET: Final = 1_000


def fast_beside_slow() -> Iterator[Figure]:
    """The 99th percentile of a produce request beside the worst of the three, over that alone."""
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
    """The same beside a producer of large sets that always has some in flight."""
    with broker() as (server, client):
        client.call(create_topic(TOPIC, **RETENTION_LIMIT))
        alone, beside = _percentiles(client, server.native, [BULK])
    found = beside[BULK]
    yield Figure("fast_beside_bulk", found, "s", "fast_beside_bulk_alone", found / alone)
    yield Figure("fast_beside_bulk_alone", alone, "s")


def _percentiles(
    client: RawClient, address: str, kinds: Iterable[str]
) -> tuple[float, dict[str, float]]:
    """The 99th percentile of a produce request alone, and beside each kind, in turns."""
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
    """The topics that the neighbours read."""
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
    command = [sys.executable, "-m", "horolog.bench.neighbours", kind, address]
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
