"""Connections that are idle, and those of one address: both ports of the broker's protocols."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from horolog.config.address import split_address
from horolog.config.broker import broker_settings
from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.server.broker import Broker
from horolog.server.network.connections import ConnectionSlots
from horolog.server.network.deadline import LAST_CHANCE_SECONDS, IdleLimit
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

pytestmark = pytest.mark.both_loops

NOW = ManualClock().now_ms()
IDLE_SECONDS = 1.0
ENCODINGS = pytest.mark.parametrize("encoding", [native, kafka], ids=["native", "kafka"])


@asynccontextmanager
async def broker_with(
    folder: Path, log: io.StringIO | None = None, **settings: object
) -> AsyncIterator[Broker]:
    async with running_broker(
        folder,
        clock=None,
        files=None,
        log_stream=log,
        log_format="json",
        http_listen="off",
        kafka_listen="127.0.0.1:0",
        retention_ms=-1,
        **settings,
    ) as started:
        yield started


def address_of(broker: Broker, encoding: Encoding) -> str:
    address = broker.addresses.native if encoding is native else broker.addresses.kafka
    assert address is not None
    return address


@ENCODINGS
async def test_a_silent_connection_is_closed_and_one_in_use_is_not(
    tmp_path: Path, encoding: Encoding
) -> None:
    log, loop = io.StringIO(), asyncio.get_running_loop()
    async with broker_with(tmp_path, log, connections_max_idle_ms=1000) as broker:
        address = address_of(broker, encoding)
        async with (
            wire(address, encoding) as silent,
            wire(address, encoding) as once,
            wire(address, encoding) as used,
        ):
            await once.call(MetadataRequest(), 0)
            ended = asyncio.ensure_future(asyncio.gather(silent.at_end(), once.at_end()))
            started = loop.time()
            while not ended.done() or loop.time() < started + 2 * IDLE_SECONDS:
                await used.call(MetadataRequest(), 0)
                await asyncio.sleep(0.01)
            assert all(await ended)
        assert broker.figures.connections_dropped == {"idle": 2}
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    idle = [line for line in lines if line["event"] == "connection_idle"]
    assert [line["level"] for line in idle] == ["info"] * 2
    assert all(line["idle_seconds"] >= IDLE_SECONDS for line in idle)


def last_used(broker: Broker, client: Wire) -> float | None:
    """From when on a connection is idle."""
    peer = "{}:{}".format(*client.writer.get_extra_info("sockname"))
    (connection,) = (each for each in broker._connections._open if each.peer == peer)
    return connection._idle_limit._last_used()


async def test_what_waits_for_an_answer_is_not_idle(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with (
        broker_with(tmp_path, connections_max_idle_ms=1000) as broker,
        wire(broker.addresses.native) as reader,
        wire(broker.addresses.native) as writer,
        wire(broker.addresses.native) as silent,
    ):
        await writer.call(create_topic("a"))
        log = broker.directory.log("a", 0)
        log.hold_high_watermark(0)
        reader.send(FETCH, 3, fetch("a", (0, 0), max_wait_ms=50_000, min_bytes=1))
        writer.send(PRODUCE, 2, produce("a", message_set(NOW), acks=-1))
        started = loop.time()
        assert await silent.at_end()
        await asyncio.sleep(started + 1.5 * IDLE_SECONDS - loop.time())
        async with wire(broker.addresses.native) as fresh:
            await fresh.call(MetadataRequest())
            log.hold_high_watermark(None)
            assert result((await writer.receive())[1]).base_offset == 0
            assert result((await reader.receive())[1]).high_watermark == 1
            idle_from = [last_used(broker, each) for each in (fresh, reader, writer)]
            assert idle_from[0] is not None
            assert idle_from[0] == min(filter(None, idle_from)), "it is counted from the answer on"
            for each in (fresh, reader, writer):
                assert await each.at_end()
    assert broker.figures.connections_dropped == {"idle": 4}


async def test_half_a_request_is_not_idle(tmp_path: Path) -> None:
    """It has a deadline of its own."""
    async with (
        broker_with(tmp_path, connections_max_idle_ms=1000, request_deadline_ms=1500) as broker,
        wire(broker.addresses.native) as client,
    ):
        client.send_bytes(b"\0\0\0")
        assert await client.at_end()
        assert broker.figures.connections_dropped == {"half_sent": 1}


@pytest.mark.parametrize(("idle_ms", "seconds"), [(-1, None), (600_000, 600)])
async def test_the_limit_of_a_connection_is_the_setting_s(
    tmp_path: Path, idle_ms: int, seconds: int | None
) -> None:
    loop = asyncio.get_running_loop()
    async with (
        broker_with(tmp_path, connections_max_idle_ms=idle_ms) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(MetadataRequest())
        (connection,) = broker._connections._open
        timer = connection._idle_limit._timer
        if seconds is None:
            assert timer is None
        else:
            assert timer is not None
            assert timer.when() <= loop.time() + seconds + 1  # both are rounded
        assert not broker.figures.connections_dropped


def test_the_settings() -> None:
    settings = broker_settings()
    assert settings.connections_max_idle_ms == 600_000
    assert settings.max_connections_per_ip == 0
    assert broker_settings({"connections.max.idle.ms": "-5"}).connections_max_idle_ms == -1


async def test_a_limit_that_is_met_late_gives_a_last_chance() -> None:
    """A process that was stopped calls its timers before it reads what has come meanwhile."""
    loop = asyncio.get_running_loop()
    long_ago = loop.time() - 100
    used: list[float | None] = [long_ago]
    looked, expired = asyncio.Event(), asyncio.Event()

    def last_used() -> float | None:
        if used[0] is None:
            looked.set()
        return used[0]

    def come() -> None:
        used[0] = None  # In progress, for as long as this test says so.

    limit = IdleLimit(loop, 0.01, last_used, expired.set)
    limit.start()
    loop.call_later(LAST_CHANCE_SECONDS / 2, come)
    await until(lambda: looked.is_set() or expired.is_set())
    await asyncio.sleep(LAST_CHANCE_SECONDS)
    assert not expired.is_set()
    used[0] = long_ago
    await expired.wait()
    limit.stop()


@pytest.mark.parametrize(
    ("capacity", "per_ip", "admitted"), [(9, 0, 4), (1, 0, 1), (9, 3, 3), (9, 100, 9)]
)
def test_places_of_one_address(capacity: int, per_ip: int, admitted: int) -> None:
    places = ConnectionSlots(capacity, per_ip)
    for _ in range(admitted):
        assert places.refusal("10.0.0.1") is None
        places.take("10.0.0.1")
    reason = "max_connections" if admitted == capacity else "max_connections_per_ip"
    assert places.refusal("10.0.0.1") == reason
    assert (places.refusal("10.0.0.2") is None) == (admitted < capacity)
    places.give_back("10.0.0.1")
    assert places.refusal("10.0.0.1") is None


async def test_silent_clients_of_one_address_leave_room_for_others(tmp_path: Path) -> None:
    log = io.StringIO()
    async with (
        broker_with(tmp_path, log, max_connections=20) as broker,
        AsyncExitStack() as clients,
    ):

        async def connect(encoding: Encoding, host: str) -> Wire:
            reader, writer = await asyncio.open_connection(
                *split_address(address_of(broker, encoding)), local_addr=(host, 0)
            )
            clients.callback(writer.close)
            return Wire(reader, writer, encoding)

        silent = [await connect(kafka if n % 2 else native, "127.0.0.1") for n in range(30)]
        await until(lambda: sum(broker.figures.connections_refused.values()) == 20)
        assert broker.figures.connections_refused == {"max_connections_per_ip": 20}
        assert broker.connections() == 10
        for encoding in (native, kafka):
            other = await connect(encoding, "127.0.0.2")
            await other.call(MetadataRequest(), 0)
        silent[0].close()
        await until(lambda: broker.connections() == 11)
        again = await connect(kafka, "127.0.0.1")
        await again.call(MetadataRequest(), 0)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    refused = [line for line in lines if line["event"] == "connection_refused"]
    assert {line["address"] for line in refused} == {"127.0.0.1"}
    assert {line["max_connections_per_ip"] for line in refused} == {10}


async def test_the_same_address_by_ipv4_and_by_ipv6s_form_of_it(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path,
        listen="[::]:0",
        allow_plaintext=True,
        http_listen="off",
        kafka_listen="127.0.0.1:0",
        max_connections_per_ip=2,
    ) as broker:
        port = split_address(broker.addresses.native)[1]
        assert broker.addresses.kafka is not None
        async with wire(f"127.0.0.1:{port}") as one, wire(broker.addresses.kafka, kafka) as two:
            await one.call(MetadataRequest())
            await two.call(MetadataRequest(), 0)
            async with wire(f"127.0.0.1:{port}") as three, wire(f"[::1]:{port}") as other:
                assert await three.at_end()
                await other.call(MetadataRequest())
