"""64 producers that wait for the disk."""

import selectors
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from statistics import median
from typing import Final

from ..testing.requests import create_topic, produce
from .brokers import ONE_TURN_BYTES, RETENTION_LIMIT, broker, sets
from .figure import Figure, quantile
from .raw_client import RawClient, check_end, encoded

_PRODUCERS: Final = 64
_ROUNDS: Final = 5
_SECONDS: Final = 0.6
_DURABLE: Final = -1


def durable_acks() -> Iterator[Figure]:
    """Sets of 16 KiB from 64 connections, one in flight each, every answer after a sync."""
    with broker() as (server, client), ExitStack() as stack:
        client.call(create_topic("bench", **RETENTION_LIMIT))
        data, count = sets(100, 16 << 10)
        one_turn = ONE_TURN_BYTES // len(data)
        client.pipeline(encoded(produce("bench", data, acks=1)), 1, one_turn, 8)
        producers = [
            stack.enter_context(closing(RawClient(server.native))) for _ in range(_PRODUCERS)
        ]
        request = encoded(produce("bench", data, acks=_DURABLE))
        rates: list[float] = []
        slowest: list[float] = []
        sent = one_turn
        for _ in range(_ROUNDS):
            times, seconds = _round(producers, request)
            sent += len(times)
            rates.append(len(times) / seconds)
            slowest.append(quantile(times, 0.99))
        check_end(client, "bench", sent * count)
        yield Figure("durable_acks", median(rates), "req/s")
        yield Figure("durable_acks_p99", median(slowest), "s")


def _round(producers: list[RawClient], request: bytes) -> tuple[list[float], float]:
    """Seconds that each request took, and all of them together."""
    times: list[float] = []
    began = time.perf_counter()
    until = began + _SECONDS
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
