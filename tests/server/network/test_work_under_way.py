"""Requests that take much: a connection has few of them worked on, counted before that begins."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.broker.api_versions import ApiVersionsRequest
from horolog.protocol.api.groups.heartbeat import HEARTBEAT
from horolog.protocol.api.log.count_by_time import COUNT_BY_TIME, CountByTimeRequest
from horolog.protocol.api.log.describe_log import (
    DESCRIBE_LOG,
    DescribeLogRequest,
    DescribeLogResponse,
    DescribeLogTopic,
)
from horolog.protocol.api.log.list_offsets import LATEST
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.limits import LENGTH_BYTES, MAX_INTERVALS
from horolog.server import weights
from horolog.server.broker import Broker
from horolog.server.handlers.base import Services
from horolog.server.network import connection
from horolog.server.network.held_memory import FREE_BYTES
from horolog.server.network.sending import MOST_LARGE
from horolog.server.requests import Call, PendingAnswer
from horolog.server.weights import weight_of
from horolog.testing.broker import running_broker
from horolog.testing.requests import (
    create_topic,
    list_offsets,
    message_set,
    produce,
    produce_to,
)
from horolog.testing.waiting import until
from horolog.testing.wire import CLIENT_ID, Wire, wire

LARGE = CountByTimeRequest(topic="a", partition=0, from_ms=0, until_ms=MAX_INTERVALS, every_ms=1)
SMALL = CountByTimeRequest(topic="a", partition=0, from_ms=0, until_ms=1)
LARGE_FRAME = native.encode_request(COUNT_BY_TIME, 1, 1, CLIENT_ID, LARGE)[LENGTH_BYTES:]
LARGE_BYTES = len(LARGE_FRAME) + weights.BASE_BYTES + 64 * MAX_INTERVALS
"""What a count of so many intervals is taken for."""


class Begun:
    """Stands for the handler of count-by-time: its work is done when a test says so."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[Any]] = []

    def __call__(self, services: Services, request: Any, call: Call) -> PendingAnswer:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return PendingAnswer(future, lambda: DescribeLogResponse(topics=[]))

    def __len__(self) -> int:
        return len(self.futures)

    def finish(self, number: int = 0) -> None:
        """Have the work done of one of those for which it is not."""
        [each for each in self.futures if not each.done()][number].set_result(None)

    def end(self) -> None:
        """Leave nothing for the broker to wait for when it stops."""
        for each in self.futures:
            each.cancel()


def held(broker: Broker) -> int:
    return broker._connections.held_memory.total_bytes


async def turns(client: Wire) -> None:
    """Let the broker do whatever it is going to: another client is answered."""
    for _ in range(5):
        await client.call(MetadataRequest(topics=[]))


@contextmanager
def slowed(broker: Broker, key: int = COUNT_BY_TIME.key) -> Iterator[Begun]:
    begun = Begun()
    usual = broker.dispatcher._handlers
    broker.dispatcher._handlers = {**usual, key: begun}
    try:
        yield begun
    finally:
        broker.dispatcher._handlers = usual
        begun.end()


@pytest.fixture
def begun(broker: Broker) -> Iterator[Begun]:
    with slowed(broker) as made:
        yield made


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(broker.addresses.native) as connected:
        yield connected


async def answered(client: Wire) -> int:
    head, _ = native.open_response(await client.frame())
    return head.correlation_id


async def test_five_large_requests_of_a_connection_are_worked_on(
    client: Wire, other: Wire, broker: Broker, begun: Begun
) -> None:
    """The others are answered behind them, in their order, small ones too."""
    sent = client.send_together(*[LARGE] * 8, SMALL, LARGE)
    await until(lambda: len(begun) == MOST_LARGE)
    await turns(other)
    assert len(begun) == MOST_LARGE
    assert held(broker) == MOST_LARGE * LARGE_BYTES
    begun.finish()
    assert await answered(client) == sent[0]
    await until(lambda: len(begun) == MOST_LARGE + 1)
    while len(begun) < len(sent):
        begun.finish()
        await turns(other)
    for future in begun.futures:
        if not future.done():
            future.set_result(None)
    assert [await answered(client) for _ in sent[1:]] == sent[1:]
    await until(lambda: held(broker) == 0)


async def test_small_requests_are_taken_together(
    client: Wire, broker: Broker, begun: Begun
) -> None:
    client.send_together(*[SMALL] * 100)
    await until(lambda: len(begun) == 100)
    assert FREE_BYTES < held(broker) < 100 * FREE_BYTES


async def test_large_frames_are_counted_before_they_are_read(
    client: Wire, other: Wire, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = native.decode_body

    def decode_body(*arguments: Any) -> Any:
        decoded.append(len(started))
        return decode(*arguments)

    large = DescribeLogRequest(topics=[DescribeLogTopic(name="a", partitions=list(range(5_000)))])
    monkeypatch.setattr(native, "decode_body", decode_body)
    with slowed(broker, DESCRIBE_LOG.key) as started:
        client.send_together(*[large] * 9)
        await until(lambda: len(started) == MOST_LARGE)
        await turns(other)
        assert sum(1 for each in decoded if each < MOST_LARGE) == MOST_LARGE
        assert not any(each > MOST_LARGE for each in decoded)
        assert held(broker) > MOST_LARGE * 5_000 * 8


async def test_the_rest_stays_in_the_socket(
    client: Wire, other: Wire, broker: Broker, begun: Begun
) -> None:
    begin = broker.figures.received_bytes
    frame = native.encode_request(COUNT_BY_TIME, 1, 1, "c" * 200, LARGE)
    client.send_bytes(frame * 100_000)
    await until(lambda: len(begun) == MOST_LARGE)
    received = broker.figures.received_bytes
    await turns(other)
    assert broker.figures.received_bytes - received < FREE_BYTES
    assert received - begin < 4 << 20
    client.writer.transport.abort()


@pytest.mark.both_loops
async def test_the_work_for_a_connection_that_is_closed_ends(
    client: Wire, broker: Broker, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing is read from it, as there is too much to do for it already."""
    monkeypatch.setattr(connection, "RESET_LOOK_SECONDS", 0)
    client.send_together(*[LARGE] * 20)
    await until(lambda: len(begun) == MOST_LARGE)
    client.reset()
    await until(lambda: all(each.cancelled() for each in begun.futures))
    assert len(begun) == MOST_LARGE
    assert held(broker) == 0


async def test_what_is_done_and_waits_behind_others_is_what_the_client_left(
    client: Wire, other: Wire, broker: Broker, begun: Begun
) -> None:
    """Others do not wait for it as for work: the client may let it wait for as long as it likes."""
    client.send_together(*[LARGE] * 3)
    await until(lambda: len(begun) == 3)
    memory = broker._connections.held_memory
    assert memory._work_bytes == 3 * LARGE_BYTES
    begun.finish(1)
    begun.finish(1)
    await until(lambda: memory._work_bytes == LARGE_BYTES)
    assert held(broker) == 3 * LARGE_BYTES


@pytest.fixture
async def narrow(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker in which there is room for the work on two counts."""
    async with running_broker(
        tmp_path, http_listen="off", max_buffered_bytes=4 * LARGE_BYTES + 100_000
    ) as started:
        yield started


@pytest.fixture
def narrow_begun(narrow: Broker) -> Iterator[Begun]:
    with slowed(narrow) as made:
        yield made


async def turns_of(address: str) -> None:
    async with wire(address) as other:
        await turns(other)


async def test_a_request_waits_until_there_is_room_for_it(
    narrow: Broker, narrow_begun: Begun
) -> None:
    """Nobody is closed for it, and small requests pass."""
    begun, address = narrow_begun, narrow.addresses.native
    async with wire(address) as first, wire(address) as second, wire(address) as third:
        (number,) = first.send_together(LARGE)
        second.send_together(LARGE)
        await until(lambda: len(begun) == 2)
        waiting = third.send_together(LARGE, MetadataRequest(topics=[]))
        async with wire(address) as other:
            await other.call(create_topic("a"))
            await other.call(list_offsets("a", (0, LATEST)))
            await turns(other)
        assert len(begun) == 2
        assert held(narrow) == 2 * LARGE_BYTES
        begun.finish()
        assert await answered(first) == number
        await until(lambda: len(begun) == 3)
        begun.finish(1)
        assert [await answered(third) for _ in waiting] == waiting
    assert narrow.figures.connections_dropped == {}


async def test_who_waits_for_room_and_goes_holds_up_nobody(
    narrow: Broker, narrow_begun: Begun
) -> None:
    begun, address = narrow_begun, narrow.addresses.native
    async with wire(address) as first, wire(address) as gone, wire(address) as last:
        first.send_together(LARGE, LARGE)
        await until(lambda: len(begun) == 2)
        gone.send_together(LARGE)
        await turns_of(address)
        last.send_together(LARGE)
        await turns_of(address)
        gone.reset()
        begun.finish()
        await until(lambda: len(begun) > 2)
        begun.finish()
        await until(lambda: len(begun) == 4)


async def test_produce_requests_that_wait_count_by_their_results(
    client: Wire, broker: Broker
) -> None:
    """Most of which are refusals here. They wait together, although each takes turns alone."""
    await client.call(produce("a", message_set(1)))
    broker.directory.log("a", 0).hold_high_watermark(1)
    sets = [(number, message_set(1) if number == 0 else None) for number in range(200)]
    sent = client.send_together(*[produce_to("a", sets, acks=-1)] * 3)
    await until(lambda: len(broker.services.produces) == 3)
    await until(lambda: held(broker) > 3 * 200 * 400)
    assert held(broker) < 3 * 200 * 1_000
    broker.directory.log("a", 0).hold_high_watermark(None)
    assert [(await client.receive())[0] for _ in sent] == sent


async def test_the_metric_shows_what_is_worked_on(
    client: Wire, broker: Broker, begun: Begun
) -> None:
    client.send_together(LARGE)
    await until(lambda: len(begun) == 1)
    assert f"horolog_buffered_bytes {LARGE_BYTES}" in broker.metrics_text().decode()


async def test_a_request_that_takes_more_than_its_frame_needs_room_but_no_turn(
    broker: Broker, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether another large request begins in the same pass of the event loop decides nothing."""
    memory, check = broker._connections.held_memory, broker.dispatcher._check_room

    checks = 0

    def checked(exchange: Any, request: Any, admit: Any) -> None:
        nonlocal checks
        checks += 1
        memory._turn_is_taken = True
        exchange.work_bytes = 0
        check(exchange, request, admit)

    monkeypatch.setattr(broker.dispatcher, "_check_room", checked)
    await client.call(create_topic("a"))
    windows = [MetadataTopic(name=f"a..{10**12 + number}..1h") for number in range(10_000)]
    answer = await client.call(MetadataRequest(topics=windows))
    assert [topic.error_code for topic in answer.topics] == [0] * len(windows)
    assert checks == 1


def test_heartbeats_are_small() -> None:
    """They pass where there is no room for work: members would be lost else."""
    assert weight_of(HEARTBEAT.key, 0, False).of_frame(1000) < FREE_BYTES


@pytest.mark.parametrize(("step_s", "passes"), [(0.0, 1), (1.0, 9)])
async def test_many_requests_of_a_connection_are_spread_over_passes_of_the_loop(
    broker: Broker, client: Wire, monkeypatch: pytest.MonkeyPatch, step_s: float, passes: int
) -> None:
    """A pass ends after `PASS_SECONDS` of processor time, in between two requests."""
    moments = itertools.count()
    monkeypatch.setattr(connection, "thread_time", lambda: next(moments) * step_s)
    handled: list[int] = []
    handle_frames = connection.Connection._handle_frames

    def noted(one: connection.Connection, left: int) -> None:
        handled.append(len(one._frames))
        handle_frames(one, left)

    monkeypatch.setattr(connection.Connection, "_handle_frames", noted)
    sent = client.send_together(*[ApiVersionsRequest(), MetadataRequest(topics=[])] * 5)
    assert [await answered(client) for _ in sent] == sent
    assert len(handled) == passes
