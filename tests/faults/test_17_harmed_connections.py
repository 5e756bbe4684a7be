"""Fault 17: a reset, a close, a half-close at every byte of produce and fetch, both directions.

Nothing of a harmed connection stays behind: no descriptor, no task, no waiting request. What was
sent is either appended whole or not at all.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from horolog.client.errors import ConnectionFailed
from horolog.client.produce.producer import Producer
from horolog.protocol.api.log.fetch import FETCH, FetchRequest
from horolog.protocol.api.log.produce import PRODUCE, ProduceRequest
from horolog.protocol.api.native import frames as native
from horolog.protocol.records.messages.sets import NewRecord, records
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.proxy import Direction, InjectedFault, Plan, Proxy, proxied
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
SET = message_set(NOW, NOW + 1)


def encoded(body: ProduceRequest | FetchRequest) -> bytes:
    api = PRODUCE if isinstance(body, ProduceRequest) else FETCH
    return native.encode_request(api, api.last_version(native=True), 1, "c", body)


REQUESTS = {
    "produce": encoded(produce("a", SET)),
    "produce-and-sync": encoded(produce("a", SET, acks=-1)),
    "produce-unanswered": encoded(produce("a", SET, acks=0)),
    "fetch": encoded(fetch("a", (0, 0), partition_max_bytes=500)),
    "parked-fetch": encoded(fetch("empty", (0, 0), min_bytes=1, max_wait_ms=50_000)),
}
ANSWERED = {"produce", "produce-and-sync", "fetch"}

pytestmark = pytest.mark.both_loops


@dataclass
class Place:
    """A broker, a proxy in front of it, and a client that goes to the broker directly."""

    broker: Broker
    proxy: Proxy
    honest: Wire
    sets: range = range(1, 2)
    """How many sets there are at least, and (exclusive) at most."""

    async def ask(self, request: bytes, plan: Plan | None) -> bytes:
        """Send a request through harm, once that is done close; the answer, if it was whole."""
        self.proxy.plan = plan
        client = await Wire.open(self.proxy.address)
        client.send_bytes(request)
        await until(lambda: self.proxy.links)
        link = self.proxy.links.pop()
        answer = b""
        if plan is not None:
            await link.harmed.wait()
        if plan is None or is_answered(request, plan):
            answer = await client.frame()
        client.close()
        await link.close()
        await until(lambda: self.broker.connections() == 1)
        await until(lambda: not any(self.broker.parked().values()))
        return answer

    def appended(self, at_least: int, at_most: int) -> None:
        self.sets = range(self.sets.start + at_least, self.sets.stop + at_most)

    async def check_stored(self) -> None:
        """Sets are whole, and there are as many as there have to be."""
        asked = fetch("a", (0, 0), partition_max_bytes=1 << 24)
        got = result(await self.honest.call(asked))
        found = list(records(got.records, max_decompressed_bytes=1 << 20))
        count = len(found) // 2
        assert [record.timestamp_ms for record in found] == [NOW, NOW + 1] * count
        assert [record.offset for record in found] == list(range(2 * count))
        assert count in self.sets


def is_answered(request: bytes, plan: Plan) -> bool:
    """Whether the answer comes through all the same."""
    halved = (plan.direction, plan.harm) == (Direction.TO_SERVER, InjectedFault.HALF_CLOSE)
    return halved and plan.after_bytes == len(request) and request in ALWAYS_ANSWERED


ALWAYS_ANSWERED = [REQUESTS[name] for name in ANSWERED] + [REQUESTS["parked-fetch"]]
"""Who sends no more is answered at once, a fetch that waits too."""


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with (
        running_broker(
            tmp_path, http_listen="off", retention_ms=-1, request_deadline_ms=300
        ) as broker,
        wire(broker.addresses.native) as honest,
        proxied(broker.addresses.native) as proxy,
    ):
        for name in ("a", "empty"):
            # No index entry: the first one would open files in the middle of a test.
            await honest.call(create_topic(name, index_interval_bytes=1 << 30))
        assert result(await honest.call(produce("a", SET))).error_code == 0
        yield Place(broker, proxy, honest)


def held(place: Place) -> tuple[int, int]:
    """Descriptors and tasks of this process, the broker's and ours. Of files only the broker's: one
    that other tests of this process share opens and closes its own."""
    own, open_ = str(place.broker.settings.data_dir), 0
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            open_ += target.startswith(own) or not target.startswith("/")
    return open_, len(asyncio.all_tasks())


@asynccontextmanager
async def nothing_left(place: Place) -> AsyncIterator[None]:
    """No more descriptors and tasks afterwards than before."""
    files, tasks = held(place)
    yield
    # A loop closes what it was told to close in one of its next turns.
    await until(lambda: held(place)[0] <= files and held(place)[1] <= tasks)


def places(size: int, *, every: bool) -> list[int]:
    """After how many of `size` bytes: each, or those where something begins or ends."""
    return list(range(size + 1)) if every else sorted({0, 1, 3, 4, 5, size // 2, size - 1, size})


@pytest.mark.parametrize("name", REQUESTS)
async def test_17_harm_on_the_way_to_the_broker(place: Place, name: str) -> None:
    request = REQUESTS[name]
    await place.ask(REQUESTS["fetch"], None)
    async with nothing_left(place):
        for harm in (InjectedFault.RESET, InjectedFault.CLOSE, InjectedFault.HALF_CLOSE):
            for after_bytes in places(len(request), every=name == "produce"):
                await place.ask(request, Plan(Direction.TO_SERVER, after_bytes, harm))
                whole = name.startswith("produce") and after_bytes == len(request)
                # A reset overtakes what was sent before it, a close may become one.
                place.appended(whole and harm is InjectedFault.HALF_CLOSE, whole)
    await place.check_stored()


@pytest.mark.parametrize("name", sorted(ANSWERED))
async def test_17_harm_on_the_way_back(place: Place, name: str) -> None:
    """The broker had answered: what was asked for is done, whatever the client knows of it."""
    request = REQUESTS[name]
    answer_bytes = 4 + len(await place.ask(request, None))
    produced = name.startswith("produce")
    place.appended(produced, produced)
    async with nothing_left(place):
        for harm in (InjectedFault.RESET, InjectedFault.CLOSE, InjectedFault.HALF_CLOSE):
            for after_bytes in places(answer_bytes, every=name == "produce")[1:]:
                await place.ask(request, Plan(Direction.TO_CLIENT, after_bytes, harm))
                place.appended(produced, produced)
    await place.check_stored()


async def test_17_a_connection_that_falls_silent(place: Place) -> None:
    """The deadline of the half-sent request ends it; one that waits for its answer may wait."""
    request = REQUESTS["produce"]
    async with nothing_left(place):
        stalled = []
        for after_bytes in places(len(request), every=False)[1:]:
            place.proxy.plan = Plan(Direction.TO_SERVER, after_bytes, InjectedFault.STALL)
            client = await Wire.open(place.proxy.address)
            client.send_bytes(request)
            stalled.append(client)
            await until(lambda: len(place.proxy.links) == len(stalled))
        *halves, whole = stalled
        await whole.frame()
        place.appended(1, 1)
        assert all([await client.at_end() for client in halves])
        assert place.broker.figures.connections_dropped == {"half_sent": len(halves)}
        for client in stalled:
            client.close()
        await place.proxy.close()
        await until(lambda: place.broker.connections() == 1)
    await place.check_stored()


async def test_17_a_producer_knows_that_it_does_not_know(place: Place) -> None:
    """The client library: an unclear end is an error, never silence or a second append."""
    async with Producer(place.proxy.address):
        greeting = place.proxy.links[-1]
    for direction in Direction:
        place.proxy.plan = Plan(direction, greeting.passed[direction] + 5, InjectedFault.RESET)
        async with Producer(place.proxy.address, acks=1) as producer:
            with pytest.raises(ConnectionFailed):
                await producer.send_many("a", [NewRecord(b"x" * 500, timestamp_ms=NOW)])
            place.proxy.plan = None
            await producer.send_many("a", [NewRecord(b"x", timestamp_ms=NOW)] * 2)
    async with Producer(place.broker.addresses.native, acks=1) as producer:
        await producer.send_many("a", [NewRecord(b"x", timestamp_ms=NOW)])
