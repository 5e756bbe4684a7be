"""`python -m horolog.bench.fixture`: how long a test waits for `horolog_broker`, and beside it for
other things that tests use in place of a Kafka broker.

A test makes ten topics with a message each; after it, the broker is put back. The start of the
broker, and a cluster's, are paid once. `first_message_*` is the time from nothing to a first
message that was sent and read back by the client's own means, without a group; what is imported
before is not counted. They take turns.
"""

import asyncio
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from ..blocking import Producer
from ..testing.broker import BrokerThread, temporary_broker
from ..testing.cluster import BrokerCluster
from .figure import Figure, quantile

TOPICS: Final = 10

ROUNDS: Final = 11
"""How often each other way is started, and Horolog beside it."""

SECONDS: Final = 30


class Timings:
    """Seconds by name."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Time the block."""
        began = time.perf_counter()
        yield
        self.taken.setdefault(name, []).append(time.perf_counter() - began)

    def print(self) -> None:
        """Print the median and the ninth decile of each name."""
        for name, taken in self.taken.items():
            print(Figure(name, quantile(taken, 0.5), "s").row)
            if len(taken) > 1:
                print(Figure(f"{name}_p90", quantile(taken, 0.9), "s").row)


def first_message_horolog() -> None:
    """Through a broker of its own."""
    with temporary_broker() as broker:
        _send_and_read({"bootstrap.servers": broker.kafka_address})


def first_message_librdkafka_mock() -> None:
    """Through the mock cluster in confluent-kafka, which its first client starts."""
    settings = {"bootstrap.servers": "", "test.mock.num.brokers": 1}
    first = KafkaProducer(settings)
    found = first.list_topics(timeout=SECONDS).brokers.values()
    _send_and_read({"bootstrap.servers": ",".join(f"{one.host}:{one.port}" for one in found)})


def _send_and_read(settings: dict[str, Any]) -> None:
    producer = KafkaProducer(settings)
    producer.produce("clicks", b"first", partition=0)
    assert producer.flush(SECONDS) == 0
    with closing(Consumer({**settings, "group.id": "readers"})) as consumer:
        consumer.assign([TopicPartition("clicks", 0, 0)])
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.value() == b"first"


def first_message_faststream(kafka: Any) -> None:
    """Through FastStream's `TestKafkaBroker`, which calls the subscriber."""
    seen: list[str] = []

    async def send() -> None:
        broker = kafka.KafkaBroker()

        @broker.subscriber("clicks")  # type: ignore[untyped-decorator]
        async def click(text: str) -> None:
            seen.append(text)

        async with kafka.TestKafkaBroker(broker):
            await broker.publish("first", "clicks")

    asyncio.run(send())
    assert seen == ["first"]


def first_message_mockafka(mockafka: Any) -> None:
    """Through mockafka's classes in place of those of confluent-kafka."""
    topic = importlib.import_module("mockafka.admin_client").NewTopic("clicks", 1)
    mockafka.FakeAdminClientImpl(clean=True).create_topics([topic])
    mockafka.FakeProducer().produce("clicks", b"first", partition=0)
    consumer = mockafka.FakeConsumer()
    consumer.subscribe(["clicks"])
    assert consumer.poll().value(payload=None) == b"first"


def ways() -> dict[str, Callable[[], None]]:
    """The ways that are installed here, by the names of their figures."""
    found: dict[str, Callable[[], None]] = {
        "first_message_horolog": first_message_horolog,
        "first_message_librdkafka": first_message_librdkafka_mock,
    }
    for name, module, package, first in (
        ("first_message_faststream", "faststream.kafka", "faststream", first_message_faststream),
        ("first_message_mockafka", "mockafka", "mockafka-py", first_message_mockafka),
    ):
        try:
            found[name] = partial(first, importlib.import_module(module))
        except ImportError:
            print(f"{name} is not measured: {package} is not installed", file=sys.stderr)
    return found


def main(tests: int = 50, rounds: int = ROUNDS) -> int:
    """Print the figures of so many tests, and of so many rounds beside others. What comes before
    them, which imports what is needed, is not counted."""
    timings = Timings()
    with TemporaryDirectory() as folder:
        for number in range(11):
            broker = BrokerThread(Path(folder) / str(number))
            broker.start()
            broker.stop()
            if not number:  # It had to import the server.
                continue
            with timings.of("fixture_start"):
                broker.start()
            with timings.of("fixture_stop"):
                broker.stop()
        with timings.of("fixture_cluster_start"), BrokerCluster(Path(folder) / "cluster"):
            pass
    with temporary_broker() as broker:
        for _ in range(tests):
            with timings.of("fixture_before_test"):
                borrowed = broker.borrowed()
                borrowed.__enter__()
            with Producer(broker.address) as producer:
                for number in range(TOPICS):
                    producer.send(f"topic{number}", b"value")
            with timings.of("fixture_snapshot"):
                snapshot = broker.snapshot()
            with timings.of("fixture_restore"):
                snapshot.restore()
            with timings.of("fixture_after_test"):
                borrowed.__exit__(None, None, None)
    compared = ways()
    for number in range(-1, rounds):
        for name, first in compared.items():
            with (timings if number >= 0 else Timings()).of(name):
                first()
    timings.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
