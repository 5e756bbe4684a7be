"""`python -m horolog.bench.cluster [NAME...]`: measures a leader and its follower.

Prints a table and writes `build/bench-cluster.json`, in the form of `build/bench.json`. The speed
at which a new follower copies stands beside a process that writes bytes from a socket to a file.
Figures beside Apache Kafka need Java and Maven. Without them these figures are left out, with a
message.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from ..protocol.api.kafka import frames as kafka
from ..protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from ..protocol.records.batch import build_batch
from ..protocol.records.kernel import FORM
from ..protocol.records.layout import Codec
from ..protocol.records.messages.sets import NewRecord, build_set
from ..testing.program import ServerProcess
from ..testing.requests import create_topic, produce
from .apache_kafka import MEASURED_JVM, ApacheKafka, Unavailable, apache_kafka
from .brokers import MIB, ONE_TURN_BYTES, batch, sets
from .cluster_producing import Members, idle, least, members, producing
from .figure import Figure, median_ratio, rates, times_in_turns
from .kafka_sides import KAFKA, KAFKA_SETTINGS, WRITTEN, Side, bounded
from .raw_client import RawClient, RefusedRequest, check_end, encoded
from .socket_to_file import writing

_COPY_ROUNDS: Final = 3
_SLICES: Final = 8
_SLICE_BYTES: Final = 48 * MIB
_SET_BYTES: Final = 64 << 10
_GROWTH_LOOK_SECONDS: Final = 0.001
_COPY_SECONDS: Final = 300

COMPRESSED_MESSAGES: Final = 1_000
"""Messages of 100 bytes in a compressed set. Half of each is random, so that compression halves the
set."""

_IN_FLIGHT: Final = 8
_ROUNDS: Final = 5
_SECONDS: Final = 0.7
_WARM_SETS: Final = 20_000
_ONES: Final = 100
_REPLICAS: Final = 2
_LED_SECONDS: Final = 30
_LOOK_SECONDS: Final = 0.05

RESULTS: Final = Path("build") / "bench-cluster.json"


def _compressed(build: Callable[..., bytes | bytearray], codec: Codec) -> tuple[bytes, int]:
    made = random.Random(0)
    now_ms = int(time.time() * 1000)
    records = [
        NewRecord(made.randbytes(50) + b"v" * 50, timestamp_ms=now_ms)
        for _ in range(COMPRESSED_MESSAGES)
    ]
    return bytes(build(records, codec=codec)), COMPRESSED_MESSAGES


KINDS: Final[dict[str, Callable[[], tuple[bytes, int]]]] = {
    "copy_100B": lambda: sets(100, _SET_BYTES),
    "copy_1KiB": lambda: sets(1024, _SET_BYTES),
    "copy_100B_v2": lambda: batch(100, _SET_BYTES),
    "copy_1KiB_v2": lambda: batch(1024, _SET_BYTES),
    "copy_100B_gzip": lambda: _compressed(build_set, Codec.GZIP),
    "copy_100B_v2_lz4": lambda: _compressed(build_batch, Codec.LZ4),
}
"""The kinds of logs: name -> a set, and its number of messages."""


def copying(
    kinds: Sequence[str] = tuple(KINDS),
    *,
    rounds: int = _COPY_ROUNDS,
    slices: int = _SLICES,
    slice_bytes: int = _SLICE_BYTES,
) -> Iterator[Figure]:
    """Yield bytes a second of a new follower, and of files of the same sets that a process writes
    from a socket.

    The two grow in turns, slice by slice, so that both use the same memory and disk. While the
    process writes, leader and follower do nothing.
    """
    all_received: list[float] = []
    for name in kinds:
        data, count = KINDS[name]()
        times = max(slice_bytes // len(data), 1)
        found = [_copy(data, count, times, slices) for _ in range(rounds)]
        copied, received = zip(*found, strict=True)
        all_received += received
        ratio = median_ratio(copied, received)
        yield Figure(name, median(copied), "bytes/s", "socket_to_file", ratio)
    if all_received:
        yield Figure("socket_to_file", median(all_received), "bytes/s")


def _copy(data: bytes, count: int, times: int, slices: int) -> tuple[float, float]:
    """Return bytes a second of a follower that copies `slices` slices, and of a file through a
    socket."""
    with members() as brokers:
        leader = brokers.leader
        leader.client.call(create_topic("bench", retention_ms=-1))
        request = encoded(produce("bench", data, acks=1))
        leader.client.pipeline(request, 1, times * slices, _IN_FLIGHT)
        check_end(leader.client, "bench", times * slices * count)
        size_bytes = _size(leader.server)
        written = leader.server.data_dir.parent / "written"
        with writing(written, data, times) as send:
            copied = _follow(brokers, size_bytes, slices, lambda: send(_IN_FLIGHT))
        brokers.wait_in_sync(2)
        rates = copied[0] / copied[1], written.stat().st_size / copied[2]
        for folder in (leader.server.data_dir, written):
            _remove(folder)
        return rates


def _follow(
    brokers: Members, size_bytes: int, slices: int, other: Callable[[], object]
) -> tuple[int, float, float]:
    """Return the bytes that a new follower copied, its seconds, and those of `other`, which runs
    once for each slice of the log."""
    follower = brokers.follower()
    log = follower.server.data_dir / "bench-0"
    ended = time.perf_counter() + _COPY_SECONDS

    def wait_for(bytes_wanted: int) -> int:
        while (size := _size_of(log)) < bytes_wanted:
            if time.perf_counter() > ended:
                raise RuntimeError(f"a follower has {size} of {size_bytes} bytes")
            time.sleep(_GROWTH_LOOK_SECONDS)
        return size

    began_at = size = wait_for(1)
    began = time.perf_counter()
    copying_s = other_s = 0.0
    for number in range(1, slices + 1):
        size = wait_for(max(size_bytes * number // slices, size))
        copying_s += time.perf_counter() - began
        with _standing_still(brokers.leader.server, follower.server):
            began = time.perf_counter()
            other()
            other_s += time.perf_counter() - began
        began = time.perf_counter()
    if size == began_at:
        raise RefusedRequest(f"{size_bytes} bytes are copied before the first look; measure more")
    return size - began_at, copying_s, other_s


@contextmanager
def _standing_still(*servers: ServerProcess) -> Iterator[None]:
    for server in servers:
        server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for server in reversed(servers):
            server.process.send_signal(signal.SIGCONT)


def _size(server: ServerProcess) -> int:
    return _size_of(server.data_dir / "bench-0")


def _size_of(folder: Path) -> int:
    """Return the bytes of all log files in a folder."""
    total = 0
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if entry.name.endswith(".log"):
                total += entry.stat().st_size
    return total


def _remove(path: Path) -> None:
    """Remove the files before the next round, to free their memory."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()


@dataclass(slots=True)
class _Filling:
    """Sends one batch repeatedly to a topic of its own."""

    side: Side
    topic: str
    request: bytes
    count: int
    sent: int = 0

    def send(self, times: int = 16) -> int:
        self.side.client.pipeline(self.request, 1, times, _IN_FLIGHT)
        self.sent += times * self.count
        return times * self.count

    def send_one(self) -> None:
        self.side.client.exchange(self.request)
        self.sent += self.count


def beside_kafka(
    *, rounds: int = _ROUNDS, seconds: float = _SECONDS, turn_bytes: int = ONE_TURN_BYTES
) -> Iterator[Figure]:
    """Yield messages a second, and the median of requests with one message, in turns with a Kafka
    of two replicas. Raises `Unavailable` without Java and Maven."""
    with ExitStack() as ends:
        folder = Path(ends.enter_context(TemporaryDirectory(prefix="horolog-bench-")))
        theirs = ends.enter_context(
            apache_kafka(
                folder / "kafka", brokers=_REPLICAS, jvm=MEASURED_JVM, settings=KAFKA_SETTINGS
            )
        )
        ours = ends.enter_context(
            members(
                *("--kafka-listen", "127.0.0.1:0", "--set", "acks.all.durability=written"),
                *("--set", "file.delete.delay.ms=0"),
            )
        )
        ours.follower()
        ours.wait_in_sync(2)
        address = ours.leader.server.kafka
        assert address is not None
        client = RawClient(address, kafka)
        ends.callback(client.close)
        own = Side(WRITTEN, address, ours.leader.server.process.pid, client)
        for name, value_bytes, set_bytes in (
            ("100B_64KiB", 100, 64 << 10),
            ("1KiB_900KiB", 1024, 900 << 10),
        ):
            data, count = batch(value_bytes, set_bytes)
            sides = [_theirs(theirs, ends, name), (own, own.topic(name, **bounded()))]
            fillings = [_Filling(one, at, one.produce(at, data), count) for one, at in sides]
            for filling in fillings:
                filling.send(max(turn_bytes, _WARM_SETS * 16 if turn_bytes else 0) // len(data) + 1)
            found: dict[str, list[float]] = {KAFKA: [], WRITTEN: []}
            for _ in range(rounds):
                for filling in fillings:
                    found[filling.side.name] += rates(filling.send, rounds=1, seconds=seconds)
            for filling in fillings:
                filling.side.check_end(filling.topic, filling.sent)
            beside, ratio = f"kafka_acks_all_{name}", median_ratio(found[WRITTEN], found[KAFKA])
            yield Figure(f"acks_all_{name}", median(found[WRITTEN]), "msg/s", beside, ratio)
            yield Figure(beside, median(found[KAFKA]), "msg/s")
        yield from _one_at_a_time(theirs, own, ends, rounds)


def _one_at_a_time(
    theirs: ApacheKafka, own: Side, ends: ExitStack, rounds: int
) -> Iterator[Figure]:
    data, count = batch(100, 1)
    sides = [_theirs(theirs, ends, "one"), (own, own.topic("one"))]
    fillings = [_Filling(one, at, one.produce(at, data), count) for one, at in sides]
    works = [filling.send_one for filling in fillings]
    times_in_turns(works, rounds=1, each=10 * _ONES)
    kafka_s, own_s = times_in_turns(works, rounds=rounds, each=_ONES)
    for filling in fillings:
        filling.side.check_end(filling.topic, filling.sent)
    yield Figure("acks_all_one", own_s, "s", "kafka_acks_all_one", own_s / kafka_s)
    yield Figure("kafka_acks_all_one", kafka_s, "s")


def _theirs(theirs: ApacheKafka, ends: ExitStack, what: str) -> tuple[Side, str]:
    """Create a topic with two replicas at Kafka; return the broker that leads it, and the topic."""
    first = theirs.brokers[0]
    assert first.process is not None
    maker = RawClient(first.address, kafka)
    ends.callback(maker.close)
    name = f"{what}-{KAFKA}"
    request = create_topic(name, 1, **bounded())
    request.topics[0].replication_factor = _REPLICAS
    response = maker.call(request)
    if response.topics[0].error_code:
        raise RefusedRequest(f"{name} was not made: error {response.topics[0].error_code}")
    leader = _leader_of(maker, name)
    (broker,) = (one for one in theirs.brokers if one.node_id == leader)
    assert broker.process is not None
    client = RawClient(broker.address, kafka)
    ends.callback(client.close)
    side = Side(KAFKA, broker.address, broker.process.pid, client)
    side.wait_for(name)
    return side, name


def _leader_of(client: RawClient, topic: str) -> int:
    """Return the id of the broker that leads the only partition of a topic, when all replicas are
    in sync."""
    ended = time.monotonic() + _LED_SECONDS
    while True:
        response = client.call(MetadataRequest(topics=[MetadataTopic(name=topic)]))
        for one in response.topics:
            for partition in one.partitions:
                if partition.leader_id >= 0 and len(partition.isr_nodes) == _REPLICAS:
                    return int(partition.leader_id)
        if time.monotonic() > ended:
            raise RefusedRequest(
                f"Kafka's topic {topic} has no leader with {_REPLICAS} replicas in sync"
            )
        time.sleep(_LOOK_SECONDS)


MEASUREMENTS: Final[dict[str, Callable[[], Iterator[Figure]]]] = {
    "copy": copying,
    "produce": producing,
    "least": least,
    "idle": idle,
    "beside_kafka": beside_kafka,
}
"""The measurements by name, in the order in which they run."""


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        sys.stderr.write(f"unknown: {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}\n")
        return 2
    figures: list[Figure] = []
    for name in names or MEASUREMENTS:
        try:
            for figure in MEASUREMENTS[name]():
                figures.append(figure)
                print(figure.row, flush=True)
        except Unavailable as error:
            sys.stderr.write(f"{name} is left out: {error}\n")
            if names:
                return 1
    RESULTS.parent.mkdir(exist_ok=True)
    result = {"mode": FORM, "figures": [asdict(figure) for figure in figures]}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
