"""Consumer groups of Kafka's clients, and what was answered, when the leader is killed."""

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
import kafka
import pytest

from horolog import Admin, Consumer, NotCoordinator, NotLeader, Producer
from horolog.testing.ports import free_port
from horolog.testing.program import serving
from horolog.testing.requests import create_topic
from horolog.testing.waiting import wait_until

from .brokers import DEADLINE_S, Broker, Brokers, brokers
from .members import members

TOPIC = "t"
PARTITIONS = 3
ROUNDS = 3
SEED = 20261125
BEGINS_AGAIN = (
    confluent_kafka.KafkaError.ILLEGAL_GENERATION,
    confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID,
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS,
)


class Ports:
    """Where each broker takes Kafka's clients."""

    def __init__(self, all_: Brokers) -> None:
        self._ports = {number: free_port() for number in all_.all}

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def start(self, broker: Broker, *how: str, follow: Broker | None = None) -> None:
        port = self._ports[broker.broker_id]
        broker.start(*how, "--kafka-listen", f"127.0.0.1:{port}", follow=follow)


async def answered(broker: Broker, random: Random, number: int) -> tuple[Any, Any]:
    """Changes of topics and positions, each answered; what there has to be then."""
    topics: dict[str, tuple[int, str]] = {}
    positions: dict[str, int] = {}
    async with Admin(broker.address) as admin:
        for each in range(random.randint(2, 6)):
            name = f"r{number}-{each}"
            await admin.create_topic(name, settings={"retention.ms": "77000"})
            topics[name] = (1, "77000")
            for _ in range(random.randint(0, 3)):
                positions[name] = random.randrange(100)
                await admin.commit_position("own", name, 0, positions[name])
            if random.random() < 0.4:
                await admin.create_partitions(name, 2)
                topics[name] = (2, topics[name][1])
            if random.random() < 0.4:
                await admin.alter_topic(name, {"retention.ms": "88000"})
                topics[name] = (topics[name][0], "88000")
            if random.random() < 0.3:
                await admin.delete_topic(name)
                topics.pop(name)
                positions.pop(name, None)
    return topics, positions


async def there(broker: Broker, names: set[str]) -> tuple[Any, Any]:
    """What a leader shows of these."""
    topics, positions = {}, {}
    async with Admin(broker.address) as admin:
        for name in names & (await admin.list_topics()).keys():
            one = await admin.describe_topic(name)
            settings = {each.name: each.value for each in one.settings}
            topics[name] = (one.partitions, settings["retention.ms"])
            held = await admin.position("own", name)
            if held is not None:
                positions[name] = held.offset
        if positions:
            described = (await admin.describe_group("own")).positions
            assert {each.topic: each.offset for each in described} == positions
            assert None not in [each.moved_at_ms for each in described]
    return topics, positions


async def no_coordinator(broker: Broker) -> None:
    """A follower says so, in place of that there is no such group."""
    async with Admin(broker.address) as admin:
        with pytest.raises(NotLeader):
            await admin.list_groups()
        with pytest.raises(NotCoordinator):
            await admin.describe_group("own")
        with pytest.raises(NotCoordinator):
            await admin.delete_group("own")


def test_a_command_at_a_follower_names_the_leader(place: Path) -> None:
    """What only the leader answers is refused, by `top` too; the cure is to name the leader."""
    with brokers(place) as all_:
        all_.start()
        leader, follower = all_[1], all_[2]
        leader.program.ok("topic", "create", TOPIC)
        all_.in_sync(leader)
        cure = f"Name the leader with --server {leader.address}, or all brokers"
        for command in (
            ("top", "-n", "1", "--every", "100ms"),
            ("group", "list"),
            ("lag",),
            ("topic", "trim", TOPIC, "--before", "latest"),
        ):
            refused = follower.program(*command)
            assert (refused.code, refused.out) == (1, ""), command
            assert cure in refused.err, command
        told = json.loads(follower.program("lag", "--json").err)
        assert told["cure"].startswith(cure)
        both = f"{follower.address},{leader.address}"
        shown = follower.program.ok("top", "-n", "1", "--every", "100ms", "--server", both)
        assert TOPIC in shown.out.split()


def test_what_was_answered_is_there_when_the_leader_is_killed(place: Path) -> None:
    """Killed right behind the last answer. The new leader shows it from its first answer on."""
    random = Random(SEED)
    with brokers(place, min_insync_replicas=2) as all_:
        all_.start()
        leader, follower = all_[1], all_[2]
        topics: dict[str, Any] = {}
        positions: dict[str, Any] = {}
        names: set[str] = set()
        for number in range(ROUNDS):
            caught_up(follower)
            some = asyncio.run(answered(leader, random, number))
            leader.kill()
            follower.program.ok("cluster", "promote")
            topics |= some[0]
            positions |= some[1]
            names |= {f"r{number}-{each}" for each in range(6)}
            found = asyncio.run(there(follower, names))
            assert found == (topics, positions), f"round {number}"
            leader, follower = follower, leader
            follower.start(follow=leader)
            all_.in_sync(leader)
        asyncio.run(no_coordinator(follower))


def caught_up(follower: Broker) -> None:
    """Wait until a follower knows that it has everything."""
    wait_until(lambda: "caught up" not in follower.status().promise, within_s=DEADLINE_S)


def consumer_of(servers: str, group: str = "g") -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "log_level": 0,
            "topic.metadata.refresh.interval.ms": 500,
        }
    )


def polled(consumer: Any, count: int) -> Iterator[Any]:
    found = 0
    while found < count:
        message = consumer.poll(60)
        assert message is not None, f"{found} of {count}"
        if message.error() is None:
            found += 1
            yield message


def read_on(consumer: Any, numbers: range) -> None:
    """Read, and commit, what follows what was committed; never anything from before that."""
    seen: set[int] = set()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(int(message.value()))
        assert seen <= set(numbers), "a position went back"
        if len(seen) == len(numbers):
            try:
                consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() not in BEGINS_AGAIN:
                    raise
                # It is of a group that begins again at another broker: read once more.
                seen.clear()
            else:
                return
    raise AssertionError(f"{len(seen)} of {len(numbers)}")


def send(servers: str, numbers: range) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "log_level": 0,
        }
    )
    for number in numbers:
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def test_groups_go_on_behind_what_they_committed(place: Path) -> None:
    """The same consumer, over a leader that is killed and one that hands over; another client's
    afterwards."""
    with brokers(place, min_insync_replicas=2) as all_:
        ports = Ports(all_)
        first, second = all_[1], all_[2]
        ports.start(first, "--create-cluster")
        ports.start(second, follow=first)
        all_.in_sync(first)
        first.program.ok("topic", "create", TOPIC, "--partitions", str(PARTITIONS))
        consumer, assigned = consumer_of(ports.servers), []
        try:
            send(ports.servers, range(30))
            consumer.subscribe([TOPIC], on_assign=lambda _, given: assigned.append(given))
            read_on(consumer, range(30))
            caught_up(second)
            first.kill()
            second.program.ok("cluster", "promote")
            ports.start(first, follow=second)
            all_.in_sync(second)
            send(ports.servers, range(30, 60))
            read_on(consumer, range(30, 60))
            all_.hand_over(second, second, "1")
            all_.in_sync(first)
            send(ports.servers, range(60, 90))
            read_on(consumer, range(60, 90))
            assert len(assigned) <= 3
        finally:
            consumer.close()
        other = kafka.KafkaConsumer(
            TOPIC,
            bootstrap_servers=ports.servers.split(","),
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=30_000,
        )
        try:
            send(ports.servers, range(90, 93))
            found = [int(next(other).value) for _ in range(3)]
            assert sorted(found) == [90, 91, 92]
            held = {
                number: other.committed(kafka.TopicPartition(TOPIC, number))
                for number in range(PARTITIONS)
            }
            assert held == dict.fromkeys(range(PARTITIONS), 30)
        finally:
            other.close()


def test_a_broker_by_itself_becomes_one_of_several(place: Path) -> None:
    """Its topics, settings, messages, positions and groups go along, and are there when the first
    disk is gone."""
    with brokers(place, min_insync_replicas=2) as all_:
        ports = Ports(all_)
        first, second = all_[1], all_[2]
        port = free_port()
        with serving(
            first.data_dir, "--listen", first.address, "--kafka-listen", f"127.0.0.1:{port}"
        ) as alone:
            create = ("topic", "create", TOPIC, "--partitions", str(PARTITIONS))
            first.program.ok(*create, "--set", "retention.ms=-1")
            consumer = consumer_of(f"127.0.0.1:{port}")
            try:
                send(f"127.0.0.1:{port}", range(30))
                consumer.subscribe([TOPIC])
                assert len(list(polled(consumer, 30))) == 30
                consumer.commit(asynchronous=False)
            finally:
                consumer.close()
            asyncio.run(commit_own(first))
            assert alone.stop(15) == 0
        ports.start(first, "--create-cluster")
        ports.start(second, follow=first)
        all_.in_sync(first)
        caught_up(second)
        first.kill()
        shutil.rmtree(first.data_dir)
        second.program.ok("cluster", "promote")
        ports.start(first, follow=second)
        all_.in_sync(second)
        topics, positions = asyncio.run(there(second, {TOPIC}))
        assert topics == {TOPIC: (PARTITIONS, "-1")}
        assert positions == {TOPIC: 7}
        consumer = consumer_of(ports.servers)
        try:
            send(ports.servers, range(30, 36))
            consumer.subscribe([TOPIC])
            found = {int(each.value()) for each in polled(consumer, 6)}
            assert found == set(range(30, 36))
        finally:
            consumer.close()


async def commit_own(broker: Broker) -> None:
    async with Admin(broker.address) as admin:
        await admin.commit_position("own", TOPIC, 0, 7)


async def _committed(addresses: str) -> list[int | None]:
    async with Admin(addresses) as admin:
        found = [await admin.position("team", TOPIC, number) for number in range(PARTITIONS)]
    return [None if one is None else one.offset for one in found]


async def test_our_members_follow_the_coordinator(place: Path) -> None:
    """The group goes on when another broker leads, from the positions that were committed."""
    async with members(place, 2, min_insync_replicas=2) as all_:
        await all_.start()
        await all_[1].call(create_topic(TOPIC, partitions=PARTITIONS))
        addresses = f"{all_[1].address},{all_[2].address}"
        sent: list[int] = []

        async def produce() -> None:
            async with Producer(addresses, acks="all") as producer:
                for number in range(len(sent), len(sent) + 6 * PARTITIONS):
                    sent.append(number)
                    await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)

        async with Consumer(addresses) as one, Consumer(addresses) as other:
            for consumer in (one, other):
                consumer.subscribe(TOPIC, group="team", heartbeat_interval_ms=50)
            found: list[int] = []

            async def read() -> None:
                """Let both poll until all that was sent has come, and they share the topic."""
                async with asyncio.timeout(DEADLINE_S):
                    while True:
                        for consumer in (one, other):
                            records = await consumer.fetch(max_wait_ms=20)
                            found.extend(int(record.value or b"") for record in records)
                        shares = [set(consumer.assignment) for consumer in (one, other)]
                        shared = all(shares) and sum(map(len, shares)) == PARTITIONS
                        if shared and len(set(found)) == len(sent):
                            return

            await produce()
            await read()
            for consumer in (one, other):
                await consumer.commit()
            before = len(found)
            await all_[1].promote(2)
            await produce()
            await read()
            # One that was alone for a moment may have read what the other reads again.
            assert set(found[before:]) == set(sent[-6 * PARTITIONS :])
            for consumer in (one, other):
                await consumer.commit()
        assert await _committed(addresses) == [12] * PARTITIONS
