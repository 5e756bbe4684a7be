"""Members of our own library that leave their group in several tasks at once, or while a rebalance
takes partitions from them: `on_revoked` is called once with each partition."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from horolog import Admin, ClientClosed, Consumer, Producer, blocking
from horolog.server.broker import Broker
from horolog.testing.broker import BrokerThread, running_broker

TOPIC, GROUP = "clicks", "team"
PARTITIONS = 4
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 20, "session_timeout_ms": 30_000}
DEADLINE_S = 30.0


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, http_listen="off", kafka_listen="127.0.0.1:0") as broker:
        async with Admin(broker.addresses.native) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)
        async with Producer(broker.addresses.native) as producer:
            for number in range(PARTITIONS):
                await producer.send(TOPIC, b"%d" % number, partition=number)
        yield broker


@pytest.fixture(params=["native", "kafka"])
def address(broker: Broker, request: pytest.FixtureRequest) -> str:
    native, kafka = broker.addresses.native, broker.addresses.kafka
    return native if request.param == "native" else f"kafka://{kafka}"


class Held:
    """An `on_revoked` that begins, and goes on when it may."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, int]]] = []
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def __call__(self, keys: list[tuple[str, int]]) -> None:
        self.calls.append(keys)
        self.begun.set()
        await self.may_end.wait()

    @property
    def revoked(self) -> list[tuple[str, int]]:
        return sorted(key for keys in self.calls for key in keys)


ALL = [(TOPIC, number) for number in range(PARTITIONS)]


async def read_all(consumer: Consumer) -> None:
    found = 0
    async with asyncio.timeout(DEADLINE_S):
        while found < PARTITIONS:
            found += len(await consumer.fetch(max_wait_ms=100))


async def committed(address: str) -> list[int | None]:
    async with Admin(address) as admin:
        positions = [await admin.position(GROUP, *key) for key in ALL]
    return [None if one is None else one.offset for one in positions]


async def members(address: str) -> int:
    async with Admin(address) as admin:
        return len((await admin.describe_group(GROUP)).members)


CALLS: dict[str, tuple[Callable[[Consumer], Any], Callable[[Consumer], Any]]] = {
    "unsubscribe twice": (Consumer.unsubscribe, Consumer.unsubscribe),
    "close twice": (Consumer.close, Consumer.close),
    "close beside unsubscribe": (Consumer.unsubscribe, Consumer.close),
    "unsubscribe beside close": (Consumer.close, Consumer.unsubscribe),
}


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("cancelled", [False, True])
async def test_two_tasks_leave_once(
    broker: Broker, address: str, calls: str, cancelled: bool
) -> None:
    """Both return when the consumer has left, also if the first one is cancelled."""
    held = Held()
    consumer = Consumer(address)
    consumer.subscribe(TOPIC, group=GROUP, on_revoked=held, **QUICK)
    await read_all(consumer)
    first, second = CALLS[calls]
    leaving = asyncio.ensure_future(first(consumer))
    await held.begun.wait()
    other = asyncio.ensure_future(second(consumer))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not other.done()
    leaving.cancel() if cancelled else held.may_end.set()
    async with asyncio.timeout(DEADLINE_S):
        ended = await asyncio.gather(leaving, other, return_exceptions=True)
    assert [type(result) for result in ended] == [
        asyncio.CancelledError if cancelled else type(None),
        type(None),
    ]
    assert held.calls == [ALL]
    assert await committed(address) == [1] * PARTITIONS
    assert await members(broker.addresses.native) == 0
    await consumer.close()
    assert held.calls == [ALL]


async def test_a_second_leaver_does_not_end_the_next_subscription(
    broker: Broker, address: str
) -> None:
    held = Held()
    async with Consumer(address) as consumer:
        consumer.subscribe(TOPIC, group=GROUP, on_revoked=held, **QUICK)
        await read_all(consumer)

        async def again() -> None:
            await consumer.unsubscribe()
            consumer.subscribe(TOPIC, group="others", **QUICK)

        leaving = asyncio.ensure_future(again())
        await held.begun.wait()
        other = asyncio.ensure_future(consumer.unsubscribe())
        await asyncio.sleep(0)
        held.may_end.set()
        await asyncio.gather(leaving, other)
        await read_all(consumer)
        assert sorted(consumer.assignment) == ALL


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("leave", [Consumer.unsubscribe, Consumer.close])
async def test_a_consumer_leaves_while_a_fetch_gives_partitions_back(
    broker: Broker, address: str, assignor: str, leave: Callable[[Consumer], Any]
) -> None:
    """It waits for the callback of the rebalance, and the positions are committed."""
    held, stop = Held(), list[bool]()
    options: dict[str, Any] = {"group": GROUP, "assignor": assignor, **QUICK}

    async def fetch(consumer: Consumer) -> None:
        while not stop and consumer._group is not None:
            await consumer.fetch(max_wait_ms=20)

    consumer = Consumer(address)
    consumer.subscribe(TOPIC, on_revoked=held, **options)
    await read_all(consumer)
    async with Consumer(address) as other:
        other.subscribe(TOPIC, **options)
        fetching = [asyncio.ensure_future(fetch(one)) for one in (consumer, other)]
        await held.begun.wait()
        leaving = asyncio.ensure_future(leave(consumer))
        for _ in range(10):
            await asyncio.sleep(0)
        held.may_end.set()
        async with asyncio.timeout(DEADLINE_S):
            await leaving
            while len(other.assignment) < PARTITIONS:  # noqa: ASYNC110 - of another task
                await asyncio.sleep(0.01)
        assert held.revoked == ALL
        assert await committed(address) == [1] * PARTITIONS
        stop.append(True)
        for error in await asyncio.gather(*fetching, return_exceptions=True):
            assert error is None or isinstance(error, ClientClosed), error
    await consumer.close()


@pytest.mark.parametrize("where", ["leaving", "rebalance"])
async def test_on_revoked_may_unsubscribe(broker: Broker, address: str, where: str) -> None:
    calls: list[list[tuple[str, int]]] = []

    async def revoked(keys: list[tuple[str, int]]) -> None:
        calls.append(keys)
        await consumer.unsubscribe()

    async with Consumer(address) as consumer, Consumer(address) as other:
        consumer.subscribe(TOPIC, group=GROUP, on_revoked=revoked, **QUICK)
        await read_all(consumer)
        async with asyncio.timeout(DEADLINE_S):
            if where == "leaving":
                await consumer.unsubscribe()
            else:
                other.subscribe(TOPIC, group=GROUP, **QUICK)
                while len(other.assignment) < PARTITIONS:
                    await other.fetch(max_wait_ms=0)
                    if not calls:
                        await consumer.fetch(max_wait_ms=0)
        assert calls == [ALL]
        assert consumer.assignment == []
        assert await committed(address) == [1] * PARTITIONS


async def test_on_revoked_may_unsubscribe_while_another_task_does(
    broker: Broker, address: str
) -> None:
    calls: list[list[tuple[str, int]]] = []
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def revoked(keys: list[tuple[str, int]]) -> None:
        calls.append(keys)
        begun.set()
        await may_end.wait()
        await consumer.unsubscribe()

    async def fetch() -> None:
        while not calls:
            await consumer.fetch(max_wait_ms=20)

    async with Consumer(address) as consumer, Consumer(address) as other:
        consumer.subscribe(TOPIC, group=GROUP, on_revoked=revoked, **QUICK)
        await read_all(consumer)
        other.subscribe(TOPIC, group=GROUP, **QUICK)
        async with asyncio.timeout(DEADLINE_S):
            fetching = asyncio.ensure_future(fetch())
            await other.fetch(max_wait_ms=0)
            await begun.wait()
            leaving = asyncio.ensure_future(consumer.unsubscribe())
            await asyncio.sleep(0)
            may_end.set()
            await asyncio.gather(fetching, leaving)
        assert calls == [ALL]
        assert await committed(address) == [1] * PARTITIONS


def test_on_revoked_of_a_blocking_consumer_may_unsubscribe(tmp_path: Path) -> None:
    """The callback runs in a thread, and its call in another task."""
    with BrokerThread(tmp_path, {}) as broker:
        with blocking.Producer(broker.address) as producer:
            producer.send(TOPIC, b"0")
        calls: list[list[tuple[str, int]]] = []
        with blocking.Consumer(broker.address) as consumer:

            def revoked(keys: list[tuple[str, int]]) -> None:
                calls.append(keys)
                consumer.unsubscribe()

            consumer.subscribe(TOPIC, group=GROUP, on_revoked=revoked, **QUICK)
            assert next(consumer).offset == 0
            consumer.unsubscribe()
        assert calls == [[(TOPIC, 0)]]
