"""Brokers that go away: messages stay in order, and none is there twice."""

import asyncio
from pathlib import Path

import pytest

from horolog import Admin, Consumer, Producer
from horolog.bench.apache_kafka import ApacheKafka
from horolog.client.client import route_to
from horolog.testing.broker import running_broker
from horolog.testing.ports import free_port
from horolog.testing.proxy import Direction, InjectedFault, Plan, proxied

from .conftest import NewTopic

pytestmark = pytest.mark.timeout(1200)

COUNT = 2000


async def leaders(address: str, topic: str, partitions: int) -> dict[int, int]:
    """Id of the broker that leads, by partition."""
    cluster = route_to(address, client_id=None, request_timeout_ms=10_000)
    try:
        return {number: await cluster.leader(topic, number) for number in range(partitions)}
    finally:
        await cluster.close()


async def test_a_leader_that_moves_is_followed(
    apache: ApacheKafka, cluster: str, new_topic: NewTopic
) -> None:
    topic = await new_topic(cluster, 3)
    before = await leaders(cluster, topic, 3)
    # The first broker leads the cluster, and has to stay.
    moving, leader = next((place, node) for place, node in before.items() if node != 1)
    stopping = asyncio.to_thread(apache.brokers[leader - 1].stop)
    stopped: asyncio.Task[None] | None = None
    found: list[int] = []
    async with Producer(cluster, linger_ms=1) as producer, Consumer(cluster) as consumer:
        consumer.assign(topic, moving)

        async def read() -> None:
            while len(found) < COUNT:
                found.extend(int(one.value or b"") for one in await consumer.fetch())

        reading = asyncio.create_task(read())
        waiting = []
        for number in range(COUNT):
            waiting.append(await producer.enqueue(topic, b"%d" % number, partition=moving))
            if number % 20 == 0:
                await waiting[-1]
            if number == COUNT // 2:
                stopped = asyncio.create_task(stopping)
        sent = await asyncio.gather(*waiting)
        assert [one.offset for one in sent] == list(range(COUNT))
        await reading
        assert found == list(range(COUNT))
        assert stopped is not None
        await stopped
        try:
            assert (await leaders(cluster, topic, 3))[moving] != leader
            assert (await consumer.lag())[topic, moving].messages == 0
            await consumer.commit("reader-of-what-moved")
            async with Admin(cluster) as admin:
                position = await admin.position("reader-of-what-moved", topic, moving)
                assert position is not None
                assert position.offset == COUNT
        finally:
            await asyncio.to_thread(apache.brokers[leader - 1].start)


@pytest.mark.parametrize(("idempotent", "copies"), [(None, 1), (False, 2)])
async def test_an_answer_that_got_lost_doubles_nothing(
    tmp_path: Path, idempotent: bool | None, copies: int
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    async with (
        proxied(listen) as proxy,
        running_broker(
            tmp_path, kafka_listen=listen, advertised_listeners=proxy.address, http_listen="off"
        ),
    ):
        address = f"kafka://{proxy.address}"
        async with Admin(address) as admin:
            await admin.create_topic("a")

        async def send(value: bytes) -> int:
            async with Producer(address, idempotent=idempotent) as producer:
                return (await producer.send("a", value)).offset

        assert await send(b"first") == 0
        passed = proxy.links[-1].passed[Direction.TO_CLIENT]
        proxy.plan = Plan(Direction.TO_CLIENT, passed - 1, InjectedFault.RESET)
        number = len(proxy.links)
        assert await send(b"other") == copies
        proxy.plan = None
        assert proxy.links[number].harmed.is_set()
        assert len(proxy.links) > number + 1
        async with Consumer(address) as consumer:
            consumer.assign("a")
            found = await consumer.fetch()
            assert [one.value for one in found] == [b"first"] + [b"other"] * copies
