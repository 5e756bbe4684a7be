"""One group with members of our library, of librdkafka and of aiokafka."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from horolog import Admin, Consumer, Producer
from horolog.testing.broker import running_broker

TOPIC, GROUP = "clicks", "team"
PARTITIONS = 6
COUNT = 60
DEADLINE_S = 60.0


class Member(Protocol):
    """A member that a test polls."""

    async def poll(self) -> list[int]:
        """Return the numbers that came."""
        ...

    def share(self) -> set[int]: ...

    async def close(self) -> None: ...


class OurMember:
    """A consumer of our library."""

    def __init__(self, address: str, assignor: str) -> None:
        self._consumer = Consumer(address)
        self._consumer.subscribe(TOPIC, group=GROUP, assignor=assignor, heartbeat_interval_ms=50)

    async def poll(self) -> list[int]:
        return [int(one.value or b"") for one in await self._consumer.fetch(max_wait_ms=50)]

    def share(self) -> set[int]:
        return {partition for _, partition in self._consumer.assignment}

    async def close(self) -> None:
        await self._consumer.close()


class LibrdkafkaMember:
    """A consumer of confluent-kafka, in threads."""

    def __init__(self, kafka: str, assignor: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": kafka,
                "broker.address.family": "v4",
                "group.id": GROUP,
                "partition.assignment.strategy": assignor,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 50,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC])

    async def poll(self) -> list[int]:
        found = await asyncio.to_thread(self._consumer.consume, 1000, 0.05)
        return [int(one.value() or b"") for one in found if one.error() is None]

    def share(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)


class AiokafkaMember:
    """A consumer of aiokafka; roundrobin is its default, and range its only assignor of ours."""

    def __init__(self, kafka: str) -> None:
        self._consumer = AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=kafka,
            group_id=GROUP,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=50,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        self._starting: asyncio.Task[None] | None = None

    async def poll(self) -> list[int]:
        if self._starting is None:
            self._starting = asyncio.create_task(self._consumer.start())
        if not self._starting.done():
            await asyncio.sleep(0.05)
            return []
        await self._starting
        found = await self._consumer.getmany(timeout_ms=50)
        return [int(one.value) for records in found.values() for one in records]

    def share(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    async def close(self) -> None:
        await self._consumer.stop()


@asynccontextmanager
async def a_broker(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """The addresses of a broker with the topic: of our protocol and of Kafka's."""
    async with running_broker(
        tmp_path, http_listen="off", kafka_listen="127.0.0.1:0", group_min_session_timeout_ms=100
    ) as broker:
        native, kafka = broker.addresses.native, broker.addresses.kafka
        assert kafka is not None
        async with Admin(native) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)
        yield native, kafka


async def polled(
    members: list[Any], found: list[int], done: Callable[[list[set[int]]], bool]
) -> list[set[int]]:
    """Poll in turns until `done` with the shares of all."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            for numbers in await asyncio.gather(*(member.poll() for member in members)):
                found += numbers
            shares = [member.share() for member in members]
            if done(shares):
                return shares


def evenly(shares: list[set[int]]) -> bool:
    sizes = list(map(len, shares))
    whole = set().union(*shares) == set(range(PARTITIONS))
    return whole and sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1


async def produce(native: str, first: int) -> None:
    async with Producer(native) as producer:
        for number in range(first, first + COUNT):
            await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_a_group_of_several_libraries(tmp_path: Path, assignor: str) -> None:
    """Whoever leads it, every message comes, and once while nobody leaves."""
    async with a_broker(tmp_path) as (native, kafka), AsyncExitStack() as stack:
        makers: list[Callable[[], Member]] = [
            lambda: OurMember(native, assignor),
            lambda: LibrdkafkaMember(kafka, assignor),
            lambda: OurMember(f"kafka://{kafka}", assignor),
        ]
        if assignor == "range":
            makers.insert(1, lambda: AiokafkaMember(kafka))
        members: list[Member] = []
        for make in makers:
            members.append(make())
            stack.push_async_callback(members[-1].close)
            await polled(members, [], evenly)
        found: list[int] = []
        await produce(native, 0)
        await polled(members, found, lambda shares: len(found) >= COUNT)
        assert sorted(found) == list(range(COUNT))
        # The first one, which leads the group, leaves; another one leads it then.
        await members[0].close()
        left = members[1:]
        await polled(left, [], evenly)
        await produce(native, COUNT)
        found.clear()
        await polled(left, found, lambda shares: len(set(found)) >= COUNT)
        assert set(found) == set(range(COUNT, 2 * COUNT))
