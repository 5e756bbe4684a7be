"""What was answered with `acks=all` stays, whoever is killed (replication.md, section 4)."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from horolog import HorologError, Producer
from horolog.testing.waiting import wait_until

from .brokers import DEADLINE_S, SHORT_MS, Broker, Brokers, brokers, refused

TOPIC = "t"
PARTITIONS = 2
IN_FLIGHT = 20
ROUNDS, LONG_ROUNDS = 2, 8
"""A leader is killed in the first, a follower in the second, and so on."""


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
            while len(writer.answered) < before + more:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.01)
            if callable(what):
                await asyncio.to_thread(what)
            await asyncio.sleep(0.05)
    finally:
        until.set()
        await writing


@pytest.mark.parametrize(
    "rounds", [ROUNDS, pytest.param(LONG_ROUNDS, marks=pytest.mark.soak)], ids="{} rounds".format
)
def test_leaders_and_followers_are_killed(place: Path, rounds: int) -> None:
    with brokers(place, min_insync_replicas=2, replica_lag_time_max_ms=SHORT_MS) as all_:
        all_.start()
        all_[1].program.ok(
            "topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--set", "segment.bytes=2000"
        )
        asyncio.run(_rounds(all_, rounds))


async def _rounds(all_: Brokers, rounds: int) -> None:
    writer = Writer()
    leader, follower = all_[1], all_[2]
    for number in range(rounds):
        if number % 2:
            await during(writer, leader, follower.kill)
            follower.start(follow=leader)
        else:
            await during(writer, leader, leader.kill)
            follower.program.ok("cluster", "promote")
            leader, follower = follower, leader
            follower.start(follow=leader)
        await asyncio.to_thread(all_.in_sync, leader)
        found = stored(leader)
        lost = {
            place: value for place, value in writer.answered.items() if found.get(place) != value
        }
        assert lost == {}, f"round {number}; {leader.told()[-3000:]}"
        for partition in range(PARTITIONS):
            values = [int(value) for (of, _), value in sorted(found.items()) if of == partition]
            assert len(values) == len(set(values))
    assert len(writer.answered) > 50 * rounds
    for broker in (follower, leader):
        broker.stop()
    assert follower.files() == leader.files()


def test_a_leader_that_comes_back_gives_up_what_it_had_alone(place: Path) -> None:
    with brokers(place, replica_lag_time_max_ms=SHORT_MS) as all_:
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
        assert status.epoch == promoted["epoch"] > 1
        lines = second.program.ok("consume", TOPIC, "--from", "offset:0", "--json").objects
        assert [one["value"] for one in lines] == [*(f"both {n}" for n in range(20)), "after"]
        for broker in (second, first):
            broker.stop()
        assert first.files() == second.files()


def test_who_finds_damage_does_not_lead(place: Path) -> None:
    """Section 4: what it confirmed may be gone. Once a leader is there it is copied again."""
    with brokers(place, min_insync_replicas=2, replica_lag_time_max_ms=SHORT_MS) as all_:
        all_.start()
        first, second = all_[1], all_[2]
        first.program.ok("topic", "create", TOPIC, "--partitions", "2")
        first.program.ok("produce", TOPIC, stdin="".join(f"{n}\n" for n in range(40)))
        all_.in_sync(first)
        second.stop()
        second.start(follow=first)
        all_.in_sync(first)
        second.kill()
        folder = second.data_dir / f"{TOPIC}-0"
        path = next(folder.glob("*.log"))
        stored = bytearray(path.read_bytes())
        stored[20] ^= 1
        path.write_bytes(stored)
        first.kill()
        second.start(follow=first)
        assert "may have lost something" in refused(second.program("cluster", "promote"))
        first.start("--alone")
        all_.in_sync(first)
        wait_until(lambda: second.status().promise == "", within_s=DEADLINE_S)
        for broker in (second, first):
            broker.stop()
        assert second.files() == first.files()
