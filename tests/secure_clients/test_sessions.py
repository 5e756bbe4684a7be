"""Sessions that end (KIP-368), and brokers that are restarted: every connection logs in."""

import asyncio
from collections.abc import Callable

import pytest

from horolog import Consumer, Producer, Security
from horolog.bench.apache_kafka import ApacheKafka
from horolog.client.cluster.link import ClientLink
from horolog.client.security import authentication
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataResponse

from .conftest import NewTopic
from .listeners import PASSWORD, SESSION_MS

pytestmark = pytest.mark.timeout(1200)

LONGER_THAN_A_SESSION_S = 1.1 * SESSION_MS / 1000


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients log in again long before a session ends. Kafka closes a connection that goes on after
    its session, and one that stood still reads only then what was sent in time."""
    monkeypatch.setattr(authentication, "_EARLY", (0.35, 0.4))


@pytest.mark.both_loops
async def test_one_connection_outlives_its_session(apache: ApacheKafka, early: None) -> None:
    """Kafka closes a connection that goes on after its session without a login."""
    link = ClientLink(
        apache.brokers[0].listeners["SHORT"],
        client_id=None,
        request_timeout_ms=10_000,
        encoding=kafka,
        security=Security(user="alice", password=PASSWORD),
    )
    first = await link.connection()
    loop = asyncio.get_running_loop()
    until = loop.time() + LONGER_THAN_A_SESSION_S
    asked = 0

    async def ask() -> None:
        nonlocal asked
        while loop.time() < until or asked <= 100:
            connection = await link.connection()
            assert connection is first
            answer: MetadataResponse = await connection.submit(METADATA, MetadataRequest(topics=[]))
            assert answer.brokers
            asked += 1
            await asyncio.sleep(0.005)

    await asyncio.gather(*(ask() for _ in range(3)))
    await link.close()


async def test_messages_flow_over_sessions(
    apache: ApacheKafka, new_topic: NewTopic, early: None
) -> None:
    topic, count = await new_topic(2), 200
    address = f"kafka://{apache.at('SHORT')}"
    security = Security(user="alice", password=PASSWORD)
    pause_s = LONGER_THAN_A_SESSION_S / count
    read: list[int] = []
    async with (
        Producer(address, security=security, delivery_timeout_ms=0, idempotent=False) as producer,
        Consumer(address, security=security, retry_timeout_ms=0, max_wait_ms=3_000) as consumer,
    ):
        consumer.assign(topic)

        async def reading() -> None:
            while len(read) < count:
                read.extend(int(one.value or b"") for one in await consumer.fetch())

        task = asyncio.create_task(reading())
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % 2)
            await asyncio.sleep(pause_s)
        await task
    assert sorted(read) == list(range(count))


async def test_a_broker_that_is_restarted(
    apache: ApacheKafka, guarded: str, alice: Callable[..., Security], new_topic: NewTopic
) -> None:
    """The first broker leads the cluster, and has to stay."""
    topic, count = await new_topic(2), 400
    second = apache.brokers[1]
    read: set[int] = set()
    async with (
        Producer(guarded, security=alice(), linger_ms=1) as producer,
        Consumer(guarded, security=alice(), retry_timeout_ms=300_000) as consumer,
    ):
        consumer.assign(topic)

        async def reading() -> None:
            while len(read) < count:
                read.update(int(one.value or b"") for one in await consumer.fetch())

        async def sending() -> None:
            for number in range(count):
                await producer.enqueue(topic, b"%d" % number, partition=number % 2)
                await asyncio.sleep(0.01)
            await producer.flush()

        tasks = asyncio.gather(reading(), sending())
        await asyncio.to_thread(second.kill)
        await asyncio.to_thread(second.start)
        await tasks
    assert read == set(range(count))
