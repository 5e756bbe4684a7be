"""Measures requests to one broker: produce rates into topics at their retention limit, fetch rates
from a log in memory, median times of one request at a time in turns with the echo, and the cost of
counting the latency of every message."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import cycle
from statistics import median
from typing import Final

from ..clock import SystemClock
from ..protocol.api.encodings import Encoding
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.log.fetch import FETCH
from ..protocol.api.log.list_offsets import LIST_OFFSETS
from ..protocol.api.native import frames as native
from ..protocol.records.kernel import walk
from ..protocol.records.kernel.terms import Offsets
from ..protocol.records.messages.sets import NewRecord, build_set
from ..server.metrics.figures import Figures
from ..testing.requests import create_topic, fetch, list_offsets, produce, result
from .brokers import (
    MIB,
    ONE_TURN_BYTES,
    RETENTION_LIMIT,
    batch,
    broker,
    echo_request,
    processor_seconds,
    sets,
    wait_until_idle,
)
from .figure import Figure, median_ratio, rates, times_in_turns
from .raw_client import RawClient, RefusedRequest, check_end, decoded, encoded

_TURNS: Final = 20
_EACH: Final = 100
_FIRST_MS: Final = 1_479_144_272_509
_SEGMENTS: Final = (1, 1_000, 10_000)
_SEGMENT_MESSAGES: Final = 120
_SEGMENT_BYTES: Final = 16 << 10
_BATCH: Final = 32
_BATCHES_IN_FLIGHT: Final = 2

LOG_BYTES: Final = 128 * MIB
PLACES: Final = 64

_TRIES: Final = 300
_SET_BYTES: Final = 64 << 10
_WINDOW_MS: Final = 60_000

_SETS: Final = 64
"""Number of additions measured for one figure. Their times differ, so one is not enough."""
_IN_FLIGHT: Final = 8
_ROUNDS: Final = 7
_SECONDS: Final = 0.4


class Filling:
    """Sends one set repeatedly to a topic of its own."""

    def __init__(
        self, client: RawClient, topic: str, data: bytes, count: int, encoding: Encoding = native
    ) -> None:
        """`count` is the number of messages in the set; `client` uses `encoding`."""
        self._client = client
        self._topic = topic
        self._count = count
        self._request = encoded(produce(topic, data, acks=1), encoding=encoding)
        self._sent = 0
        client.call(create_topic(topic, **RETENTION_LIMIT))

    def send(self, times: int = 64) -> int:
        """Send the set several times, wait for the answers, and return the number of messages."""
        self._client.pipeline(self._request, 1, times, _IN_FLIGHT)
        self._sent += times * self._count
        return times * self._count

    def check(self) -> None:
        check_end(self._client, self._topic, self._sent)


def produce_rate(
    name: str,
    value_bytes: int,
    set_bytes: int,
    *,
    turn_bytes: int = ONE_TURN_BYTES,
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
) -> Iterator[Figure]:
    """Messages a second into a topic at its retention limit, after one full turn of it."""
    with broker() as (_, client):
        data, count = sets(value_bytes, set_bytes)
        filling = Filling(client, "bench", data, count)
        filling.send(turn_bytes // len(data) + 1)
        found = rates(filling.send, rounds=rounds, seconds=seconds)
        filling.check()
        yield Figure(name, median(found), "msg/s")


def batch_rate(
    name: str,
    value_bytes: int,
    set_bytes: int,
    *,
    turn_bytes: int = ONE_TURN_BYTES,
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
) -> Iterator[Figure]:
    """Yield the rate of record batches, in turns with the same batches sent to Kafka's port of the
    same broker."""
    with (
        broker("--kafka-listen", "127.0.0.1:0") as (server, client),
        closing(RawClient(_kafka_address(server.kafka), kafka)) as kafka_client,
    ):
        data, count = batch(value_bytes, set_bytes)
        ours = Filling(client, "native", data, count)
        theirs = Filling(kafka_client, "kafka", data, count, kafka)
        for filling in (ours, theirs):
            filling.send(turn_bytes // len(data) + 1)
        found: dict[Filling, list[float]] = {ours: [], theirs: []}
        for _ in range(rounds):
            for filling in (ours, theirs):
                found[filling] += rates(filling.send, rounds=1, seconds=seconds)
        for filling in (ours, theirs):
            filling.check()
    beside, ratio = f"{name}_kafka", median_ratio(found[ours], found[theirs])
    yield Figure(name, median(found[ours]), "msg/s", beside, ratio)
    yield Figure(beside, median(found[theirs]), "msg/s")


def _kafka_address(address: str | None) -> str:
    assert address is not None
    return address


def latency_count_cost() -> Iterator[Figure]:
    """Yield the cost of counting latencies, as a share of the time that a set of 64 KiB takes: the
    walk that counts minus the walk that does not, and the addition of the counts. Measured in this
    process, with the present form of the kernel."""
    data, count = sets(100, _SET_BYTES)
    buffer = bytearray(data)
    now_ms = int(time.time() * 1000)
    figures = Figures(SystemClock(), _WINDOW_MS).topic("bench")
    latency = walk(buffer, 0, len(buffer), now_ms=now_ms).latency
    assert latency is not None

    def walking(now_ms: int) -> Callable[[], object]:
        return lambda: walk(buffer, 0, len(buffer), offsets=Offsets.ASSIGN, now_ms=now_ms)

    def adding_up() -> None:
        for _ in range(_SETS):
            figures.appended(count, len(data), latency)

    works: tuple[Callable[[], object], ...] = (walking(-1), walking(now_ms), adding_up)
    without, with_counts, adding = times_in_turns(works, rounds=_TRIES, each=1)
    adding /= _SETS
    (produced,) = produce_rate("produce_100B_64KiB", 100, _SET_BYTES)
    set_seconds = count / produced.value
    cost = max(with_counts - without, 0.0) + adding
    yield Figure("latency_count_cost", cost / set_seconds, "share", "produce_100B_64KiB")


def fetch_rate(
    name: str,
    fetch_bytes: int,
    in_flight: int,
    *,
    log_bytes: int = LOG_BYTES,
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
) -> Iterator[Figure]:
    """Yield bytes a second of fetches of `fetch_bytes` from places all over the log."""
    with broker() as (_, client):
        requests = filled(client, fetch_bytes, log_bytes)
        work = partial(fetch_all, client, requests, in_flight)
        found = rates(work, rounds=rounds, seconds=seconds)
        yield Figure(name, median(found), "bytes/s")


def filled(client: RawClient, fetch_bytes: int, log_bytes: int) -> list[bytes]:
    """Fill a log; return requests that are each answered with `fetch_bytes`. Each is checked
    once."""
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
    """Send each request once, `in_flight` at a time; return the bytes of all answers."""
    fetched = 0
    for number in range(len(requests) + in_flight):
        if number < len(requests):
            client.send(requests[number])
        if number >= in_flight:
            fetched += len(client.answer())
    return fetched


def echo() -> Iterator[Figure]:
    """Yield the round trip of the smallest request."""
    with broker() as (_, client):
        request = echo_request()
        (seconds,) = times_in_turns([lambda: client.exchange(request)], rounds=_TURNS, each=_EACH)
        yield Figure("echo_p50", seconds, "s")


def produce_one() -> Iterator[Figure]:
    """Yield the median of requests of one message of 100 bytes, one at a time, beside the echo."""
    with broker() as (_, client):
        client.call(create_topic("bench"))
        echoed, request = echo_request(), encoded(produce("bench", sets(100, 1)[0], acks=1))
        echo_seconds, seconds = times_in_turns(
            [lambda: client.exchange(echoed), lambda: client.exchange(request)],
            rounds=_TURNS,
            each=_EACH,
        )
        check_end(client, "bench", _TURNS * _EACH)
        yield Figure("produce_one", seconds, "s", "echo_p50", seconds / echo_seconds)


def produce_one_pipelined() -> Iterator[Figure]:
    """Yield requests a second, with one message of 100 bytes each and 64 requests in flight."""
    with broker() as (_, client):
        client.call(create_topic("bench"))
        batch = encoded(produce("bench", sets(100, 1)[0], acks=1)) * _BATCH
        sent = 0

        def work() -> int:
            nonlocal sent
            client.pipeline(batch, _BATCH, 32, _BATCHES_IN_FLIGHT)
            sent += 32 * _BATCH
            return 32 * _BATCH

        work()
        found = rates(work, rounds=5, seconds=0.4)
        check_end(client, "bench", sent)
        yield Figure("produce_one_pipelined", median(found), "req/s")


def find_time() -> Iterator[Figure]:
    """Yield the seconds of a search for the first offset at a time, in logs of 1, 1,000 and 10,000
    segments in turns."""
    with broker() as (server, client):
        works: list[Callable[[], object]] = [partial(client.exchange, echo_request())]
        answers: list[list[tuple[int, bytes]]] = []
        for segments in _SEGMENTS:
            topic = f"of-{segments}"
            _fill(client, topic, segments)
            messages = segments * _SEGMENT_MESSAGES
            targets = [7919 * number % messages for number in range(_TURNS * _EACH)]
            answers.append([])
            works.append(_search(client, topic, targets, answers[-1]))
        wait_until_idle([partial(processor_seconds, server)])
        echo_seconds, *found = times_in_turns(works, rounds=_TURNS, each=_EACH)
        for segments, some in zip(_SEGMENTS, answers, strict=True):
            _check_found(some)
            seconds = found[_SEGMENTS.index(segments)]
            yield Figure(f"find_time_{segments}", seconds, "s", "echo_p50", seconds / echo_seconds)


def _fill(client: RawClient, topic: str, segments: int) -> None:
    """Append one set per segment. Message `n` has the time `_FIRST_MS + n`."""
    client.call(create_topic(topic, retention_ms=-1, segment_bytes=_SEGMENT_BYTES))
    for first in range(0, segments * _SEGMENT_MESSAGES, _SEGMENT_MESSAGES):
        records = [
            NewRecord(b"v" * 100, timestamp_ms=_FIRST_MS + number)
            for number in range(first, first + _SEGMENT_MESSAGES)
        ]
        client.exchange(encoded(produce(topic, bytes(build_set(records)), acks=1)))
    check_end(client, topic, segments * _SEGMENT_MESSAGES)


def _search(
    client: RawClient, topic: str, targets: list[int], answers: list[tuple[int, bytes]]
) -> Callable[[], object]:
    requests = [encoded(list_offsets(topic, (0, _FIRST_MS + target))) for target in targets]
    turn = cycle(zip(targets, requests, strict=True))

    def work() -> None:
        target, request = next(turn)
        answers.append((target, bytes(client.exchange(request))))

    return work


def _check_found(answers: list[tuple[int, bytes]]) -> None:
    for target, frame in answers:
        found = result(decoded(LIST_OFFSETS, LIST_OFFSETS.last_version(native=True), frame))
        if found.offset != target:
            raise RefusedRequest(f"found offset {found.offset}, not {target}")
