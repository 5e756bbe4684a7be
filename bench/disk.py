"""Compares the broker with the disk. The growth of a log stands beside plain files of the same
sets. 64 producers that wait for syncs stand beside one loop that writes and syncs."""

import os
import selectors
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from statistics import median
from typing import Final

from ..testing.requests import create_topic, produce
from .brokers import MIB, ONE_TURN_BYTES, RETENTION_LIMIT, broker, sets
from .figure import Figure, median_ratio, quantile
from .raw_client import RawClient, check_end, encoded
from .socket_to_file import writing

_IN_FLIGHT: Final = 8
_GROWING_ROUNDS: Final = 3
_SLICES: Final = 8
_SLICE_BYTES: Final = 48 * MIB
_SET_BYTES: Final = 64 << 10
PRODUCERS: Final = 64
SETS_A_SYNC: Final = 32
_ROUNDS: Final = 5
_SECONDS: Final = 0.6
DURABLE: Final = -1


def durable_acks(
    *, turn_bytes: int = ONE_TURN_BYTES, rounds: int = _ROUNDS, seconds: float = _SECONDS
) -> Iterator[Figure]:
    """Measure sets of 16 KiB from 64 connections, one in flight each, with every answer after a
    sync. In turns with it runs a loop of one write of 32 such sets and one sync, on the same disk.
    """
    rates: list[float] = []
    slowest: list[float] = []
    sync_rates: list[float] = []
    slowest_syncs: list[float] = []
    with broker() as (server, client), ExitStack() as stack:
        client.call(create_topic("bench", **RETENTION_LIMIT))
        data, count = sets(100, 16 << 10)
        one_turn = turn_bytes // len(data)
        client.pipeline(encoded(produce("bench", data, acks=1)), 1, one_turn, 8)
        producers = [
            stack.enter_context(closing(RawClient(server.native))) for _ in range(PRODUCERS)
        ]
        request = encoded(produce("bench", data, acks=DURABLE))
        path = server.data_dir.parent / "synced"
        file = stack.enter_context(path.open("xb", buffering=0))
        written = data * SETS_A_SYNC
        sent = one_turn
        for _ in range(rounds):
            times, taken = produce_each(producers, request, seconds)
            sent += len(times)
            rates.append(len(times) / taken)
            slowest.append(quantile(times, 0.99))
            times, taken = sync_each(file.fileno(), written, seconds)
            sync_rates.append(len(times) * SETS_A_SYNC / taken)
            slowest_syncs.append(quantile(times, 0.99))
        check_end(client, "bench", sent * count)
    rate, p99 = median_ratio(rates, sync_rates), median_ratio(slowest, slowest_syncs)
    yield Figure("durable_acks", median(rates), "req/s", "disk_syncs_32", rate)
    yield Figure("durable_acks_p99", median(slowest), "s", "disk_syncs_32_p99", p99)
    yield Figure("disk_syncs_32", median(sync_rates), "sets/s")
    yield Figure("disk_syncs_32_p99", median(slowest_syncs), "s")


def produce_each(
    producers: list[RawClient], request: bytes, least_seconds: float
) -> tuple[list[float], float]:
    """Return the seconds of each request, and the seconds of the whole run."""
    times: list[float] = []
    began = time.perf_counter()
    until = began + least_seconds
    with selectors.DefaultSelector() as selector:
        sent: dict[RawClient, float] = {}
        for producer in producers:
            selector.register(producer, selectors.EVENT_READ, producer)
            sent[producer] = time.perf_counter()
            producer.send(request)
        while sent:
            for key, _ in selector.select():
                producer = key.data
                producer.answer()
                now = time.perf_counter()
                times.append(now - sent.pop(producer))
                if now < until:
                    sent[producer] = now
                    producer.send(request)
    return times, time.perf_counter() - began


def sync_each(descriptor: int, data: bytes, least_seconds: float) -> tuple[list[float], float]:
    """Return the seconds of each write with its sync, and the seconds of the whole run."""
    times: list[float] = []
    began = ended = time.perf_counter()
    while ended < began + least_seconds:
        begun = ended
        if os.write(descriptor, data) != len(data):
            raise OSError("the disk is full")
        os.fdatasync(descriptor)
        ended = time.perf_counter()
        times.append(ended - begun)
    return times, ended - began


def growth(
    *, rounds: int = _GROWING_ROUNDS, slices: int = _SLICES, slice_bytes: int = _SLICE_BYTES
) -> Iterator[Figure]:
    """Yield bytes a second of growing logs, of files that a process writes from a socket, and of
    files that one writer makes from memory. All get the same sets.

    The three grow in turns, slice by slice, so that all use the same memory and disk. New memory
    pages cost many times more than used ones, and which pages are new changes by the second.
    """
    through_socket: list[float] = []
    plain: list[float] = []
    for name, value_bytes in (("produce_100B_growing", 100), ("produce_1KiB_growing", 1024)):
        data, count = sets(value_bytes, _SET_BYTES)
        grown = [_grow(data, count, slices, slice_bytes) for _ in range(rounds)]
        log, received, written = zip(*grown, strict=True)
        through_socket += received
        plain += written
        ratio = median_ratio(log, received)
        yield Figure(name, median(log), "bytes/s", "socket_to_file", ratio)
    yield Figure("socket_to_file", median(through_socket), "bytes/s")
    yield Figure("file_write_new", median(plain), "bytes/s")


def _grow(data: bytes, count: int, slices: int, slice_bytes: int) -> list[float]:
    """Return bytes a second of a new log, of a new file through a socket, and of a new file from
    memory."""
    times = slice_bytes // len(data)
    with broker() as (server, client):
        client.call(create_topic("bench", retention_ms=-1))
        request = encoded(produce("bench", data, acks=1))
        folder = server.data_dir.parent
        received, written = folder / "received", folder / "written"
        with writing(received, data, times) as send, written.open("wb", buffering=0) as file:
            works: tuple[Callable[[], object], ...] = (
                partial(client.pipeline, request, 1, times, _IN_FLIGHT),
                partial(send, _IN_FLIGHT),
                partial(_write, file.fileno(), data, times),
            )
            seconds = seconds_in_turns(works, slices)
        size_bytes = slices * times * len(data)
        check_end(client, "bench", slices * times * count)
        assert received.stat().st_size == written.stat().st_size == size_bytes
        # Before the next round, so that the memory in use stays below 2 GiB.
        server.process.kill()
        server.process.wait()
        shutil.rmtree(server.data_dir)
    return [size_bytes / taken for taken in seconds]


def seconds_in_turns(works: Sequence[Callable[[], object]], slices: int) -> list[float]:
    """Call each of `works` once in each of `slices` rounds; return the total seconds of each. The
    order rotates from round to round."""
    seconds = [0.0] * len(works)
    for turn in range(slices):
        for place in range(len(works)):
            number = (turn + place) % len(works)
            began = time.perf_counter()
            works[number]()
            seconds[number] += time.perf_counter() - began
    return seconds


def _write(descriptor: int, data: bytes, times: int) -> None:
    for _ in range(times):
        if os.write(descriptor, data) != len(data):
            raise OSError("the disk is full")
