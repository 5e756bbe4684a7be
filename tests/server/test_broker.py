"""Starting and stopping: order, what is kept, what is refused; the HTTP port."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from horolog.clock import SystemClock
from horolog.config.broker import broker_settings
from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import InvalidTimestamp, StorageError
from horolog.protocol.records.messages.sets import records
from horolog.server.broker import Broker
from horolog.server.metrics.figures import Figures
from horolog.server.network.listener import CannotListen, address_of, bind
from horolog.server.web.port import HttpPort
from horolog.server.web.server import HttpServer, HttpState
from horolog.storage.events import ignore_events
from horolog.testing.broker import plain_port, running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.files import QuickFiles
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
MARKER = ".kafka_cleanshutdown"

pytestmark = pytest.mark.both_loops


async def stored(client: Wire, topic: str) -> list[int]:
    got = result(await client.call(fetch(topic, (0, 0))))
    found = records(got.records, max_decompressed_bytes=1 << 20)
    return [record.timestamp_ms for record in found]


async def test_a_clean_stop_and_start_keeps_everything(tmp_path: Path) -> None:
    """tc134."""
    clock = ManualClock()
    async with (
        running_broker(tmp_path, clock) as broker,
        wire(broker.addresses.native) as client,
    ):
        assert not (tmp_path / MARKER).exists()
        await client.call(create_topic("a", retention_ms=-1))
        for time in (5, 7, 6):
            await client.call(produce("a", message_set(time)))
    assert (tmp_path / MARKER).exists()
    async with (
        running_broker(tmp_path, clock) as broker,
        wire(broker.addresses.native) as client,
    ):
        assert broker.directory.topics()["a"].overrides == {"retention.ms": "-1"}
        assert await stored(client, "a") == [5, 7, 6]
        assert result(await client.call(produce("a", message_set(8)))).base_offset == 3


async def test_stopping_answers_what_was_received(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await Wire.open(broker.addresses.native)
        await client.call(create_topic("a"))
        for _ in range(100):
            client.send(PRODUCE, 2, produce("a", message_set(NOW), acks=-1))
        client.send(FETCH, 3, fetch("a", (0, 100), max_wait_ms=50_000, min_bytes=1))
        await client.writer.drain()
        await until(lambda: broker.directory.log("a", 0).log_end_offset == 100)
    for number in range(100):
        _, response = await client.receive()
        assert result(response).base_offset == number
    _, response = await client.receive()
    assert result(response).records == b""
    assert await client.at_end()
    client.close()


async def test_stopping_does_not_wait_for_a_client_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.server.broker.STOP_SECONDS", 0.2)
    async with running_broker(tmp_path) as broker:
        client = await Wire.open(broker.addresses.native, limit=1)
        await client.call(create_topic("a"))
        await client.call(produce("a", message_set(NOW, value=b"x" * 900_000)))
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(30):
            client.send(FETCH, 3, fetch("a", (0, 0)))
        await until(lambda: broker.figures.sent_bytes > 2_000_000)
    assert (tmp_path / MARKER).exists()
    client.close()


async def test_no_task_is_left_behind(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with running_broker(tmp_path) as broker, wire(broker.addresses.native) as client:
        await client.call(produce("a", message_set(NOW)))
    await until(lambda: asyncio.all_tasks() == before)


async def test_the_directory_is_locked(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        with pytest.raises(StorageError, match="in use"):
            async with running_broker(tmp_path):
                pass
    async with running_broker(tmp_path):
        pass


@pytest.mark.parametrize("setting", ["listen", "http_listen"])
async def test_an_address_that_is_taken_leaves_nothing_open(tmp_path: Path, setting: str) -> None:
    async with running_broker(tmp_path / "one") as broker:
        taken = {setting: broker.addresses.native}
        with pytest.raises(CannotListen, match=setting.replace("_", r"\.")):
            async with running_broker(tmp_path / "two", **taken):  # type: ignore[arg-type]
                pass
    async with running_broker(tmp_path / "two"):
        pass


async def test_a_broker_that_was_not_stopped_is_recovered(tmp_path: Path) -> None:
    """Without the marker the log is read; what was synced is there."""
    async with (
        running_broker(tmp_path) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a", retention_ms=-1))
        await client.call(produce("a", message_set(5, 6), acks=-1))
    (tmp_path / MARKER).unlink()
    async with (
        running_broker(tmp_path) as broker,
        wire(broker.addresses.native) as client,
    ):
        assert await stored(client, "a") == [5, 6]


async def test_starting_does_not_wait_for_the_http_port(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        wire(broker.addresses.native) as client,
        aiohttp.ClientSession() as session,
    ):
        # The port is open from the start, although its server may still be loading.
        page = asyncio.ensure_future(get(session, broker, "/healthz"))
        await client.call(MetadataRequest())
        assert await page == (200, "ok\n")


async def get(session: aiohttp.ClientSession, broker: Broker, path: str) -> tuple[int, str]:
    async with session.get(f"http://{broker.addresses.http}{path}") as response:
        return response.status, await response.text()


async def test_metrics_over_http(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        wire(broker.addresses.native) as client,
        aiohttp.ClientSession() as session,
    ):
        await client.call(create_topic("a", max_message_time_difference_ms=300_000))
        now_ms = broker.clock.now_ms()
        await client.call(produce("a", message_set(now_ms - 500, now_ms - 100)))
        refused = result(await client.call(produce("a", message_set(now_ms - 10**6))))
        assert refused.error_code == InvalidTimestamp.code
        status, text = await get(session, broker, "/metrics")
        assert status == 200
        for line in (
            'horolog_latency_seconds_count{topic="a"} 2.0',
            'horolog_rejected_messages_total{reason="timestamp",topic="a"} 1.0',
            'horolog_requests_total{api="produce",error="INVALID_TIMESTAMP"} 1.0',
            'horolog_requests_total{api="produce",error="NONE"} 1.0',
            'horolog_log_end_offset{partition="0",topic="a"} 2.0',
            'horolog_appended_messages_total{topic="a"} 2.0',
            "horolog_connections 1.0",
        ):
            assert line in text
        assert text.count("horolog_max_latency_seconds{") == 1
        assert (await get(session, broker, "/nowhere"))[0] == 404


def http_port() -> HttpPort:
    return HttpPort(Figures(SystemClock(), 1000), ignore_events)


async def test_metrics_that_take_long_are_kept_for_a_while() -> None:
    """A scrape may not take more than a small share of the loop, however often it comes."""
    made = 0

    async def render() -> bytes:
        nonlocal made
        made += 1
        until_then = SystemClock().monotonic() + 0.01
        while SystemClock().monotonic() < until_then:
            pass
        return b"made %d" % made

    server = HttpServer(http_port(), render, lambda: HttpState.STOPPED)
    with bind("127.0.0.1:0", "http.listen") as listening:
        listening.listen()
        await server.start([plain_port(listening)])
        url = f"http://{address_of(listening)}"
        async with aiohttp.ClientSession() as session:
            for _ in range(20):
                async with session.get(f"{url}/metrics") as response:
                    assert (await response.text()).startswith("made ")
            async with session.get(f"{url}/healthz") as response:
                assert response.status == 503
        await server.stop()
    assert made < 20


@pytest.mark.parametrize(
    ("state", "health", "ready"),
    [(HttpState.STOPPED, 503, 503), (HttpState.OPENING, 200, 503), (HttpState.READY, 200, 200)],
)
async def test_health_and_readiness(state: HttpState, health: int, ready: int) -> None:
    async def render() -> bytes:
        return b""

    server = HttpServer(http_port(), render, lambda: state)
    with bind("127.0.0.1:0", "http.listen") as listening:
        listening.listen()
        await server.start([plain_port(listening)])
        url = f"http://{address_of(listening)}"
        async with aiohttp.ClientSession() as session:
            for path, status in (("/healthz", health), ("/readyz", ready)):
                async with session.get(url + path) as response:
                    assert response.status == status
                    assert (await response.text() == "ok\n") == (status == 200)
        await server.stop()


async def test_a_broker_is_ready_once_its_logs_are_open(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, aiohttp.ClientSession() as session:
        while (await get(session, broker, "/readyz"))[0] != 200:
            pass
        assert broker._all_open


async def test_a_scrape_with_many_topics_lets_others_through(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(1000)]
    for name in names:
        folder = tmp_path / f"{name}-0"
        folder.mkdir()
        (folder / f"{0:020d}.log").touch()  # so that the start adopts it
    async with running_broker(tmp_path, files=QuickFiles(), http_listen="off") as broker:
        for name in names:
            broker.figures.topic(name)
        scrape = asyncio.ensure_future(broker._scrape())
        turns = 0
        while not scrape.done():
            await asyncio.sleep(0)
            turns += 1
        assert scrape.result().count(b"horolog_latency_seconds_count{") == 1000
        assert scrape.result().count(b"\n") / turns < 1000


async def test_all_logs_are_in_the_metrics_soon_after_a_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, wire(broker.addresses.native) as client:
        for topic in ("a", "b"):
            await client.call(produce(topic, message_set(broker.clock.now_ms())))
    async with running_broker(tmp_path) as broker:
        await until(lambda: len(list(broker.logs())) == 2)
        assert b'horolog_log_end_offset{partition="0",topic="a"} 1.0' in broker.metrics_text()


async def test_without_an_http_port(tmp_path: Path) -> None:
    async with running_broker(tmp_path, http_listen="off") as broker:
        assert broker.addresses.http is None
        assert b"horolog_connections" in broker.metrics_text()


async def test_a_broker_needs_nothing_but_settings(tmp_path: Path) -> None:
    """Real clock, real files, no log."""
    settings = broker_settings(
        {"data.dir": str(tmp_path / "new"), "listen": "127.0.0.1:0", "http.listen": "off"}
    )
    broker = Broker(settings)
    await broker.start()
    async with wire(broker.addresses.native) as client:
        await client.call(MetadataRequest())
    await broker.stop()
