"""Members of consumer groups at Apache Kafka, and at Horolog's port for Kafka's clients."""

import asyncio

import pytest

from horolog import Admin, Consumer, Producer

from .conftest import NewTopic

PARTITIONS = 4
COUNT = 40
DEADLINE_S = 60.0

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_two_members_share_and_the_next_one_goes_on(
    cluster: str, new_topic: NewTopic, assignor: str
) -> None:
    topic = await new_topic(cluster, PARTITIONS)
    group = f"of-{topic}"

    def subscribe(consumer: Consumer) -> None:
        consumer.subscribe(
            topic,
            group=group,
            assignor=assignor,
            heartbeat_interval_ms=100,
            session_timeout_ms=10_000,
        )

    async def read(consumers: list[Consumer], count: int) -> list[int]:
        """Poll in turns until that many have come and the members share all partitions."""
        found: list[int] = []
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for consumer in consumers:
                    records = await consumer.fetch(max_wait_ms=50)
                    found += [int(record.value or b"") for record in records]
                shares = [len(consumer.assignment) for consumer in consumers]
                if len(found) >= count and shares == [PARTITIONS // len(consumers)] * len(shares):
                    return sorted(found)

    async def produce(first: int) -> None:
        async with Producer(cluster) as producer:
            for number in range(first, first + COUNT):
                await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)

    await produce(0)
    async with Consumer(cluster) as one, Consumer(cluster) as other:
        subscribe(one)
        assert await read([one], COUNT) == list(range(COUNT))
        subscribe(other)
        await read([one, other], 0)
        await produce(COUNT)
        assert await read([one, other], COUNT) == list(range(COUNT, 2 * COUNT))
    await produce(2 * COUNT)
    async with Consumer(cluster) as third:
        subscribe(third)
        assert await read([third], COUNT) == list(range(2 * COUNT, 3 * COUNT))
    async with Admin(cluster) as admin:
        positions = [await admin.position(group, topic, number) for number in range(PARTITIONS)]
    assert [one and one.offset for one in positions] == [3 * COUNT // PARTITIONS] * PARTITIONS
