"""Median times of one request at a time, in turns with the echo."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from statistics import median
from typing import Final

from ..protocol.api.log.list_offsets import LIST_OFFSETS
from ..protocol.records.messages.sets import NewRecord, build_set
from ..testing.requests import create_topic, list_offsets, produce, result
from .brokers import broker, echo_request, processor_seconds, sets, wait_until_idle
from .figure import Figure, rates, times_in_turns
from .raw_client import RawClient, RefusedRequest, check_end, decoded, encoded

_ROUNDS: Final = 20
_EACH: Final = 100
_FIRST_MS: Final = 1_479_144_272_509
_SEGMENTS: Final = (1, 1_000, 10_000)
_SEGMENT_MESSAGES: Final = 120
_SEGMENT_BYTES: Final = 16 << 10
_BATCH: Final = 32
_BATCHES_IN_FLIGHT: Final = 2


def echo() -> Iterator[Figure]:
    """Yield the round trip of the smallest request."""
    with broker() as (_, client):
        request = echo_request()
        (seconds,) = times_in_turns([lambda: client.exchange(request)], rounds=_ROUNDS, each=_EACH)
        yield Figure("echo_p50", seconds, "s")


def produce_one() -> Iterator[Figure]:
    """Yield the median of requests of one message of 100 bytes, one at a time, beside the echo."""
    with broker() as (_, client):
        client.call(create_topic("bench"))
        echoed, request = echo_request(), encoded(produce("bench", sets(100, 1)[0], acks=1))
        echo_seconds, seconds = times_in_turns(
            [lambda: client.exchange(echoed), lambda: client.exchange(request)],
            rounds=_ROUNDS,
            each=_EACH,
        )
        check_end(client, "bench", _ROUNDS * _EACH)
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
            targets = [7919 * number % messages for number in range(_ROUNDS * _EACH)]
            answers.append([])
            works.append(_search(client, topic, targets, answers[-1]))
        wait_until_idle([partial(processor_seconds, server)])
        echo_seconds, *found = times_in_turns(works, rounds=_ROUNDS, each=_EACH)
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
