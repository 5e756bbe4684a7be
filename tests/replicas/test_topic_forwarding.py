"""Clients of Kafka's protocol ask a follower about topics that do not exist: the leader makes
them."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaProducer

from horolog.protocol.api.cluster.replicate import ReplicateRequest, Says
from horolog.protocol.api.kafka import frames as kafka_frames
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import InvalidRequest, NotLeader
from horolog.server.replication import topic_forwarding
from horolog.server.replication.replica_fetcher import AcceptsFollower
from horolog.testing.broker import running_broker
from horolog.testing.wire import wire

from .members import Member, eventually, members

KAFKA = "127.0.0.1:0"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for seconds lets no topic be late."""
    monkeypatch.setattr(topic_forwarding, "HERE_WITHIN_S", 60.0)


def about(*topics: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataTopic(name=topic) for topic in topics])


def kafka_address(member: Member) -> str:
    assert member.broker is not None
    return str(member.broker.addresses.kafka)


async def codes(member: Member, *topics: str) -> list[int]:
    """The error of each topic, as a client of Kafka's protocol gets it."""
    async with wire(kafka_address(member), kafka_frames) as client:
        response = await client.call(about(*topics), 4)
    assert [topic.name for topic in response.topics] == list(topics)
    return [topic.error_code for topic in response.topics]


def send_by_librdkafka(bootstrap: str, topic: str) -> None:
    errors: list[Any] = []
    producer = ConfluentProducer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"m", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]


def send_by_kafka_python(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, max_block_ms=20_000)
    assert producer.send(topic, b"m").get(20).offset == 0
    producer.close()


@pytest.mark.parametrize("send", [send_by_librdkafka, send_by_kafka_python])
async def test_a_producer_that_knows_only_a_follower(
    place: Path, send: Callable[[str, str], None]
) -> None:
    async with members(place, kafka_listen=KAFKA) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        for number in range(3):
            await asyncio.to_thread(send, kafka_address(follower), f"new-{number}")
            assert await leader.values(f"new-{number}", 1) == ["m"]


async def test_the_leader_says_what_can_not_be_made(place: Path) -> None:
    async with members(place, kafka_listen=KAFKA, max_topics=3) as all_:
        await all_.start()
        follower = all_[2]
        assert await codes(follower, "a", "not a name", "b") == [0, 17, 0]
        assert await codes(follower, "a", "c", "d") == [0, 0, 44], "max.topics"
        assert set(follower.cluster.directory.topics()) == {"a", "b", "c"}


@pytest.mark.parametrize("off_at", [1, 2])
async def test_none_is_made_where_a_setting_forbids_it(place: Path, off_at: int) -> None:
    async with members(place, kafka_listen=KAFKA) as all_:
        await all_[1].start(cluster_create=True, auto_create_topics_enable=off_at != 1)
        await all_[2].start(follow=all_[1], auto_create_topics_enable=off_at != 2)
        await all_.in_sync(all_[1])
        assert await codes(all_[2], "a") == [3]
        assert not all_[1].cluster.directory.topics()


async def test_none_is_made_for_those_who_do_not_want_it(place: Path) -> None:
    """Clients of Horolog's protocol ask the leader; others may say that they only look."""
    async with members(place, kafka_listen=KAFKA) as all_:
        await all_.start()
        follower = all_[2]
        (topic,) = (await follower.call(about("a"))).topics
        assert topic.error_code == 3
        only_looks = about("a")
        only_looks.allow_auto_topic_creation = False
        async with wire(kafka_address(follower), kafka_frames) as client:
            (topic,) = (await client.call(only_looks, 4)).topics
        assert topic.error_code == 3
        assert not all_[1].cluster.directory.topics()


async def test_while_nobody_leads_the_client_is_to_ask_again(place: Path) -> None:
    async with members(place, kafka_listen=KAFKA) as all_:
        await all_.start()
        await all_[1].stop()
        assert await codes(all_[2], "a") == [5]


async def test_many_clients_take_one_connection(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked for while the leader is asked goes together, next."""
    asked: list[set[str]] = []
    go_on = asyncio.Event()
    connect = AcceptsFollower.connect

    async def counted(self: AcceptsFollower, address: str, timeout_ms: int) -> Any:
        asked.append(set(follower.cluster.forwarded_creation._under_way))
        await go_on.wait()
        return await connect(self, address, timeout_ms)

    async with members(place, kafka_listen=KAFKA) as all_, AsyncExitStack() as stack:
        await all_.start()
        follower = all_[2]
        monkeypatch.setattr(AcceptsFollower, "connect", counted)
        names = [f"t{number % 5}" for number in range(20)]
        clients = [
            await stack.enter_async_context(wire(kafka_address(follower), kafka_frames))
            for _ in names
        ]
        calls = [
            asyncio.create_task(client.call(about(name), 4))
            for client, name in zip(clients, names, strict=True)
        ]
        waiting = follower.cluster.forwarded_creation
        await eventually(lambda: len({*waiting._under_way, *waiting._wanted}) == 5)
        go_on.set()
        answers = await asyncio.gather(*calls)
        assert [answer.topics[0].error_code for answer in answers] == [0] * 20
        assert set().union(*asked) == set(names)
        assert len(asked) <= 3
        assert sum(map(len, asked)) == 5


async def test_more_topics_than_are_asked_for_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_forwarding, "ASKED_AT_ONCE", 3)
    names = [f"t{number}" for number in range(8)]
    async with members(place, kafka_listen=KAFKA) as all_:
        await all_.start()
        assert await codes(all_[2], *names, "x" * 250) == [0] * 8 + [17]
        assert set(all_[1].cluster.directory.topics()) == set(names)


async def test_a_topic_that_is_late_here_is_asked_for_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader has it, and the follower does not: Kafka's clients know LEADER_NOT_AVAILABLE."""
    monkeypatch.setattr(topic_forwarding, "HERE_WITHIN_S", 0.05)
    async with members(place, kafka_listen=KAFKA) as all_:
        await all_.start()
        follower = all_[2]
        directory = follower.cluster.directory
        with monkeypatch.context() as late:
            late.setattr(type(directory), "topics", _without(directory, "a"))
            assert await codes(follower, "a") == [5]
        await eventually(lambda: "a" in directory.topics())
        assert await codes(follower, "a") == [0]


def _without(directory: Any, topic: str) -> Callable[[Any], Any]:
    topics = type(directory).topics

    def found(self: Any) -> Any:
        there = topics(self)
        if self is not directory:
            return there
        return {name: entry for name, entry in there.items() if name != topic}

    return found


async def test_only_a_leader_makes_topics_for_others(place: Path) -> None:
    request = ReplicateRequest(says=Says.MAKE, connection=0, topics=["a"])
    async with members(place) as all_:
        await all_.start()
        with pytest.raises(NotLeader):
            await all_[2].call(request)
        made = await all_[1].call(request)
        assert (made.epoch, made.not_made) == (all_[1].cluster.epoch, [])
        assert list(all_[1].cluster.directory.topics()) == ["a"]
    async with (
        running_broker(place / "alone", http_listen="off") as broker,
        wire(broker.addresses.native) as client,
    ):
        with pytest.raises(InvalidRequest, match="this broker is alone"):
            await client.call(request)


async def test_a_follower_that_leads_makes_them_itself(place: Path) -> None:
    async with members(place, kafka_listen=KAFKA) as all_:
        await all_.start()
        assert await codes(all_[2], "a") == [0]
        await all_[1].promote(2)
        await eventually(lambda: all_[2].cluster.leads and not all_[1].cluster.leads)
        assert await codes(all_[2], "b") == [0]
        assert set(all_[2].cluster.directory.topics()) == {"a", "b"}


async def test_who_may_not_create_has_none_made(place: Path) -> None:
    """The follower looks at that: the leader hears of the follower alone."""
    async with members(place, kafka_listen=KAFKA) as all_:
        await all_[1].start(cluster_create=True)
        await all_[2].start(follow=all_[1], authorization="on", super_users="User:somebody")
        await all_.in_sync(all_[1])
        assert await codes(all_[2], "a") == [29]
        assert not all_[1].cluster.directory.topics()
