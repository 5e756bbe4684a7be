"""Messages a second into one topic, and how fast a log grows beside a plain file."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from ..testing.requests import create_topic, produce
from .brokers import KERNEL_VARIABLE, MIB, ONE_TURN_BYTES, RETENTION_LIMIT, broker, sets
from .figure import Figure, rates
from .raw_client import RawClient, check_end, encoded

INTERPRETED: Final = {KERNEL_VARIABLE: "interpreted"}
"""Environment of a broker that is not to use compiled code."""

_IN_FLIGHT: Final = 8
_GROWTH_ROUNDS: Final = 3
_SLICES: Final = 8
_SLICE_BYTES: Final = 48 * MIB


def produce_rate(
    name: str, value_bytes: int, set_bytes: int, env: dict[str, str] | None = None
) -> Iterator[Figure]:
    """Messages a second into a topic at its retention limit, after one full turn of it."""
    with broker(env=env) as (_, client):
        client.call(create_topic("bench", **RETENTION_LIMIT))
        data, count = sets(value_bytes, set_bytes)
        request = encoded(produce("bench", data, acks=1))
        sent = 0

        def work(times: int = 64) -> int:
            nonlocal sent
            client.pipeline(request, 1, times, _IN_FLIGHT)
            sent += times * count
            return times * count

        work(ONE_TURN_BYTES // len(data) + 1)
        found = rates(work, rounds=7, seconds=0.4)
        check_end(client, "bench", sent)
        yield Figure(name, median(found), "msg/s")


def growth() -> Iterator[Figure]:
    """Bytes a second of growing logs, and of plain files that one writer makes of the same sets.

    A log and a file grow in turns, slice by slice, so that both meet the same memory and the same
    disk: new pages are many times dearer than used ones, and which there are changes by the
    second.
    """
    plain: list[float] = []
    for name, value_bytes in (("produce_100B_growing", 100), ("produce_1KiB_growing", 1024)):
        found, ratios = [], []
        for _ in range(_GROWTH_ROUNDS):
            log_rate, file_rate = _grow(*sets(value_bytes, 64 << 10))
            found.append(log_rate)
            plain.append(file_rate)
            ratios.append(log_rate / file_rate)
        yield Figure(name, median(found), "bytes/s", "file_write_new", median(ratios))
    yield Figure("file_write_new", median(plain), "bytes/s")


def _grow(data: bytes, count: int) -> tuple[float, float]:
    """Bytes a second of a new log and of a new file."""
    times = _SLICE_BYTES // len(data)
    log_seconds = file_seconds = 0.0
    with broker() as (server, client):
        client.call(create_topic("bench", retention_ms=-1))
        request = encoded(produce("bench", data, acks=1))
        path = server.data_dir.parent / "plain"
        with path.open("wb", buffering=0) as file:
            for number in range(_SLICES):
                if number % 2:
                    log_seconds += _timed_produce(client, request, times)
                    file_seconds += _timed_write(file.fileno(), data, times)
                else:
                    file_seconds += _timed_write(file.fileno(), data, times)
                    log_seconds += _timed_produce(client, request, times)
        check_end(client, "bench", _SLICES * times * count)
        server.process.kill()
        server.process.wait()
        _remove(server.data_dir, path)
    written = _SLICES * times * len(data)
    return written / log_seconds, written / file_seconds


def _timed_produce(client: RawClient, request: bytes, times: int) -> float:
    began = time.perf_counter()
    client.pipeline(request, 1, times, _IN_FLIGHT)
    return time.perf_counter() - began


def _timed_write(descriptor: int, data: bytes, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        if os.write(descriptor, data) != len(data):
            raise OSError("the disk is full")
    return time.perf_counter() - began


def _remove(data_dir: Path, path: Path) -> None:
    """Before the next round, so that the memory in use stays below 2 GiB."""
    shutil.rmtree(data_dir)
    path.unlink()
