"""A fetch of windows is counted before it searches, and where it waits while it waits."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from horolog.protocol.errors import PolicyViolation
from horolog.protocol.records.layout import BATCH_MAGIC
from horolog.server.broker import Broker
from horolog.server.handlers import window_fetch
from horolog.server.handlers.window_reads import WindowPart, WindowRead
from horolog.server.requests import PendingAnswer
from horolog.server.weights import weight_of
from horolog.testing.requests import message_set, produce
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

AT_14 = 1_479_132_000_000
HOUR_MS = 3_600_000
WINDOWS = 200
LEAST_BYTES = 1_000
"""A window in a fetch takes more than this while it is searched."""

VERSION = 10


class Gate:
    """Stops the searches of windows, in front of each step."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.reached = 0
        self.fails = False

    async def passed(self) -> None:
        self.reached += 1
        await self.open.wait()
        if self.fails:
            raise OSError("the disk is gone")


@pytest.fixture
async def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    step = WindowRead.step

    async def gated(read: WindowRead, *arguments: Any, **named: Any) -> None:
        await made.passed()
        await step(read, *arguments, **named)

    monkeypatch.setattr(WindowRead, "step", gated)
    return made


def windows(number: int = WINDOWS, *, wait_ms: int = 60_000, offset: int = 0) -> FetchRequest:
    """A fetch of windows that begin an hour after the first message."""
    wanted = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    names = [f"t..{AT_14 + HOUR_MS + 2 * each}..1ms" for each in range(number)]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(name=name, partitions=wanted) for name in names],
    )


def held(broker: Broker) -> int:
    return broker._connections.held_memory.total_bytes


def at_work(broker: Broker) -> int:
    return broker._connections.held_memory._work_bytes


@pytest.fixture
async def searching(broker: Broker, client: Wire, gate: Gate) -> AsyncIterator[asyncio.Task[Any]]:
    """A fetch whose search is stopped."""
    await client.call(produce("t", message_set(AT_14)), 7)
    waiting = asyncio.create_task(client.call(windows(), VERSION))
    await until(lambda: gate.reached)
    yield waiting
    gate.open.set()
    waiting.cancel()


async def test_what_is_searched_counts(
    broker: Broker, client: Wire, gate: Gate, searching: asyncio.Task[Any]
) -> None:
    await until(lambda: at_work(broker) > WINDOWS * LEAST_BYTES)
    assert not searching.done()


async def test_nothing_counts_behind_the_answer(
    broker: Broker, other: Wire, gate: Gate, searching: asyncio.Task[Any]
) -> None:
    await until(lambda: at_work(broker))
    await other.call(produce("t", message_set(AT_14 + HOUR_MS)), 7)
    gate.open.set()
    answer = await searching
    assert len(answer.topics) == WINDOWS
    await until(lambda: held(broker) == 0)
    assert not broker.services.fetches._named_partitions


async def test_nothing_counts_behind_an_error(
    broker: Broker, gate: Gate, searching: asyncio.Task[Any]
) -> None:
    await until(lambda: at_work(broker))
    gate.fails = True
    gate.open.set()
    answer = await searching
    assert all(topic.partitions[0].error_code for topic in answer.topics)
    await until(lambda: held(broker) == 0)


async def test_nothing_counts_when_the_client_is_gone(
    broker: Broker, client: Wire, gate: Gate, searching: asyncio.Task[Any]
) -> None:
    await until(lambda: at_work(broker))
    client.reset()
    await until(lambda: held(broker) == 0)
    assert not gate.open.is_set()
    await until(lambda: broker.services.work.is_quiet)


async def test_a_client_that_ends_gets_its_answer(
    broker: Broker, client: Wire, gate: Gate, searching: asyncio.Task[Any]
) -> None:
    """Without a wait, and what is searched counts until then."""
    await until(lambda: at_work(broker))
    client.writer.write_eof()
    await asyncio.sleep(0)
    await until(lambda: at_work(broker) > WINDOWS * LEAST_BYTES)
    gate.open.set()
    async with asyncio.timeout(20):
        assert len((await searching).topics) == WINDOWS
    await until(lambda: held(broker) == 0)


async def test_a_fetch_that_waits_counts_where_it_waits(
    broker: Broker, other: Wire, gate: Gate, searching: asyncio.Task[Any]
) -> None:
    """Alone, and as what is searched again once it was woken."""
    fetches = broker.services.fetches
    await until(lambda: at_work(broker))
    gate.open.set()
    await until(lambda: len(fetches))
    await until(lambda: held(broker) == 0)
    assert fetches._named_partitions == WINDOWS * window_fetch.WINDOW_COUNTS_AS
    gate.open.clear()
    gate.reached = 0
    await other.call(produce("t", message_set(AT_14 + HOUR_MS)), 7)
    await until(lambda: gate.reached)
    await until(lambda: at_work(broker) > WINDOWS * LEAST_BYTES)
    assert not fetches._named_partitions
    gate.open.set()
    async with asyncio.timeout(20):
        answer = await searching
    assert [bool(topic.partitions[0].records) for topic in answer.topics].count(True) == 1
    await until(lambda: held(broker) == 0)


async def test_a_client_that_goes_while_its_fetch_waits(
    broker: Broker, client: Wire, gate: Gate, searching: asyncio.Task[Any]
) -> None:
    fetches = broker.services.fetches
    gate.open.set()
    await until(lambda: len(fetches))
    client.reset()
    await until(lambda: not len(fetches))
    assert not fetches._named_partitions
    await until(lambda: held(broker) == 0)


async def test_a_fetch_that_begins_to_wait_when_its_client_is_gone(
    broker: Broker, client: Wire, gate: Gate
) -> None:
    """Its wait ends, although no answer stands for it yet."""
    await client.call(produce("t", message_set(AT_14)), 7)

    def no_others(services: object, version: int, requests: object) -> list[Any]:
        raise AssertionError("there are no other topics")

    pending = window_fetch.fetch(
        broker.services, windows(), VERSION, no_others, newest_magic=BATCH_MAGIC
    )
    assert isinstance(pending, PendingAnswer)
    searching = pending.make()
    assert isinstance(searching, PendingAnswer)
    gate.open.set()
    await until(searching.ready.done)
    assert len(broker.services.fetches) == 1
    searching.ready.cancel()
    assert not len(broker.services.fetches)
    assert not broker.services.fetches._named_partitions


@pytest.mark.parametrize("end", ["answer", "error", "gone", "gone in the search"])
async def test_what_was_searched_is_free_at_once(
    broker: Broker, client: Wire, other: Wire, gate: Gate, end: str
) -> None:
    """The garbage collector is not needed for it: a broker hardly calls it."""
    await client.call(produce("t", message_set(AT_14)), 7)
    gc.collect()
    gc.disable()
    others = window_parts()
    try:
        waiting = asyncio.create_task(client.call(windows(), VERSION))
        await until(lambda: gate.reached)
        gate.fails = end == "error"
        if end != "gone in the search":
            gate.open.set()
        if end in ("answer", "gone"):
            await until(lambda: len(broker.services.fetches))
        if end == "answer":
            await other.call(produce("t", message_set(AT_14 + HOUR_MS)), 7)
        if end.startswith("gone"):
            client.reset()
            await asyncio.wait([waiting])
            waiting.exception()
        else:
            await waiting
        await until(lambda: held(broker) == 0)
        await until(lambda: broker.services.work.is_quiet)
        assert len(window_parts()) == len(others)
    finally:
        gc.enable()


def window_parts() -> list[WindowPart]:
    """Those of all brokers of the process."""
    return [each for each in gc.get_objects() if type(each) is WindowPart]


async def test_a_client_that_ends_while_its_fetch_waits(
    broker: Broker, client: Wire, gate: Gate, searching: asyncio.Task[Any]
) -> None:
    gate.open.set()
    await until(lambda: len(broker.services.fetches))
    client.writer.write_eof()
    async with asyncio.timeout(20):
        assert len((await searching).topics) == WINDOWS
    await until(lambda: held(broker) == 0)
    assert not broker.services.fetches._named_partitions


async def test_a_fetch_whose_time_is_over_is_answered(
    broker: Broker, client: Wire, gate: Gate
) -> None:
    await client.call(produce("t", message_set(AT_14)), 7)
    gate.open.set()
    async with asyncio.timeout(20):
        answer = await client.call(windows(wait_ms=50), VERSION)
    assert len(answer.topics) == WINDOWS
    await until(lambda: held(broker) == 0)


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(str(broker.addresses.kafka), kafka) as connected:
        yield connected


def taken_for(broker: Broker, request: FetchRequest) -> int:
    return weight_of(FETCH.key, VERSION, False).of_request(broker.services, request, VERSION)


@contextmanager
def limited(broker: Broker, limit_bytes: int) -> Iterator[None]:
    """Have all clients together take at most `limit_bytes`."""
    memory = broker._connections.held_memory
    before, memory._limit_bytes = memory._limit_bytes, limit_bytes
    yield
    memory._limit_bytes = before


async def test_a_fetch_without_room_waits_for_it(
    broker: Broker, client: Wire, other: Wire, gate: Gate
) -> None:
    """In front of its search; a fetch that waits for messages takes no room."""
    await client.call(produce("t", message_set(AT_14)), 7)
    request = windows(wait_ms=0)
    with limited(broker, 3 * taken_for(broker, request)):
        first = asyncio.create_task(client.call(request, VERSION))
        await until(lambda: gate.reached == 1)
        second = asyncio.create_task(other.call(request, VERSION))
        memory = broker._connections.held_memory
        await until(lambda: memory._queue)
        assert gate.reached == 1
        gate.open.set()
        async with asyncio.timeout(20):
            assert len((await first).topics) == len((await second).topics) == WINDOWS


async def test_a_fetch_that_waits_for_messages_takes_no_room(
    broker: Broker, client: Wire, other: Wire
) -> None:
    await client.call(produce("t", message_set(AT_14)), 7)
    request = windows()
    with limited(broker, 2 * taken_for(broker, request)):
        first = asyncio.create_task(client.call(request, VERSION))
        await until(lambda: len(broker.services.fetches) == 1)
        second = asyncio.create_task(other.call(request, VERSION))
        await until(lambda: len(broker.services.fetches) == 2)
        async with wire(str(broker.addresses.kafka), kafka) as third:
            await third.call(windows(wait_ms=0), VERSION)
            await third.call(produce("t", message_set(AT_14 + HOUR_MS)), 7)
        async with asyncio.timeout(20):
            for waiting in first, second:
                assert len((await waiting).topics) == WINDOWS


async def test_a_large_fetch_without_room_is_refused(
    broker: Broker, client: Wire, gate: Gate
) -> None:
    """One that was read already: its frame does not show that its topic is a window."""
    await client.call(produce("t", message_set(AT_14)), 7)
    wanted = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(14_000)
    ]
    name = f"t..{AT_14}..1ms"
    request = windows(wait_ms=0)
    request.topics = [FetchTopic(name=name, partitions=wanted)]
    limit_bytes = 2 * weight_of(FETCH.key, VERSION, False).of_items(request)
    with limited(broker, limit_bytes):
        async with asyncio.timeout(20):
            answer = await client.call(request, VERSION)
    assert answer.error_code == PolicyViolation.code
    assert gate.reached == 0
    await until(lambda: held(broker) == 0)
