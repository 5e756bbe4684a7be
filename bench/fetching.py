"""Bytes a second out of a log that is in memory."""

from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Final

from ..protocol.api.log.fetch import FETCH
from ..testing.requests import create_topic, fetch, produce, result
from .brokers import MIB, broker, sets
from .figure import Figure, rates
from .raw_client import RawClient, RefusedRequest, check_end, decoded, encoded

LOG_BYTES: Final = 128 * MIB
PLACES: Final = 64
_ROUNDS: Final = 7
_SECONDS: Final = 0.4


def fetch_rate(
    name: str,
    fetch_bytes: int,
    in_flight: int,
    *,
    log_bytes: int = LOG_BYTES,
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
) -> Iterator[Figure]:
    """Fetches of so many bytes from places all over the log."""
    with broker() as (_, client):
        requests = filled(client, fetch_bytes, log_bytes)
        work = partial(fetch_all, client, requests, in_flight)
        found = rates(work, rounds=rounds, seconds=seconds)
        yield Figure(name, median(found), "bytes/s")


def filled(client: RawClient, fetch_bytes: int, log_bytes: int) -> list[bytes]:
    """Fill a log; requests that are each answered with `fetch_bytes`, checked once."""
    client.call(create_topic("bench", retention_ms=-1))
    data, count = sets(100, 256 << 10)
    times = log_bytes // len(data)
    client.pipeline(encoded(produce("bench", data, acks=1)), 1, times, 8)
    check_end(client, "bench", times * count)
    last = times * count - fetch_bytes // 100
    requests = [
        encoded(fetch("bench", (0, last * place // PLACES), partition_max_bytes=fetch_bytes))
        for place in range(PLACES)
    ]
    for request in requests:
        answer = result(decoded(FETCH, FETCH.last_version(native=True), client.exchange(request)))
        if len(answer.records) != fetch_bytes:
            raise RefusedRequest(f"a fetch of {fetch_bytes} bytes got {len(answer.records)}")
    return requests


def fetch_all(client: RawClient, requests: list[bytes], in_flight: int) -> int:
    """Send each of the requests once, so many ahead of the answers; bytes of all answers."""
    fetched = 0
    for number in range(len(requests) + in_flight):
        if number < len(requests):
            client.send(requests[number])
        if number >= in_flight:
            fetched += len(client.answer())
    return fetched
