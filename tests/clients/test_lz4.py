"""lz4 in the frames of every format: whatever client wrote them, every client reads them."""

import asyncio
from collections.abc import Mapping

import pytest

from horolog.client.consume.consumer import Consumer
from horolog.protocol.records.messages.sets import entries
from horolog.testing.program import ServerProcess

from .aio_kafka import AioKafka
from .apache_tools import ApacheTools
from .client import Client, Message, Sending
from .conftest import Start
from .kafka_js import KafkaJs
from .kafka_python import KafkaPython, KafkaPythonAs010, KafkaPythonAs09
from .kcat import Kcat
from .librdkafka import ConfluentKafka, ConfluentKafkaAs09
from .matrix import JAVA

pytestmark = JAVA

SENT_MS = 1_500_000_000_000
EACH = 5

MAGIC: Mapping[type[Client], int] = {
    ConfluentKafkaAs09: 0,
    KafkaPythonAs09: 0,
    KafkaPythonAs010: 1,
    ConfluentKafka: 2,
    Kcat: 2,
    KafkaPython: 2,
    AioKafka: 2,
    KafkaJs: 2,
    ApacheTools: 2,
}
"""Who writes, in this order, and the message format of what they write."""

TOPICS: Mapping[str, Mapping[str, str]] = {
    "as-sent": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "v1": {"message.format.version": "0.10.2", "segment.bytes": "3000"},
}


def values(place: int) -> list[bytes]:
    return [b"writer %d, message %d" % (place, number) + b"-" * 200 for number in range(EACH)]


@pytest.fixture(scope="module")
def filled() -> dict[str, list[bytes]]:
    """Topics that all have written to, and what is in them."""
    return {}


@pytest.fixture
def topic(
    request: pytest.FixtureRequest, start: Start, other: Client, filled: dict[str, list[bytes]]
) -> str:
    name: str = request.param
    if name not in filled:
        other.create_topic(name, 1, TOPICS[name])
        found = filled[name] = []
        for place, kind in enumerate(MAGIC):
            if name == "v1" and kind is ApacheTools:
                continue  # It numbers its batches.
            sent = [Message(value, b"key", SENT_MS) for value in values(place)]
            start(kind).produce(name, sent, Sending("lz4"))
            found += values(place)
    return name


OF_EVERY_TOPIC = pytest.mark.parametrize("topic", TOPICS, indirect=True)


@OF_EVERY_TOPIC
@pytest.mark.parametrize("reader", [pytest.param(kind, id=kind.name) for kind in MAGIC])
def test_everybody_reads_what_the_others_wrote(
    reader: type[Client], start: Start, topic: str, filled: dict[str, list[bytes]]
) -> None:
    expected = filled[topic]
    found = start(reader).consume(topic, len(expected))
    assert [one.message.value for one in found] == expected
    assert [one.offset for one in found] == list(range(len(expected)))


@OF_EVERY_TOPIC
def test_so_does_our_own(server: ServerProcess, topic: str, filled: dict[str, list[bytes]]) -> None:
    async def read() -> list[bytes | None]:
        async with Consumer(server.native) as consumer:
            consumer.assign(topic, 0)
            await consumer.seek_to_beginning()
            return [(await anext(consumer)).value for _ in filled[topic]]

    assert asyncio.run(asyncio.wait_for(read(), 60)) == filled[topic]


@pytest.mark.parametrize("topic", ["as-sent"], indirect=True)
def test_v0_is_stored_as_v1_and_the_others_as_they_were_sent(
    server: ServerProcess, topic: str
) -> None:
    log = server.data_dir / f"{topic}-0" / f"{0:020}.log"
    stored: list[tuple[int, str]] = []
    for entry in entries(log.read_bytes()):
        stored += [(entry.magic, entry.codec.label)] * (entry.offset + 1 - len(stored))
    assert stored == [(max(magic, 1), "lz4") for magic in MAGIC.values() for _ in range(EACH)]
