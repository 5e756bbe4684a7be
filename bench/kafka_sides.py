"""The brokers that `make bench-kafka` compares, behind one interface.

Horolog has two sides, which are two topics of one broker. `written` answers when messages are in
the log, as Kafka does, and is compared with Kafka. `fsync` answers when messages are on the disk.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from ..protocol.api.kafka import frames as kafka
from ..protocol.api.log.list_offsets import LIST_OFFSETS
from ..protocol.api.log.produce import PRODUCE
from ..testing.program import WITH_HTTP, ServerProcess, serving
from ..testing.requests import create_topic, list_offsets, produce, result, results
from .apache_kafka import MEASURED_JVM, KafkaBroker, apache_kafka
from .brokers import RETENTION_LIMIT, kernel_choice, process_bytes, process_seconds
from .raw_client import RawClient, RefusedRequest, encoded

KAFKA: Final = "kafka"
WRITTEN: Final = "written"
FSYNC: Final = "fsync"

KAFKA_SETTINGS: Final = {
    # So that what is written stays bounded, as in Horolog's topics.
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "0",
}
_READY_SECONDS: Final = 30
_STARTS: Final = 5
_LATEST: Final = -1
_ALL: Final = -1


@dataclass(slots=True)
class Side:
    """A broker to measure, with one durability of its answers."""

    name: str
    address: str
    process_id: int
    client: RawClient

    def processor_seconds(self) -> float:
        """Processor time that the broker has used, in nanosecond steps."""
        return process_seconds(self.process_id)

    def resident_bytes(self) -> int:
        return process_bytes(self.process_id)

    def topic(self, what: str, **settings: object) -> str:
        """Make a topic, wait until it can be written to, and return its name."""
        name = f"{what}-{self.name}"
        if self.name != KAFKA:
            settings["acks_all_durability"] = self.name
        response = self.client.call(create_topic(name, 1, **settings))
        if response.topics[0].error_code:
            raise RefusedRequest(f"{name} was not made: error {response.topics[0].error_code}")
        self.wait_for(name)
        return name

    def wait_for(self, topic: str) -> None:
        """Wait until a topic can be used: a new topic of Kafka has no leader at first."""
        ended = time.monotonic() + _READY_SECONDS
        while True:
            try:
                self.end(topic)
                return
            except RefusedRequest:
                if time.monotonic() > ended:
                    raise

    def request(self, body: object) -> bytes:
        return encoded(body, encoding=kafka)

    def produce(self, topic: str, data: bytes) -> bytes:
        """Return a produce request that is answered when the messages are safe, as this side
        defines it."""
        return self.request(produce(topic, data, acks=_ALL))

    def end(self, topic: str) -> int:
        answer = result(self.client.call(list_offsets(topic, (0, _LATEST))))
        return int(answer.offset)

    def check_end(self, topic: str, messages: int) -> None:
        """Raise `RefusedRequest` unless the topic has exactly `messages` messages."""
        end = self.end(topic)
        if end != messages:
            raise RefusedRequest(
                f"{topic} ends at offset {end}, although {messages} messages were sent"
            )


def bounded() -> dict[str, Any]:
    """Return topic settings, for both brokers, that keep no more data than fits in memory."""
    names = ("segment_bytes", "retention_bytes")
    return {name: RETENTION_LIMIT[name] for name in names}


def check_answer(frame: memoryview, api: Any = PRODUCE) -> Any:
    """Decode an answer; raises `RefusedRequest` for an error."""
    _, body = kafka.open_response(frame)
    response = kafka.decode_response(api.response, api.last_version(native=False), body)
    for answer in results(response):
        if answer.error_code:
            raise RefusedRequest(f"{api.name}: error {answer.error_code}")
    return response


def found_offset(frame: memoryview | bytes) -> int:
    """Return the offset in the answer to a search by time."""
    _, body = kafka.open_response(frame)
    version = LIST_OFFSETS.last_version(native=False)
    return int(result(kafka.decode_response(LIST_OFFSETS.response, version, body)).offset)


@dataclass(frozen=True, slots=True)
class Sides:
    """The sides that are measured in turns, and how long each took to start."""

    kafka: Side
    written: Side
    fsync: Side
    kafka_start_seconds: float
    horolog_start_seconds: float

    @property
    def all(self) -> tuple[Side, Side, Side]:
        return self.kafka, self.written, self.fsync


@contextmanager
def both() -> Iterator[Sides]:
    """Start both brokers, each in its own process. Raises `Unavailable` without Java and Maven."""
    with ExitStack() as ends:
        folder = Path(ends.enter_context(TemporaryDirectory(prefix="horolog-bench-")))
        cluster = ends.enter_context(
            apache_kafka(folder / "kafka", jvm=MEASURED_JVM, settings=KAFKA_SETTINGS)
        )
        (peer,) = cluster.brokers
        peer.stop()
        # Each alone: a JVM goes on compiling for a while when it takes connections already.
        seconds = median(_start_seconds(folder / f"start-{turn}") for turn in range(_STARTS))
        kafka_seconds = median([_restarted(peer) for _ in range(_STARTS)])
        server = ends.enter_context(_serving(folder / "data"))
        assert server.kafka is not None
        assert peer.process is not None
        theirs = Side(KAFKA, peer.address, peer.process.pid, RawClient(peer.address, kafka))
        written, fsync = (
            Side(name, server.kafka, server.process.pid, RawClient(server.kafka, kafka))
            for name in (WRITTEN, FSYNC)
        )
        for side in (theirs, written, fsync):
            ends.callback(side.client.close)
        yield Sides(theirs, written, fsync, kafka_seconds, seconds)


def _serving(folder: Path) -> AbstractContextManager[ServerProcess]:
    own = (*WITH_HTTP, "--kafka-listen", "127.0.0.1:0", "--set", "file.delete.delay.ms=0")
    return serving(folder, *own, env=kernel_choice())


def _start_seconds(folder: Path) -> float:
    """Seconds from the start of a broker's process until it takes connections."""
    began = time.perf_counter()
    with _serving(folder) as server:
        assert server.kafka is not None
        RawClient(server.kafka, kafka).close()
        return time.perf_counter() - began


def _restarted(peer: KafkaBroker) -> float:
    """Like `_start_seconds`, for Kafka with a directory that it has used before."""
    peer.stop()
    began = time.perf_counter()
    peer.start()
    RawClient(peer.address, kafka).close()
    return time.perf_counter() - began
