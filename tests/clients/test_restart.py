"""A broker that is restarted under a running producer and a running group."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from horolog.testing.ports import free_port

from .client import WAIT_SECONDS, Client, Member, Message, Refused, Writer
from .conftest import kafka_broker
from .librdkafka import ConfluentKafka
from .matrix import PROGRAMS, proves
from .steps import Step

EACH = 50
TOPIC = "work"
GROUP = "workers"


def values(first: int) -> list[bytes]:
    return [b"%200d" % number for number in range(first, first + EACH)]


def read(member: Member, seen: dict[int, bytes]) -> None:
    """Poll once. A message may come twice."""
    for one in member.poll():
        assert seen.setdefault(one.offset, one.message.value) == one.message.value


def read_until(member: Member, seen: dict[int, bytes], count: int) -> None:
    """Poll until messages at so many offsets were seen."""
    while len(seen) < count:
        read(member, seen)


def commit(member: Member, seen: dict[int, bytes], address: str) -> None:
    """Commit, as soon as the member is in the group again; until the broker has what was seen."""
    offset = len(seen)
    consumer = Consumer({"bootstrap.servers": address, "group.id": GROUP})
    place = TopicPartition(TOPIC, 0)
    while consumer.committed([place], WAIT_SECONDS)[0].offset < offset:
        read(member, seen)
        with suppress(Refused):
            member.commit()
    consumer.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, require_program: Callable[[str], str]) -> type[Client]:
    """What `@proves` asks for, not started: this test's broker is its own."""
    kind: type[Client] = request.param
    for program in PROGRAMS.get(kind, ()):
        require_program(program)
    return kind


@contextmanager
def at_work(client: Client) -> Iterator[tuple[Writer, Member]]:
    with client.writer(TOPIC) as writer, client.member(GROUP, TOPIC) as member:
        yield writer, member


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@proves(Step.RESTART)
def test_restart(client: type[Client], tmp_path: Path) -> None:
    data, seen = tmp_path / "data", dict[int, bytes]()
    address = f"127.0.0.1:{free_port()}"
    with kafka_broker(data, "--kafka-listen", address) as server:
        ConfluentKafka(address).create_topic(TOPIC, 1, {})
        running = client(address)
        with at_work(running) as (writer, member):
            for value in values(0):
                writer.write(value)
            # Not all: kcat holds back a part of what it has read from its input.
            read_until(member, seen, EACH // 2)
            commit(member, seen, address)
            assert server.stop() == 0
            for value in values(EACH):
                writer.write(value)
            with kafka_broker(data, "--kafka-listen", address):
                for value in values(2 * EACH):
                    writer.write(value)
                writer.finish()
                read_until(member, seen, 3 * EACH)
                commit(member, seen, address)
                member.close()
                sent = running.consume(TOPIC, 3 * EACH)
                running.produce(TOPIC, [Message(b"last")])
                with running.member(GROUP, TOPIC) as later:
                    rest = dict[int, bytes]()
                    read_until(later, rest, 1)
        running.close()
    assert seen == dict(enumerate(values(0) + values(EACH) + values(2 * EACH)))
    assert [one.message.value for one in sent] == list(seen.values())
    assert rest == {3 * EACH: b"last"}
