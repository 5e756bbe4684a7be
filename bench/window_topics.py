"""What a window costs that is read by the name of a topic, beside the native window of the same
messages; and what its waiting reader costs the producers of the topic."""

import random
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from statistics import median
from typing import Final

from ..protocol.api.kafka import frames as kafka
from ..protocol.api.log.fetch import FetchPartition, FetchRequest, FetchTopic
from ..protocol.api.log.list_offsets import LATEST
from ..protocol.records.kernel import walk
from ..protocol.records.messages.sets import NewRecord, build_set
from ..testing.program import ServerProcess
from ..testing.requests import create_topic, fetch, list_offsets, produce, result
from .brokers import ONE_TURN_BYTES, broker, processor_seconds, sets
from .figure import Figure, median_ratio, rate_beside
from .raw_client import RawClient, RefusedRequest, check_end, encoded
from .requests import Filling
from .windows import in_order, jitter_and_ahead

_MESSAGES: Final = 5_000_000
_A_SET: Final = 490
_SET_BYTES: Final = 64 << 10
_HOUR_MS: Final = 3_600_000
_FETCH_BYTES: Final = 1 << 20
_VERSION: Final = 10
_ROUNDS: Final = 7
_PAIRS: Final = 1_000
"""Rounds of a comparison whose difference is smaller than that of two rounds of the same work: many
short ones, as the speed of the same work drifts within a second."""
_WAIT_MS: Final = 60_000
"""The longest that a broker lets a fetch wait."""
_AGAIN_SECONDS: Final = 45
_FAR_WINDOW: Final = "20991114T14Z"

Reading = tuple[int, int]
"""Messages and bytes that came."""


@contextmanager
def _broker() -> Iterator[tuple[ServerProcess, RawClient, RawClient]]:
    """A broker, a native client and one in Kafka's encoding."""
    with broker("--kafka-listen", "127.0.0.1:0") as (server, client):
        assert server.kafka is not None
        with closing(RawClient(server.kafka, kafka)) as kafka_client:
            yield server, client, kafka_client


def window_topic(*, messages: int = _MESSAGES, rounds: int = _ROUNDS) -> Iterator[Figure]:
    """An hour of the day of `window_hour`, and of a day in order, whose sets go as stored."""
    with _broker() as (server, client, kafka_client):
        jittered = array("q", jitter_and_ahead(messages, random.Random(1)))
        ordered = array("q", in_order(messages, random.Random(1)))
        for topic, times in (("jittered", jittered), ("ordered", ordered)):
            _fill(client, topic, times)
        from_ms = ordered[messages // 2] // _HOUR_MS * _HOUR_MS
        inside = sum(from_ms <= at_ms < from_ms + _HOUR_MS for at_ms in jittered)
        native, named = _measured(
            server,
            [
                partial(_read_native, client, "jittered", from_ms, messages),
                partial(_read_topic, kafka_client, "jittered", from_ms),
            ],
            rounds,
        )
        if {one[0][0] for one in named} != {inside}:
            raise RefusedRequest(f"the hour has {inside} messages, {named[0][0][0]} came")
        rates = [inside / seconds for _, seconds, _ in named]
        ratio = median_ratio(rates, [inside / seconds for _, seconds, _ in native])
        yield Figure("window_topic", median(rates), "msg/s", "native window", ratio)
        native, named = _measured(
            server,
            [
                partial(_read_native, client, "ordered", from_ms, messages),
                partial(_read_topic, kafka_client, "ordered", from_ms),
            ],
            rounds,
        )
        costs = [used for _, _, used in named]
        ratio = median_ratio(costs, [used for _, _, used in native])
        yield Figure("window_topic_cpu", median(costs), "s", "native window", ratio)


def _measured(
    server: ServerProcess, reads: list[Callable[[], Reading]], rounds: int
) -> list[list[tuple[Reading, float, float]]]:
    """What each read gave, its seconds, and the broker's processor seconds; in turns. The first
    reads, which make what is derived of the log, are not counted."""
    for read in reads:
        read()
    found: list[list[tuple[Reading, float, float]]] = [[] for _ in reads]
    for _ in range(rounds):
        for number, read in enumerate(reads):
            began, used = time.perf_counter(), processor_seconds(server)
            reading = read()
            taken = time.perf_counter() - began
            found[number].append((reading, taken, processor_seconds(server) - used))
    return found


def _fill(client: RawClient, topic: str, times: "array[int]") -> None:
    client.call(create_topic(topic, retention_ms=-1))
    for begin in range(0, len(times), _A_SET):
        some = times[begin : begin + _A_SET]
        data = bytes(build_set([NewRecord(b"v" * 100, timestamp_ms=at_ms) for at_ms in some]))
        client.exchange(encoded(produce(topic, data, acks=1)))
    check_end(client, topic, len(times))


def _read_native(client: RawClient, topic: str, from_ms: int, end_offset: int) -> Reading:
    """All sets with messages of an hour, from which the client would take those messages."""
    offset = messages = read_bytes = 0
    while offset < end_offset:
        wanted = FetchPartition(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=_FETCH_BYTES,
            window_from_ms=from_ms,
            window_until_ms=from_ms + _HOUR_MS,
        )
        topics = [FetchTopic(name=topic, partitions=[wanted])]
        answer = result(client.call(FetchRequest(topics=topics, max_bytes=_FETCH_BYTES)))
        offset = answer.next_offset
        if answer.records:
            found = walk(answer.records, 0, len(answer.records), check_crc=False)
            offset, messages = found.last_offset + 1, messages + found.count
            read_bytes += found.end
    return messages, read_bytes


def _read_topic(client: RawClient, topic: str, from_ms: int) -> Reading:
    """The messages of an hour, up to the end that its topic has."""
    name = f"{topic}..{from_ms}..{from_ms + _HOUR_MS}"
    offset = messages = read_bytes = 0
    while True:
        request = fetch(
            name,
            (0, offset),
            max_wait_ms=500,
            min_bytes=1,
            partition_max_bytes=_FETCH_BYTES,
            max_bytes=_FETCH_BYTES,
        )
        answer = result(client.call(request, _VERSION))
        if answer.records:
            found = walk(answer.records, 0, len(answer.records), check_crc=False)
            offset, messages = found.last_offset + 1, messages + found.count
            read_bytes += found.end
        if offset >= answer.high_watermark:
            return messages, read_bytes


def produce_beside_window(
    *, turn_bytes: int = ONE_TURN_BYTES, rounds: int = _PAIRS
) -> Iterator[Figure]:
    """Messages a second into a topic on which a reader waits for a window of the far future, in
    turns with the same into one without a reader; both at their retention limit."""
    data, count = sets(100, _SET_BYTES)
    with _broker() as (_, client, kafka_client):
        alone, watched = (Filling(client, topic, data, count) for topic in ("alone", "watched"))
        for filling in (alone, watched):
            filling.send(turn_bytes // len(data) + 1)
        reader = _WaitingReader(client, kafka_client)

        def beside() -> int:
            reader.wait()
            return watched.send()

        works = (alone.send, beside)
        yield rate_beside("produce_beside_window", "msg/s", "without", works, rounds, seconds=0)
        for filling in (alone, watched):
            filling.check()


class _WaitingReader:
    """Waits at the end of a window that no message is in."""

    def __init__(self, client: RawClient, kafka_client: RawClient) -> None:
        self._client = client
        self._kafka_client = kafka_client
        self._since: float | None = None

    def wait(self) -> None:
        """Begin to wait, or go on."""
        now = time.monotonic()
        if self._since is not None:
            if now - self._since < _AGAIN_SECONDS:
                return
            self._kafka_client.answer()
        end = result(self._client.call(list_offsets("watched", (0, LATEST)))).offset
        request = fetch(f"watched..{_FAR_WINDOW}", (0, end), max_wait_ms=_WAIT_MS, min_bytes=1)
        self._kafka_client.send(encoded(request, _VERSION, kafka))
        self._since = now
