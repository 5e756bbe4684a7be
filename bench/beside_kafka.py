"""`python -m horolog.bench.beside_kafka [NAME...]`: Horolog and a real Apache Kafka in one run.

Both brokers run all the time. Each figure is measured at one broker after the other, round by
round, so that other load on the machine affects both alike. Prints a table and writes
`build/bench-kafka.json`.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from ..protocol.api.log.fetch import FETCH
from ..protocol.records.batch import NewRecord, build_batch
from ..testing.requests import fetch, list_offsets, result
from .apache_kafka import Unavailable
from .brokers import MIB, ONE_TURN_BYTES, batch, wait_until_idle
from .figure import check_known, median_ratio, times_in_turns
from .kafka_sides import Side, Sides, both, bounded, check_answer, found_offset
from .raw_client import RefusedRequest
from .requests import fetch_all

_AT_ONCE: Final = 1_000
_WAIT_SECONDS: Final = 60
RESULTS: Final = Path("build") / "bench-kafka.json"
_ROUNDS: Final = 3
_PRODUCE_ROUNDS: Final = 5
_SECONDS: Final = 0.5

_LEAD_IN_SECONDS: Final = 1.2
"""How long a broker runs before its turn is measured. Both brokers check retention once a second;
after a check, a broker writes to memory that it has just freed. Memory that has been free for
longer may be back at the host of a virtual machine. To get it again takes more time than all the
work that is measured."""
_WARM_SECONDS: Final = 10
_IN_FLIGHT: Final = 8
_FETCHES_IN_FLIGHT: Final = 4
_BATCH: Final = 32
_FIRST_MS: Final = 1_479_144_272_509
_SEGMENTS: Final = (1, 1_000, 5_000)
_SEGMENT_MESSAGES: Final = 140
_SEGMENT_BYTES: Final = 16 << 10
_ONE_ROUNDS: Final = 20
_ONE_EACH: Final = 50


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """One figure of Horolog and of Kafka. Larger rates are better; smaller seconds and bytes are
    better."""

    name: str
    unit: str
    kafka: float
    horolog: float
    ratio: float
    """Horolog's value divided by Kafka's: the median of the ratios of all rounds."""
    fsync: float | None = None
    """The value of Horolog with `acks.all.durability=fsync`."""


Rounds = dict[str, list[float]]


def in_turns(sides: Sequence[Side], work: Callable[[Side], float], rounds: int = _ROUNDS) -> Rounds:
    """Return the results of `work` for each side, one for each round."""
    found: Rounds = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            found[side.name].append(work(side))
    return found


def in_turns_of_one(name: str, works: Sequence[Callable[[], object]]) -> ComparedSides:
    """Return the seconds of one request at Kafka and at Horolog, each the median of some rounds."""
    rounds = [times_in_turns(works, rounds=_ONE_ROUNDS, each=_ONE_EACH) for _ in range(3)]
    kafka, horolog = ([one[n] for one in rounds] for n in range(2))
    return compared(name, "s", {"kafka": kafka, "written": horolog})


def compared(name: str, unit: str, found: Rounds) -> ComparedSides:
    fsync = found.get("fsync")
    return ComparedSides(
        name,
        unit,
        median(found["kafka"]),
        median(found["written"]),
        median_ratio(found["written"], found["kafka"]),
        None if fsync is None else median(fsync),
    )


def warm_up(side: Side) -> None:
    """Send Kafka some requests of every kind: Java compiles only code that has run often."""
    topic = side.topic("warm", **bounded())
    data, _ = batch(100, 64 << 10)
    one, _ = batch(100, 1)
    work = (
        (side.produce(topic, data), 16),
        (side.produce(topic, one), 200),
        (side.request(list_offsets(topic, (0, _FIRST_MS))), 50),
    )
    ended = time.perf_counter() + _WARM_SECONDS
    while time.perf_counter() < ended:
        for request, times in work:
            side.client.pipeline(request, 1, times, _IN_FLIGHT)
        end = side.request(fetch(topic, (0, max(side.end(topic) - 10_000, 0))))
        side.client.pipeline(end, 1, 16, _FETCHES_IN_FLIGHT)


def produce_rate(
    sides: Sides, name: str, value_bytes: int, set_bytes: int
) -> Iterator[ComparedSides]:
    """Yield messages a second, and the broker's processor time for a million messages."""
    data, count = batch(value_bytes, set_bytes)
    topics = {side.name: side.topic(name, **bounded()) for side in sides.all}
    requests = {side.name: side.produce(topics[side.name], data) for side in sides.all}
    sent = dict.fromkeys(requests, 0)
    used: Rounds = {side.name: [] for side in sides.all}

    def send(side: Side, seconds: float, least_bytes: int = 0) -> float:
        began, done = time.perf_counter(), 0
        while (taken := time.perf_counter() - began) < seconds or done * len(
            data
        ) < least_bytes * count:
            side.client.pipeline(requests[side.name], 1, 16, _IN_FLIGHT)
            done += 16 * count
        sent[side.name] += done
        return done / taken

    def work(side: Side) -> float:
        send(side, _LEAD_IN_SECONDS)
        before, sent_before = side.processor_seconds(), sent[side.name]
        rate = send(side, _SECONDS)
        used_here = side.processor_seconds() - before
        used[side.name].append(used_here / (sent[side.name] - sent_before) * 1e6)
        return rate

    for side in sides.all:
        send(side, 0, ONE_TURN_BYTES)
    found = in_turns(sides.all, work, _PRODUCE_ROUNDS)
    for side in sides.all:
        side.check_end(topics[side.name], sent[side.name])
    yield compared(name, "msg/s", found)
    yield compared(f"{name}_cpu", "s per million", used)


def produce_one(sides: Sides) -> Iterator[ComparedSides]:
    """Seconds of a request with one message of 100 bytes, one at a time."""
    data, _ = batch(100, 1)
    pair = (sides.kafka, sides.written)
    topics = {side.name: side.topic("one-at-a-time") for side in pair}
    works = [partial(side.client.exchange, side.produce(topics[side.name], data)) for side in pair]
    wait_until_idle([side.processor_seconds for side in pair])
    yield in_turns_of_one("produce_one", works)
    for side in pair:
        side.check_end(topics[side.name], 3 * _ONE_ROUNDS * _ONE_EACH)


def produce_one_pipelined(sides: Sides) -> Iterator[ComparedSides]:
    """Requests a second of one message of 100 bytes each, 64 in flight."""
    data, _ = batch(100, 1)
    topics = {side.name: side.topic("one") for side in sides.all}
    requests = {side.name: side.produce(topics[side.name], data) * _BATCH for side in sides.all}
    sent = dict.fromkeys(requests, 0)

    def work(side: Side) -> float:
        began, done = time.perf_counter(), 0
        while (taken := time.perf_counter() - began) < _SECONDS:
            side.client.pipeline(requests[side.name], _BATCH, 8, 2)
            done += 8 * _BATCH
        sent[side.name] += done
        return done / taken

    in_turns(sides.all, work)
    found = in_turns(sides.all, work)
    for side in sides.all:
        side.check_end(topics[side.name], sent[side.name])
    yield compared("produce_one_pipelined", "req/s", found)


def fetch_rate(
    sides: Sides, name: str, fetch_bytes: int, in_flight: int = _FETCHES_IN_FLIGHT
) -> Iterator[ComparedSides]:
    """Yield bytes a second of fetches of `fetch_bytes` from random places in 64 MiB."""
    pair = (sides.kafka, sides.written)
    data, count = batch(100, 64 << 10)
    times = 64 * MIB // len(data)
    requests = {}
    for side in pair:
        topic = side.topic(name, retention_ms=-1)
        side.client.pipeline(side.produce(topic, data), 1, times, _IN_FLIGHT)
        side.check_end(topic, times * count)
        last = (times - fetch_bytes // len(data) - 1) * count
        requests[side.name] = [
            side.request(fetch(topic, (0, offset), partition_max_bytes=fetch_bytes))
            for offset in (last * place // 40 // count * count for place in range(40))
        ]
        for request in requests[side.name]:
            answer = result(check_answer(side.client.exchange(request), FETCH))
            if len(answer.records) < 0.9 * fetch_bytes:
                raise RefusedRequest(f"a fetch of {fetch_bytes} bytes got {len(answer.records)}")

    def work(side: Side) -> float:
        began, done = time.perf_counter(), 0
        while (taken := time.perf_counter() - began) < _SECONDS:
            done += fetch_all(side.client, requests[side.name], in_flight)
        return done / taken

    in_turns(pair, work)
    yield compared(name, "bytes/s", in_turns(pair, work))


def find_time(sides: Sides) -> Iterator[ComparedSides]:
    """Yield the seconds of one search for the first offset at a time, in logs of different numbers
    of segments."""
    pair = (sides.kafka, sides.written)
    for segments in _SEGMENTS:
        works = [_lookups(side, segments) for side in pair]
        wait_until_idle([side.processor_seconds for side in pair])
        yield in_turns_of_one(f"find_time_{segments}", works)


def _lookups(side: Side, segments: int) -> Callable[[], object]:
    """Return a search in a log of `segments` segments. Message `n` has the time `_FIRST_MS + n`."""
    topic = side.topic(f"of-{segments}", retention_ms=-1, segment_bytes=_SEGMENT_BYTES)
    for first in range(0, segments * _SEGMENT_MESSAGES, _SEGMENT_MESSAGES):
        records = [
            NewRecord(b"v" * 100, timestamp_ms=_FIRST_MS + number)
            for number in range(first, first + _SEGMENT_MESSAGES)
        ]
        check_answer(side.client.exchange(side.produce(topic, bytes(build_batch(records)))))
    messages = segments * _SEGMENT_MESSAGES
    side.check_end(topic, messages)
    targets = [7919 * number % messages for number in range(_ONE_EACH)]
    requests = [side.request(list_offsets(topic, (0, _FIRST_MS + target))) for target in targets]
    for target, request in zip(targets, requests, strict=True):
        offset = found_offset(side.client.exchange(request))
        if offset != target:
            raise RefusedRequest(f"{side.name} found offset {offset}, not {target}")
    turn = cycle(requests)
    return lambda: side.client.exchange(next(turn))


def client_rates(sides: Sides, name: str, value_bytes: int, count: int) -> Iterator[ComparedSides]:
    """Yield messages a second of confluent-kafka, and the broker's processor time for a million
    messages."""
    topics = {side.name: side.topic(f"client-{name}", retention_ms=-1) for side in sides.all}
    sent = dict.fromkeys(topics, 0)
    used: Rounds = {side.name: [] for side in sides.all}
    read: Rounds = {side.name: [] for side in sides.all}

    def produce(side: Side) -> float:
        before = side.processor_seconds()
        seconds = produced(side.address, topics[side.name], value_bytes, count)
        used[side.name].append((side.processor_seconds() - before) / count * 1e6)
        sent[side.name] += count
        side.check_end(topics[side.name], sent[side.name])
        return count / seconds

    def consume(side: Side) -> float:
        before = side.processor_seconds()
        seconds = consumed(side.address, topics[side.name], value_bytes, sent[side.name])
        read[side.name].append((side.processor_seconds() - before) / sent[side.name] * 1e6)
        return sent[side.name] / seconds

    yield compared(f"client_produce_{name}", "msg/s", in_turns(sides.all, produce))
    yield compared(f"client_produce_{name}_cpu", "s per million", used)
    pair = (sides.kafka, sides.written)
    yield compared(f"client_consume_{name}", "msg/s", in_turns(pair, consume))
    del read[sides.fsync.name]
    yield compared(f"client_consume_{name}_cpu", "s per million", read)


def start(sides: Sides) -> Iterator[ComparedSides]:
    """Yield the seconds from the start of the process until it takes connections, each broker
    alone."""
    ours, theirs = sides.horolog_start_seconds, sides.kafka_start_seconds
    yield ComparedSides("start", "s", theirs, ours, ours / theirs)


def memory(sides: Sides) -> Iterator[ComparedSides]:
    """Yield the resident memory after all earlier measurements."""
    ours, theirs = sides.written.resident_bytes(), sides.kafka.resident_bytes()
    yield ComparedSides("memory_after", "bytes", theirs, ours, ours / theirs)


MEASUREMENTS: Final[dict[str, Callable[[Sides], Iterator[ComparedSides]]]] = {
    "start": start,
    "produce_100B_16KiB": lambda s: produce_rate(s, "produce_100B_16KiB", 100, 16 << 10),
    "produce_100B_64KiB": lambda s: produce_rate(s, "produce_100B_64KiB", 100, 64 << 10),
    "produce_100B_900KiB": lambda s: produce_rate(s, "produce_100B_900KiB", 100, 900 << 10),
    "produce_1KiB_16KiB": lambda s: produce_rate(s, "produce_1KiB_16KiB", 1024, 16 << 10),
    "produce_1KiB_64KiB": lambda s: produce_rate(s, "produce_1KiB_64KiB", 1024, 64 << 10),
    "produce_1KiB_900KiB": lambda s: produce_rate(s, "produce_1KiB_900KiB", 1024, 900 << 10),
    "produce_1KiB_1MiB": lambda s: produce_rate(s, "produce_1KiB_1MiB", 1024, 1_000_000),
    "produce_one": produce_one,
    "produce_one_pipelined": produce_one_pipelined,
    "fetch_64KiB": lambda s: fetch_rate(s, "fetch_64KiB", 64 << 10, 1),
    "fetch_1MiB": lambda s: fetch_rate(s, "fetch_1MiB", MIB),
    "fetch_8MiB": lambda s: fetch_rate(s, "fetch_8MiB", 8 * MIB),
    "client_100B": lambda s: client_rates(s, "100B", 100, 300_000),
    "client_1KiB": lambda s: client_rates(s, "1KiB", 1024, 100_000),
    "find_time": find_time,
    "memory_after": memory,
}
"""The measurements by name, in the order in which they run."""


def main(names: list[str]) -> int:
    if not check_known(names, MEASUREMENTS):
        return 2
    figures: list[ComparedSides] = []
    print(f"{'':<26} {'Kafka':>12} {'Horolog':>12} {'ratio':>7} {'fsync':>12}")
    try:
        with both() as sides:
            warm_up(sides.kafka)
            for name in names or MEASUREMENTS:
                for figure in MEASUREMENTS[name](sides):
                    figures.append(figure)
                    print(_row(figure), flush=True)
    except Unavailable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    RESULTS.parent.mkdir(exist_ok=True)
    found: list[dict[str, Any]] = [asdict(figure) for figure in figures]
    RESULTS.write_text(json.dumps({"figures": found}, indent=1) + "\n")
    return 0


def _row(figure: ComparedSides) -> str:
    fsync = "" if figure.fsync is None else f"{figure.fsync:>12,.5g}"
    return (
        f"{figure.name:<26} {figure.kafka:>12,.5g} {figure.horolog:>12,.5g} "
        f"{figure.ratio:>7.2f} {fsync:>12} {figure.unit}"
    )


def produced(address: str, topic: str, value_bytes: int, count: int) -> float:
    """Return the seconds until `count` messages are acknowledged. Connecting is not counted."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.list_topics(topic, _WAIT_SECONDS)
    value = b"v" * value_bytes
    began = time.perf_counter()
    for number in range(count):
        producer.produce(topic, value, partition=0)
        if number % _AT_ONCE == 0:
            producer.poll(0)
    if producer.flush(_WAIT_SECONDS):
        raise RefusedRequest(f"{topic}: not everything was acknowledged")
    return time.perf_counter() - began


def consumed(address: str, topic: str, value_bytes: int, count: int) -> float:
    """Return the seconds from the first message to the last of `count`.

    A client that has `queued.min.messages` messages in its queue sends no fetch for a second
    (`fetch.queue.backoff.ms`). With the defaults, the measurement would be of these waits, and a
    broker that fills the queue quickly would have more of them.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read, size_bytes, began = 0, 0, 0.0
    while read < count:
        some = consumer.consume(_AT_ONCE, _WAIT_SECONDS)
        began = began or time.perf_counter()
        if not some:
            raise RefusedRequest(f"{topic}: {read} of {count} messages came")
        for message in some:
            value = message.value()
            if value is None:
                raise RefusedRequest(f"{topic}: {message.error()}")
            size_bytes += len(value)
        read += len(some)
    seconds = time.perf_counter() - began
    consumer.close()
    if size_bytes != count * value_bytes:
        raise RefusedRequest(f"{topic}: {size_bytes} bytes came")
    return seconds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
