"""`send_many` and `horolog produce` in a Kafka cluster: all of a set, once, whoever leads."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from horolog import LATEST, Admin, ConnectionFailed, Consumer, NewRecord, Producer, SentRecord
from horolog.bench.apache_kafka import ApacheKafka, KafkaBroker
from horolog.testing.broker import running_broker
from horolog.testing.ports import free_port
from horolog.testing.program import Program
from horolog.testing.proxy import Direction, InjectedFault, Plan, Proxy, proxied

from .conftest import NewTopic
from .test_moving import leaders

pytestmark = pytest.mark.timeout(1200)

SETS = 200
EACH = 5


async def values(address: str, topic: str, partition: int = 0) -> list[bytes]:
    """All that is stored."""
    found: list[bytes] = []
    async with Admin(address) as admin, Consumer(address) as consumer:
        consumer.assign(topic, partition, offset=0)
        (end,) = await admin.list_offsets(topic, partition, [LATEST])
        while (consumer.position(topic, partition) or 0) < (end.offset or 0):
            found += [one.value or b"" for one in await consumer.fetch()]
    return found


async def one_that_can_go(address: str, apache: ApacheKafka, topic: str) -> tuple[int, KafkaBroker]:
    """A partition, and the broker that leads it. The first broker leads the cluster, and stays."""
    led_by = await leaders(address, topic, 3)
    partition, node_id = next((number, node) for number, node in led_by.items() if node != 1)
    return partition, apache.brokers[node_id - 1]


def numbered(number: int) -> list[bytes]:
    """The values of a set."""
    return [b"%d.%d" % (number, row) for row in range(EACH)]


@pytest.mark.parametrize(
    "end", [pytest.param(KafkaBroker.stop, marks=pytest.mark.soak), KafkaBroker.kill]
)
async def test_sets_outlive_their_leader(
    apache: ApacheKafka, cluster: str, new_topic: NewTopic, end: object
) -> None:
    topic = await new_topic(cluster, 3)
    partition, leader = await one_that_can_go(cluster, apache, topic)
    ending: asyncio.Future[None] | None = None
    expected: list[bytes] = []
    try:
        async with Producer(cluster) as producer:
            answers: list[asyncio.Task[list[SentRecord]]] = []
            singles: list[asyncio.Future[SentRecord]] = []
            for number in range(SETS):
                records = [NewRecord(value) for value in numbered(number)]
                answers.append(
                    asyncio.create_task(producer.send_many(topic, records, partition=partition))
                )
                await asyncio.sleep(0)  # it is in the queue now, in front of the next one
                singles.append(
                    await producer.enqueue(topic, b"single %d" % number, partition=partition)
                )
                expected += [*numbered(number), b"single %d" % number]
                if number == SETS // 4:
                    await answers[-1]
                    assert callable(end)
                    ending = asyncio.ensure_future(asyncio.to_thread(end, leader))
                if number % 20 == 0:
                    await singles[-1]
            sent = [one for answer in answers for one in await answer]
            offsets = [one.offset for one in sent] + [(await one).offset for one in singles]
        assert sorted(offsets) == list(range(SETS * (EACH + 1)))
        assert [one.offset % (EACH + 1) for one in sent] == list(range(EACH)) * SETS
        assert await values(cluster, topic, partition) == expected
    finally:
        if ending is not None:
            await ending
            await asyncio.to_thread(leader.start)


async def test_the_command_outlives_a_leader(
    apache: ApacheKafka, cluster: str, new_topic: NewTopic
) -> None:
    topic = await new_topic(cluster, 3)
    partition, leader = await one_that_can_go(cluster, apache, topic)
    lines = [f"line {number}" for number in range(2000)]

    def produce() -> list[str]:
        command = ("produce", topic, "--partition", str(partition))
        with Program(cluster).running(*command) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n".join(lines[:100]) + "\n")
            process.stdin.flush()
            answers = [process.stdout.readline() for _ in range(100)]
            leader.kill()
            out, err = process.communicate("\n".join(lines[100:]))
            assert (process.returncode, err) == (0, "")
        return answers + out.splitlines()

    try:
        answers = await asyncio.to_thread(produce)
        assert [json.loads(one)["offset"] for one in answers] == list(range(len(lines)))
        stored = await values(cluster, topic, partition)
        assert [one.decode() for one in stored] == lines
    finally:
        await asyncio.to_thread(leader.start)


@asynccontextmanager
async def harmed(data_dir: Path) -> AsyncIterator[tuple[str, Proxy]]:
    """The address of Kafka's port of a broker, behind a proxy."""
    listen = f"127.0.0.1:{free_port()}"
    async with (
        proxied(listen) as proxy,
        running_broker(
            data_dir, kafka_listen=listen, advertised_listeners=proxy.address, http_listen="off"
        ),
    ):
        yield f"kafka://{proxy.address}", proxy


@pytest.mark.parametrize("idempotent", [None, False])
async def test_a_lost_answer_to_a_set(tmp_path: Path, idempotent: bool | None) -> None:
    async with harmed(tmp_path) as (address, proxy):
        async with Admin(address) as admin:
            await admin.create_topic("a")

        async def send(value: bytes) -> list[SentRecord]:
            async with Producer(address, idempotent=idempotent) as producer:
                return await producer.send_many("a", [NewRecord(value), NewRecord(value)])

        await send(b"first")
        passed = proxy.links[-1].passed[Direction.TO_CLIENT]
        proxy.plan = Plan(Direction.TO_CLIENT, passed - 1, InjectedFault.RESET)
        number = len(proxy.links)
        if idempotent is None:
            assert [one.offset for one in await send(b"other")] == [2, 3]
        else:
            with pytest.raises(ConnectionFailed):
                await send(b"other")
        proxy.plan = None
        assert proxy.links[number].harmed.is_set()
        assert await values(address, "a") == [b"first"] * 2 + [b"other"] * 2
