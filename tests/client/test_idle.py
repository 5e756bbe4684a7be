"""A broker closes idle connections: no client of it has an error for that, or loses a message."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

import pytest

from horolog import Admin, Consumer, Producer, blocking
from horolog.client.cluster import connection as connections
from horolog.client.cluster.link import ClientLink
from horolog.client.cluster.route import REQUESTS
from horolog.server.broker import Broker
from horolog.testing.broker import BrokerThread
from horolog.testing.waiting import until

NOW = 1_479_144_272_509

CLOSING_TURNS = 10
"""A connection that does not count any more closes its socket in the next turn of the loop, and the
client reads that in the next turn of its own."""

Wait = Callable[[BrokerThread], Awaitable[None]]


@pytest.fixture(autouse=True)
def unused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was not used while the broker closed it has been unused for long."""
    monkeypatch.setattr(connections, "_UNUSED_S", -1.0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path, {"kafka.listen": "127.0.0.1:0"}) as started:
        yield started


@pytest.fixture(params=["native", "kafka"])
def address(request: pytest.FixtureRequest, broker: BrokerThread) -> str:
    return broker.address if request.param == "native" else f"kafka://{broker.kafka_address}"


async def while_the_loop_runs(broker: BrokerThread) -> None:
    """The client reads that the broker closes."""
    await until(lambda: all_closed(broker))
    broker.in_loop(some_turns)
    for _ in range(CLOSING_TURNS):
        await asyncio.sleep(0)


async def while_the_loop_is_blocked(broker: BrokerThread) -> None:
    """The client has not read it when it is used next."""
    wait_for_the_closing(broker)


def wait_for_the_closing(broker: BrokerThread) -> None:
    while not all_closed(broker):
        time.sleep(0.01)  # This thread is to do nothing else.
    broker.in_loop(some_turns)


async def some_turns(_: Broker) -> None:
    for _turn in range(CLOSING_TURNS):
        await asyncio.sleep(0)


def all_closed(broker: BrokerThread) -> bool:
    """Close what is idle, as `connections.max.idle.ms` does later; whether nothing is open."""

    def expire() -> None:
        for connection in list(broker._broker._connections._open):
            if connection._idle_since() is not None:
                connection._was_idle()

    broker._loop.call_soon_threadsafe(expire)
    return not broker._broker.connections()


@pytest.fixture(params=[while_the_loop_runs, while_the_loop_is_blocked], ids=["runs", "blocked"])
def wait(request: pytest.FixtureRequest) -> Wait:
    made: Wait = request.param
    return made


@pytest.mark.both_loops
async def test_producers(broker: BrokerThread, address: str, wait: Wait) -> None:
    every: tuple[Literal["all", 0, 1], ...] = ("all", 1, 0)
    async with AsyncExitStack() as stack:
        # Nothing is tried again: an error would be seen.
        producers = [
            await stack.enter_async_context(Producer(address, acks=acks, delivery_timeout_ms=0))
            for acks in every
        ]
        for value in (b"one", b"two", b"three"):
            if value != b"one":
                await wait(broker)
            for acks, producer in zip(every, producers, strict=True):
                await producer.send(f"acks-{acks}", value)
                await producer.flush()
    async with Consumer(broker.address) as consumer:
        for acks in every:
            consumer.assign(f"acks-{acks}", 0, offset=0)
            read: list[bytes | None] = []
            while len(read) < 3:
                read += [record.value for record in await consumer.fetch()]
            assert read == [b"one", b"two", b"three"]
            consumer.unassign(f"acks-{acks}", 0)


async def test_a_consumer_and_an_admin(broker: BrokerThread, address: str, wait: Wait) -> None:
    async with Producer(broker.address) as producer:
        for number in range(3):
            await producer.send("a", b"%d" % number, timestamp_ms=NOW + number)
    async with (
        Consumer(address, name="job", retry_timeout_ms=0) as consumer,
        Admin(address) as admin,
    ):
        consumer.assign("a", 0, offset=0)
        assert len(await consumer.fetch()) == 3
        await admin.create_topic("b")
        await wait(broker)
        await consumer.commit()
        await admin.create_topic("c")
        await wait(broker)
        await consumer.seek_to_time(timestamp_ms=NOW + 1)
        assert set(await admin.list_topics()) == {"a", "b", "c"}
        await wait(broker)
        assert [record.value for record in await consumer.fetch()] == [b"1", b"2"]
        await admin.delete_topic("b")


def test_blocking_clients(broker: BrokerThread, address: str) -> None:
    with (
        blocking.Producer(address, delivery_timeout_ms=0) as producer,
        blocking.Admin(address) as admin,
        blocking.Consumer(address, retry_timeout_ms=0) as consumer,
    ):
        producer.send("a", b"one")
        consumer.assign("a", 0, offset=0)
        for number in range(2):
            wait_for_the_closing(broker)
            producer.send("a", b"more")
            wait_for_the_closing(broker)
            admin.create_topic(f"b{number}")
            consumer.seek("a", 0, 0)
            wait_for_the_closing(broker)
            assert len(consumer.fetch()) == 2 + number


async def test_a_connection_is_replaced_before_the_broker_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no request crosses the closing on its way."""
    with BrokerThread(tmp_path) as broker:
        async with Admin(broker.address) as admin:
            link: ClientLink = admin._cluster._links[broker.address, REQUESTS]
            await admin.list_topics()
            before = link._connection
            for unused_s in (3600.0, -1.0):
                monkeypatch.setattr(connections, "_UNUSED_S", unused_s)
                await admin.list_topics()
                assert link._connection is before, "the broker has not closed it"
            monkeypatch.setattr(connections, "_MAX_IDLE_S", -1.0)
            await admin.list_topics()
            assert link._connection is not before
