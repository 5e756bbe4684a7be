"""Clients of Kafka 0.9, of 0.10 and of today on one topic: all read what the others wrote."""

import pytest

from horolog.protocol.records.messages.sets import entries
from horolog.testing.program import ServerProcess

from .aio_kafka import AioKafka
from .client import Client, Message, Sending
from .conftest import Start
from .kafka_python import KafkaPythonAs010, KafkaPythonAs09
from .librdkafka import ConfluentKafka, ConfluentKafkaAs09
from .matrix import CLIENTS, OLD_CLIENTS, PROVED
from .steps import Step

SENT_MS = 1_500_000_000_000
EACH = 10

WRITERS: list[tuple[type[Client], str]] = [
    (ConfluentKafkaAs09, "gzip"),
    (KafkaPythonAs010, "snappy"),
    (ConfluentKafka, "lz4"),
    (KafkaPythonAs09, "none"),
    (KafkaPythonAs010, "lz4"),
    (AioKafka, "gzip"),
    (ConfluentKafkaAs09, "snappy"),
]
"""Who writes, in this order, and with which codec."""

MAGIC = {ConfluentKafkaAs09: 0, KafkaPythonAs09: 0, KafkaPythonAs010: 1}
"""The message format of what they write; that of the others is 2."""

PROVED.add(Step.OLD_FORMATS)


def values(place: int) -> list[bytes]:
    """Each takes less room compressed, by itself too: what does not, librdkafka sends as it is, and
    how many messages make a set is a matter of time."""
    return [b"writer %d, message %d" % (place, number) + bytes(200) for number in range(EACH)]


@pytest.fixture(scope="module")
def filled() -> dict[str, bool]:
    """Topics that all have written to."""
    return {}


@pytest.fixture
def topic(start: Start, filled: dict[str, bool]) -> str:
    name = "formats"
    if name not in filled:
        for place, (kind, codec) in enumerate(WRITERS):
            sent = [Message(value, b"key", SENT_MS + place) for value in values(place)]
            start(kind).produce(name, sent, Sending(codec))
        filled[name] = True
    return name


@pytest.mark.parametrize(
    "reader", [pytest.param(kind, id=kind.name) for kind in (*CLIENTS, *OLD_CLIENTS)]
)
def test_everybody_reads_what_the_others_wrote(
    reader: type[Client], start: Start, topic: str
) -> None:
    expected = [
        (EACH * place + number, value, b"key")
        for place in range(len(WRITERS))
        for number, value in enumerate(values(place))
    ]
    found = start(reader).consume(topic, len(expected))
    assert [(one.offset, one.message.value, one.message.key) for one in found] == expected
    # Messages of format v0 have no time, and readers of Kafka 0.9 know of none.
    known = [] if MAGIC.get(reader) == 0 else WRITERS
    for place, (kind, _) in enumerate(known):
        times = {one.message.timestamp_ms for one in found[EACH * place : EACH * (place + 1)]}
        assert times == ({-1} if MAGIC.get(kind) == 0 else {SENT_MS + place}), kind.name


def test_all_is_stored_as_it_was_sent(server: ServerProcess, topic: str) -> None:
    log = server.data_dir / f"{topic}-0" / f"{0:020}.log"
    written = [(MAGIC.get(kind, 2), codec) for kind, codec in WRITERS for _ in range(EACH)]
    stored: list[tuple[int, str]] = []
    for entry in entries(log.read_bytes()):
        messages = entry.offset + 1 - len(stored)
        stored += [(entry.magic, entry.codec.label)] * messages
    assert stored == written
