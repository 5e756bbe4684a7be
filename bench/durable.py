"""64 producers that wait for the disk, beside one loop that writes and syncs."""

import os
import selectors
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from statistics import median
from typing import Final

from ..testing.requests import create_topic, produce
from .brokers import ONE_TURN_BYTES, RETENTION_LIMIT, broker, sets
from .figure import Figure, median_ratio, quantile
from .raw_client import RawClient, check_end, encoded

PRODUCERS: Final = 64
SETS_A_SYNC: Final = 32
_ROUNDS: Final = 5
_SECONDS: Final = 0.6
DURABLE: Final = -1


def durable_acks(
    *, turn_bytes: int = ONE_TURN_BYTES, rounds: int = _ROUNDS, seconds: float = _SECONDS
) -> Iterator[Figure]:
    """Sets of 16 KiB from 64 connections, one in flight each, every answer after a sync; in turns
    with a loop of one write of 32 such sets and one sync of a growing file on the same disk."""
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
    """Seconds that each request took, and all of them together."""
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
    """Seconds that each write with its sync took, and all of them together."""
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
