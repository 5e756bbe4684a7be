"""What was answered with `acks=all` stays, whoever is killed (replication.md, section 4)."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from horolog import HorologError, Producer

from .brokers import Broker, Brokers, brokers, eventually, refused

TOPIC = "t"
PARTITIONS = 2
IN_FLIGHT = 20


@dataclass
class Writer:
    """Sends numbers with `acks=all`, and keeps which of them were answered, and where."""

    next_number: int = 0
    answered: dict[tuple[int, int], str] = field(default_factory=dict)

    async def write(self, broker: Broker, until: asyncio.Event) -> None:
        """Send to one broker until that ends."""
        async with Producer(
            broker.address, acks="all", idempotent=True, delivery_timeout_ms=3000
        ) as producer:
            under_way: deque[asyncio.Task[None]] = deque()
            while not until.is_set():
                under_way.append(asyncio.create_task(self._send(producer)))
                if len(under_way) >= IN_FLIGHT:
                    await under_way.popleft()
            await asyncio.gather(*under_way)

    async def _send(self, producer: Producer) -> None:
        number = self.next_number
        self.next_number += 1
        try:
            sent = await producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
        except (HorologError, OSError):
            await asyncio.sleep(0.01)  # a broker that is gone answers at once
        else:
            assert sent.offset is not None
            self.answered[number % PARTITIONS, sent.offset] = str(number)


def stored(broker: Broker) -> dict[tuple[int, int], str]:
    """All messages that a broker has, by partition and offset."""
    lines = broker.program.ok("consume", TOPIC, "--from", "offset:0", "--json").objects
    return {(one["partition"], one["offset"]): one["value"] for one in lines}


async def during(writer: Writer, broker: Broker, what: object, more: int = 60) -> None:
    """Write, until `what` was done and so many more were answered, or the broker is gone."""
    until = asyncio.Event()
    writing = asyncio.create_task(writer.write(broker, until))
    try:
        async with asyncio.timeout(30):
            before = len(writer.answered)
            while len(writer.answered) < before + more:
                await asyncio.sleep(0.01)  # noqa: ASYNC110 - of another process
            if callable(what):
                await asyncio.to_thread(what)
            await asyncio.sleep(0.05)
    finally:
        until.set()
        await writing


def test_leaders_and_followers_are_killed(place: Path) -> None:
    with brokers(place, cluster_min_insync_replicas=2) as all_:
        all_.start()
        all_[1].program.ok(
            "topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--set", "segment.bytes=2000"
        )
        asyncio.run(_rounds(all_))


async def _rounds(all_: Brokers) -> None:
    writer = Writer()
    leader, follower = all_[1], all_[2]
    for number in range(5):
        if number % 2:
            await during(writer, leader, follower.kill)
            follower.start(follow=leader)
        else:
            await during(writer, leader, leader.kill)
            follower.program.ok("cluster", "promote")
            leader, follower = follower, leader
            follower.start(follow=leader)
        all_.in_sync(leader)
        found = stored(leader)
        lost = {
            place: value for place, value in writer.answered.items() if found.get(place) != value
        }
        assert lost == {}, f"round {number}; {leader.told()[-3000:]}"
        for partition in range(PARTITIONS):
            values = [int(value) for (of, _), value in sorted(found.items()) if of == partition]
            assert len(values) == len(set(values))
    assert len(writer.answered) > 200
    for broker in (follower, leader):
        broker.stop()
    assert follower.files() == leader.files()


def test_a_leader_that_comes_back_gives_up_what_it_had_alone(place: Path) -> None:
    with brokers(place) as all_:
        first, second = all_[1], all_[2]
        all_.start()
        first.program.ok("topic", "create", TOPIC)
        first.program.ok("produce", TOPIC, stdin="".join(f"both {n}\n" for n in range(20)))
        all_.in_sync(first)
        second.kill()
        first.program.ok("produce", TOPIC, stdin="".join(f"alone {n}\n" for n in range(30)))
        first.kill()
        second.start(follow=first)
        text = refused(second.program("cluster", "promote"))
        assert "may be missing" in text
        assert "--accept-loss" in text
        promoted = second.program.ok("cluster", "promote", "--accept-loss", "--json").objects[0]
        assert promoted["leader"] == 2
        assert not promoted["handed_over"]
        second.program.ok("produce", TOPIC, stdin="after\n")
        first.start(follow=second)
        status = all_.in_sync(second)
        assert status["epoch"] == promoted["epoch"] > 1
        lines = second.program.ok("consume", TOPIC, "--from", "offset:0", "--json").objects
        assert [one["value"] for one in lines] == [*(f"both {n}" for n in range(20)), "after"]
        for broker in (second, first):
            broker.stop()
        assert first.files() == second.files()


def test_a_leader_waits_for_the_others_after_a_start(place: Path) -> None:
    with brokers(place) as all_:
        all_.start()
        first, second = all_[1], all_[2]
        first.program.ok("topic", "create", TOPIC)
        second.stop()
        first.kill()
        first.start()
        assert "NOT_LEADER" in refused(first.program("produce", TOPIC, stdin="a\n"))
        assert "--alone" in first.program.ok("cluster", "status").out
        second.start(follow=first)
        all_.in_sync(first)
        first.program.ok("produce", TOPIC, stdin="a\n")
        second.stop()
        first.stop()
        first.start("--alone")
        first.program.ok("produce", TOPIC, stdin="b\n")


def test_an_old_leader_does_not_lead_beside_a_new_one(place: Path) -> None:
    with brokers(place) as all_:
        all_.start()
        first, second = all_[1], all_[2]
        first.program.ok("topic", "create", TOPIC)
        first.kill()
        second.program.ok("cluster", "promote", "--accept-loss")
        second.program.ok("produce", TOPIC, stdin="a\n")
        second.stop()
        first.start()  # as before: nobody told it
        second.start(follow=first)
        eventually(
            lambda: "another broker has led since" in first.program.ok("cluster", "status").out,
            "the old leader hears of the new one",
        )
        assert "NOT_LEADER" in refused(first.program("produce", TOPIC, stdin="b\n"))


@pytest.mark.parametrize("durability", ["fsync", "written"])
def test_writes_are_refused_while_too_few_are_in_sync(place: Path, durability: str) -> None:
    with brokers(place, cluster_min_insync_replicas=2, acks_all_durability=durability) as all_:
        all_.start()
        first, second = all_[1], all_[2]
        first.program.ok("topic", "create", TOPIC)
        first.program.ok("produce", TOPIC, stdin="a\n")
        second.kill()

        def out_of_sync() -> bool:
            return bool(first.status()["in_sync"] == [1])

        eventually(out_of_sync, "the follower is out of sync")
        assert "NOT_ENOUGH_REPLICAS" in refused(first.program("produce", TOPIC, stdin="b\n"))
        second.start(follow=first)
        all_.in_sync(first)
        first.program.ok("produce", TOPIC, stdin="c\n")


def test_two_followers(place: Path) -> None:
    with brokers(place, 3, cluster_min_insync_replicas=3) as all_:
        all_.start()
        first, second, third = all_[1], all_[2], all_[3]
        first.program.ok("topic", "create", TOPIC, "--partitions", "2")
        first.program.ok("produce", TOPIC, stdin="".join(f"{n}\n" for n in range(50)))
        assert all_.in_sync(first)["in_sync"] == [1, 2, 3]
        first.kill()
        third.program.ok("cluster", "promote")
        for broker in (second, first):
            if broker.server is not None:
                broker.stop()
            broker.start(follow=third)
        all_.in_sync(third)
        third.program.ok("produce", TOPIC, stdin="more\n")
        for broker in (third, second, first):
            broker.stop()
        assert first.files() == second.files() == third.files()
