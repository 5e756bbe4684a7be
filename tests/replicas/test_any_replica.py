"""Clients that read from any of several brokers (replication.md, section 6)."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog import Admin, Consumer, Producer, blocking
from horolog.client.cluster.connection import ClientConnection
from horolog.client.cluster.replicas import (
    ANEW_S,
    AVOIDED_S,
    STALE_MS,
    Replicas,
    choose_anew,
    connect_to_first,
)
from horolog.client.errors import ConnectionFailed
from horolog.testing.program import Program
from horolog.testing.requests import create_topic

from .brokers import Broker, Brokers, brokers
from .members import Member, Members, eventually, members, reading_link

TOPIC = "t"
PARTITIONS = 2
MORE = 30
"""Messages that come between two events."""
DEADLINE_S = 40.0


def addresses(of: Brokers | Members) -> str:
    return ",".join(one.address for one in of.all.values())


def connected(client: Any) -> str | None:
    """The address of the broker that a client reads from."""
    link = reading_link(client)
    connection = None if link is None else link.current
    return None if connection is None or connection.failed else connection.address


@dataclass
class Traffic:
    """Numbers that are sent one after the other, and what is read of them, by partition."""

    sent: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    read: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    async def write(self, address: str, until: asyncio.Event) -> None:
        async with Producer(
            address, acks="all", idempotent=True, delivery_timeout_ms=60_000
        ) as producer:
            number = 0
            while not until.is_set():
                partition = number % PARTITIONS
                self.sent[partition].append(number)
                await producer.send(TOPIC, b"%d" % number, partition=partition)
                number += 1

    async def consume(self, consumer: Consumer) -> None:
        async for record in consumer:
            self.read[record.partition].append(int(record.value or b""))

    async def goes_on(self) -> None:
        """Wait for some more."""
        before = self.count
        await until(lambda: self.count > before + MORE)

    @property
    def count(self) -> int:
        return sum(map(len, self.read))


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)


def test_every_message_comes_once_whoever_is_killed(place: Path) -> None:
    """Each broker in turn, while the consumer reads from it."""
    with brokers(place, 3, replica_lag_time_max_ms=3_000) as all_:
        all_.start()
        all_[1].program.ok("topic", "create", TOPIC, "--partitions", str(PARTITIONS))
        asyncio.run(_kill_each(all_))


async def _kill_each(all_: Brokers) -> None:
    leader, left, traffic, ended = all_[1], set(all_.all.values()), Traffic(), asyncio.Event()
    async with Consumer(addresses(all_), read_from="any", max_wait_ms=100) as consumer:
        consumer.assign(TOPIC)
        tasks = [
            asyncio.create_task(traffic.write(addresses(all_), ended)),
            asyncio.create_task(traffic.consume(consumer)),
        ]
        while left:
            await traffic.goes_on()
            await asyncio.to_thread(all_.in_sync, leader)
            victim = await _read_from(consumer, left)
            left.discard(victim)
            await asyncio.to_thread(victim.kill)
            if victim is leader:
                leader = await asyncio.to_thread(_promote_another, all_, victim)
            else:
                await traffic.goes_on()
            victim.start(follow=leader)
        ended.set()
        await tasks[0]
        await until(lambda: traffic.count == sum(map(len, traffic.sent)))
        tasks[1].cancel()
    assert traffic.read == traffic.sent


async def _read_from(consumer: Consumer, left: set[Broker]) -> Broker:
    """Have it read from one of these."""
    by_address = {one.address: one for one in left}
    async with asyncio.timeout(DEADLINE_S):
        while connected(consumer) not in by_address:
            link, reads = reading_link(consumer), consumer._cluster.reads
            if link is not None and link.current is not None and reads is not None:
                reads._leave(link, link.current)
            await asyncio.sleep(0.02)  # the next fetch finds another one
    return by_address[str(connected(consumer))]


def _promote_another(all_: Brokers, gone: Broker) -> Broker:
    heir, third = (one for one in all_.all.values() if one is not gone)
    heir.program.ok("cluster", "promote", "--accept-loss")
    third.stop()
    third.start(follow=heir)
    return heir


async def three(place: Path) -> AsyncIterator[Members]:
    async with members(place, 3) as all_:
        await all_.start()
        await all_[1].call(create_topic(TOPIC))
        await all_[1].produce(TOPIC, *map(str, range(10)))
        await all_.in_sync(all_[1])
        for member in (all_[2], all_[3]):
            await eventually(partial(_shows_ten, member))
        yield all_


def _shows_ten(member: Member) -> bool:
    found: int = member.log(TOPIC).high_watermark
    return found == 10


trio = asynccontextmanager(three)


def brought_up(member: Member, *, heard_s: float) -> None:
    """Let it have heard from its leader that long ago, for ever."""
    member.cluster.fetcher.answered_s = member.cluster.now_s - heard_s
    member.cluster.fetcher._record = lambda response: None


async def test_clients_spread(place: Path) -> None:
    async with trio(place) as all_:
        found: set[str | None] = set()
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < 3:
                async with Consumer(all_[2].address, read_from="any") as consumer:
                    consumer.assign(TOPIC, 0)
                    assert len(await consumer.fetch()) == 10
                    found.add(connected(consumer))
                    link = reading_link(consumer)
                    assert link is not None
                    link._opened_s -= ANEW_S
                    choose_anew(link)
                    assert link.current is None
                    await consumer.fetch(max_wait_ms=0)
                    found.add(connected(consumer))
        assert found == {one.address for one in all_.all.values()}


async def test_a_broker_that_is_cut_off_is_left(place: Path) -> None:
    """One that hears nothing of its leader says so, and an empty answer of it is not believed."""
    async with trio(place) as all_:
        for member in (all_[2], all_[3]):
            brought_up(member, heard_s=STALE_MS / 1000 + 1)
        async with Consumer(addresses(all_), read_from="any", max_wait_ms=20) as consumer:
            consumer.assign(TOPIC, 0)
            assert len(await consumer.fetch()) == 10
            async with asyncio.timeout(DEADLINE_S):
                while connected(consumer) != all_[1].address:
                    assert await consumer.fetch() == []


async def test_a_broker_that_is_behind_is_left(place: Path) -> None:
    async with (
        trio(place) as all_,
        Consumer(addresses(all_), read_from="any", max_wait_ms=20) as consumer,
    ):
        consumer.assign(TOPIC, 0, offset=10)
        reads = consumer._cluster.reads
        assert reads is not None
        reads.replicas.seen[TOPIC, 0] = 12
        async with asyncio.timeout(DEADLINE_S):
            while connected(consumer) != all_[1].address:
                assert await consumer.fetch() == []
        await consumer.fetch()
        assert reads.replicas.seen[TOPIC, 0] == 10  # the leader knows it better


async def test_ends_never_go_back(place: Path) -> None:
    """Where one client has seen more, a follower that lags does not say where a partition ends."""
    async with trio(place) as all_:
        lagging, leader = all_[2], all_[1]
        await eventually(lambda: lagging.cluster.node.follower.connection is not None)
        lagging.cluster.node.follower.drop()
        lagging.cluster.node.follower.tick = lambda now_s: None
        with leader.impatient():
            await eventually(lambda: leader.cluster.admin.describe().in_sync == [1, 3])
        await leader.produce(TOPIC, "more")
        async with Admin(lagging.address, read_from="any") as admin:
            link: Any = reading_link(admin)
            reads: Any = admin._cluster.reads
            seen = 0
            for _ in range(5):
                link._connection = await reads._connect_and_learn(lagging.address)
                (found,) = await admin.list_offsets(TOPIC, 0, [-1])
                assert found.offset is not None
                assert found.offset >= seen
                seen = found.offset
                if link.current is not None:
                    link.current.abort()
                link._connection = await reads._connect_and_learn(leader.address)
                (found,) = await admin.list_offsets(TOPIC, 0, [-1])
                assert found.offset == 11
                seen = 11


async def test_reading_goes_on_without_a_leader(place: Path) -> None:
    async with trio(place) as all_:
        await all_[1].stop()
        async with Consumer(addresses(all_), read_from="any") as consumer:
            consumer.assign(TOPIC)
            assert len(await consumer.fetch()) == 10
            found = await consumer.seek_to_time(timestamp_ms=0)
            assert len(found) == 1
            window = [record async for record in consumer.window(TOPIC, None, None)]
            assert len(window) == 10


async def test_the_blocking_library_and_the_command_line(place: Path) -> None:
    async with trio(place) as all_:
        await asyncio.to_thread(_from_any, all_[2].address, all_[3].address)


def _from_any(*of: str) -> None:
    with blocking.Consumer(",".join(of), read_from="any") as consumer:
        consumer.assign(TOPIC, 0)
        assert len(consumer.fetch()) == 10
    program = Program(of[0])
    for more in (("--from", "offset:0"), ("--from", "2000-01-01T00:00:00Z")):
        found = program.ok("consume", TOPIC, *more, "--read-from", "any", "--json").objects
        assert [one["value"] for one in found] == [str(number) for number in range(10)]
    (_, end) = program.ok("offsets", TOPIC, "--read-from", "any", "--json").objects
    assert end["offset"] == 10
    asked = ("--from", "@-1h", "--every", "2h", "--read-from", "any", "--json")
    counts = program.ok("histogram", TOPIC, *asked).objects
    assert sum(one["count"] for one in counts) == 10


def test_kafka_has_no_such_thing() -> None:
    result = Program("kafka://127.0.0.1:9")("consume", TOPIC, "--read-from", "any")
    assert result.code == 2
    assert "--read-from any is for Horolog's own protocol" in result.err
    with pytest.raises(ValueError, match="Horolog's own protocol"):
        Consumer("kafka://127.0.0.1:9", read_from="any")
    with pytest.raises(ValueError, match="'leader' or 'any', not 'all'"):
        Consumer("127.0.0.1:9", read_from="all")  # type: ignore[arg-type]


# Which broker is chosen.


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 2**32))
def test_a_broker_of_no_use_comes_last(avoided: list[int], seed: int) -> None:
    names = [f"h:{number}" for number in range(4)]
    replicas = Replicas(names[:2], chance=random.Random(seed))
    replicas.learn(names[1:])
    latest = {}
    for second, number in enumerate(avoided):
        replicas.avoid(names[number], float(second))
        latest[names[number]] = second
    now_s = float(len(avoided))
    order = replicas.in_order(now_s)
    assert sorted(order) == names
    ends = [max(latest.get(name, -100.0) + AVOIDED_S, now_s) for name in order]
    assert ends == sorted(ends)
    for name in names:
        usable = [one for one in names if latest.get(one, -100.0) + AVOIDED_S <= now_s]
        assert replicas.has_other(name, now_s) == bool(set(usable) - {name})


async def test_who_does_not_answer_delays_the_others_little() -> None:
    """A machine that is gone answers nothing at all to who connects."""
    silent = asyncio.get_running_loop().create_future()
    failed: list[str] = []
    made = ClientConnection("good", None, 1000)

    async def reach(address: str) -> ClientConnection:
        if address == "silent":
            await silent
        if address == "closed":
            raise ConnectionFailed("closed")
        return made

    async with asyncio.timeout(DEADLINE_S):
        found = await connect_to_first(["silent", "closed", "good"], reach, failed.append)
        assert found is made
        assert failed == ["closed"]
        assert silent.cancelled()
        with pytest.raises(ConnectionFailed, match="no broker at closed can be reached: closed"):
            await connect_to_first(["closed"], reach, failed.append)


async def test_a_port_where_nobody_answers_is_passed_over(place: Path) -> None:
    """As of a broker that was stopped (SIGSTOP): the system takes connections in its stead."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        async with trio(place) as all_:
            given_ = f"127.0.0.1:{deaf.getsockname()[1]},{all_[3].address}"
            for _ in range(4):
                async with (
                    asyncio.timeout(DEADLINE_S),
                    Consumer(given_, read_from="any") as consumer,
                ):
                    consumer.assign(TOPIC, 0)
                    assert len(await consumer.fetch()) == 10
