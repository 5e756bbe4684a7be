"""Producers are idempotent without being told, wherever there are sequence numbers."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import pytest

import horolog
from horolog import (
    ClusterAuthorizationFailed,
    HorologError,
    NewRecord,
    Producer,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
    blocking,
)
from horolog.testing.broker import BrokerThread

OLD = {"message.format.version": "0.10.2"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    folder = tmp_path_factory.mktemp("idempotence")
    with BrokerThread(folder, {"kafka.listen": "127.0.0.1:0"}) as started:
        yield started


@pytest.fixture(params=["native", "kafka"])
def place(server: BrokerThread, request: pytest.FixtureRequest) -> Iterator[str]:
    yield server.address if request.param == "native" else f"kafka://{server.kafka_address}"
    server.faults.clear()


@pytest.fixture
async def topic(place: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    async with horolog.Admin(place) as admin:
        await admin.create_topic(name)
        yield name


async def values(place: str, topic: str) -> list[bytes | None]:
    found = []
    async with horolog.Consumer(place, max_wait_ms=0) as consumer:
        consumer.assign(topic)
        while records := await consumer.fetch():
            found += [record.value for record in records]
    return found


def told_by(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What producers logged of idempotence."""
    messages = [one.getMessage() for one in caplog.records if one.name == "horolog.client"]
    return [message for message in messages if "without idempotence" in message]


async def send(producer: Producer, topic: str, how: str) -> None:
    match how:
        case "send":
            await producer.send(topic, b"v")
        case "enqueue":
            await (await producer.enqueue(topic, b"v"))
        case "send_batch":
            await producer.send_batch(topic, [b"v"])
        case "send_many":
            await producer.send_many(topic, [NewRecord(b"v")])


@pytest.mark.parametrize("how", ["send", "enqueue", "send_batch", "send_many"])
@pytest.mark.parametrize(
    "settings", [{}, {"acks": "all"}, {"idempotent": True}, {"compression": "lz4"}]
)
async def test_a_set_whose_answer_got_lost_is_stored_once(
    server: BrokerThread, place: str, topic: str, how: str, settings: Any
) -> None:
    async with Producer(place, **settings) as producer:
        for _ in range(2):
            server.faults.lose_answer("Produce", topic=topic)
            await send(producer, topic, how)
    assert [one.kind for one in server.faults.injected] == ["lose_answer"] * 2
    assert await values(place, topic) == [b"v"] * 2


@pytest.mark.parametrize(
    "settings", [{"idempotent": False}, {"acks": 1}, {"acks": 1, "idempotent": False}]
)
async def test_without_idempotence_it_is_stored_twice(
    server: BrokerThread, place: str, topic: str, settings: Any
) -> None:
    async with Producer(place, **settings) as producer:
        server.faults.lose_answer("Produce", topic=topic)
        await producer.send(topic, b"v")
    assert await values(place, topic) == [b"v"] * 2


@pytest.mark.parametrize("acks", [0, 1])
async def test_weaker_acks_ask_for_no_producer_id(
    server: BrokerThread, place: str, topic: str, acks: Literal[0, 1]
) -> None:
    server.faults.fail("InitProducerId", times=None)
    async with Producer(place, acks=acks) as producer:
        await producer.send(topic, b"v")
    assert server.faults.injected == []


@pytest.mark.parametrize("acks", [0, 1])
def test_both_given_are_refused_by_name(acks: Literal[0, 1]) -> None:
    text = f"^idempotent=True needs acks='all', not acks={acks}: leave out one of them$"
    for kind in (Producer, blocking.Producer):
        with pytest.raises(ValueError, match=text):
            kind("127.0.0.1:1", acks=acks, idempotent=True)


@pytest.mark.parametrize("how", ["send", "send_batch", "send_many"])
async def test_a_topic_of_an_older_format_gets_sets_without_numbers(
    server: BrokerThread, place: str, topic: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with horolog.Admin(place) as admin, Producer(place) as producer:
        await send(producer, topic, how)
        await admin.create_topic(f"old-{topic}", settings=OLD)
        for _ in range(2):
            await send(producer, f"old-{topic}", how)
        server.faults.lose_answer("Produce", topic=topic)
        await send(producer, topic, how)
    (told,) = told_by(caplog)
    assert told.startswith(f"sending to old-{topic} without idempotence: ")
    assert await values(place, topic) == [b"v"] * 2
    assert await values(place, f"old-{topic}") == [b"v"] * 2
    async with Producer(place, idempotent=True) as strict:
        with pytest.raises(UnsupportedForMessageFormat):
            await send(strict, f"old-{topic}", how)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("CLUSTER_AUTHORIZATION_FAILED", ClusterAuthorizationFailed),
        ("UNSUPPORTED_VERSION", UnsupportedVersion),
    ],
)
async def test_without_producer_ids_it_sends_without_numbers(
    server: BrokerThread,
    place: str,
    topic: str,
    code: str,
    error: type[HorologError],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.faults.fail("InitProducerId", code, times=None)
    async with Producer(place) as producer:
        for _ in range(2):
            await producer.send(topic, b"v")
    assert len(server.faults.injected) == 1
    (told,) = told_by(caplog)
    assert told.startswith(f"sending without idempotence: {code}")
    assert await values(place, topic) == [b"v"] * 2
    async with Producer(place, idempotent=True) as strict:
        with pytest.raises(error):
            await strict.send(topic, b"v")
