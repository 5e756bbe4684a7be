"""Programs that listen to the logger `horolog` hear of lost connections and slow brokers."""

import asyncio
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import horolog
from horolog import Producer, Security
from horolog.client.cluster import connection_reports
from horolog.client.cluster.connection import ClientConnection
from horolog.client.cluster.connection_reports import QUIET_S, ConnectionReports
from horolog.testing.broker import BrokerThread
from horolog.testing.waiting import until

DEADLINE_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    folder = tmp_path_factory.mktemp("reports")
    with BrokerThread(folder, {"kafka.listen": "127.0.0.1:0"}) as started:
        yield started


@pytest.fixture(params=["native", "kafka"])
def place(server: BrokerThread, request: pytest.FixtureRequest) -> Iterator[str]:
    yield server.address if request.param == "native" else f"kafka://{server.kafka_address}"
    server.faults.clear()


class Heard(logging.Handler):
    """What the logger `horolog` hears."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.messages: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append((record.levelname, record.getMessage()))


@pytest.fixture
def heard() -> Iterator[Heard]:
    logger, handler = logging.getLogger("horolog"), Heard()
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


async def test_a_lost_connection_and_its_return(
    server: BrokerThread, place: str, heard: Heard
) -> None:
    async with Producer(place) as producer:
        await producer.send("t", b"v")
        assert heard.messages == []
        for _ in range(2):
            server.faults.drop_connection("Produce")
            await producer.send("t", b"v")
    address = re.escape(place.removeprefix("kafka://"))
    (lost, loss), (again, back) = heard.messages
    assert (lost, again) == ("WARNING", "INFO")
    assert re.fullmatch(
        f"lost the connection to {address}: the (broker closed the connection|connection was .*)",
        loss,
    )
    assert re.fullmatch(rf"connected to {address} again after \d+\.\d s", back)


@contextmanager
def at_rest(server: BrokerThread) -> Iterator[None]:
    """The broker does nothing in the block."""
    end = threading.Event()
    server._loop.call_soon_threadsafe(end.wait, DEADLINE_S)
    try:
        yield
    finally:
        end.set()


async def test_a_slow_broker_is_reported_once(
    server: BrokerThread, place: str, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_reports, "SLOW_S", 0.1)
    monkeypatch.setattr(connection_reports, "QUIET_S", 0.0)
    async with Producer(place) as producer:
        await producer.send("t", b"v")
        heard.messages.clear()  # A busy machine may take that long for the answer.
        with at_rest(server):
            sending = asyncio.create_task(producer.send("t", b"v"))
            await asyncio.sleep(0.6)
            await until(lambda: heard.messages)
        await sending
        monkeypatch.setattr(connection_reports, "SLOW_S", 60.0)
        await producer.send("t", b"v")
    (slow, silence), (again, answer) = heard.messages
    assert (slow, again) == ("WARNING", "INFO")
    address = re.escape(place.removeprefix("kafka://"))
    silent = re.fullmatch(rf"{address} has not answered produce for (\d+\.\d) s", silence)
    answered = re.fullmatch(rf"{address} answers again after (\d+\.\d) s", answer)
    assert silent
    assert answered
    assert 0.1 <= float(silent[1]) <= float(answered[1])
    assert float(answered[1]) >= 0.5


async def test_a_broker_that_waits_for_messages_is_not_slow(
    server: BrokerThread, place: str, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_reports, "SLOW_S", 0.1)
    looks, look = 0, ClientConnection._look

    def counted(connection: ClientConnection) -> None:
        nonlocal looks
        looks += bool(connection._pending)
        look(connection)

    monkeypatch.setattr(ClientConnection, "_look", counted)
    async with Producer(place) as producer, horolog.Consumer(place) as consumer:
        consumer.assign("quiet", await producer.partition_for("quiet", None))
        await consumer.seek_to_end()
        assert await consumer.fetch(max_wait_ms=0) == []
        heard.messages.clear()  # A busy machine may take that long for the answer.
        waiting = asyncio.create_task(consumer.fetch(max_wait_ms=60_000))
        await until(lambda: server._broker.services.fetches)
        looks = 0
        await until(lambda: looks >= 3)
        assert heard.messages == []
        await producer.send("quiet", b"v")
        assert [one.value for one in await waiting] == [b"v"]


async def test_what_a_client_does_itself_is_no_report(
    server: BrokerThread, place: str, heard: Heard
) -> None:
    producer = Producer(place)
    await producer.send("t", b"v")
    waiter = await producer.enqueue("t", b"v")
    await asyncio.sleep(0)
    await producer.close()
    assert waiter.done()
    with pytest.raises(horolog.ConnectionFailed):
        async with Producer("127.0.0.1:1"):
            pytest.fail("nobody listens there")
    assert heard.messages == []


def test_reports_are_limited_and_count_what_they_leave_out(heard: Heard) -> None:
    reports = ConnectionReports()
    for number in range(1000):
        reports.lost("a:1", "gone", number * 2 * QUIET_S / 1000)
        reports.connected("a:1", number * 2 * QUIET_S / 1000)
    assert heard.messages == [
        ("WARNING", "lost the connection to a:1: gone"),
        ("INFO", "connected to a:1 again after 0.0 s"),
        ("WARNING", "lost the connection to a:1: gone (and 499 more since the last report)"),
        ("INFO", "connected to a:1 again after 0.0 s"),
    ]
    heard.messages.clear()
    for number in range(1000):
        reports.waits("a:1", "fetch", number, number + 6)
    reports.answered("a:1", 2000)
    reports.answered("a:1", 2001)
    assert heard.messages == [
        ("WARNING", "a:1 has not answered fetch for 6.0 s"),
        ("INFO", "a:1 answers again after 2000.0 s"),
    ]


def test_no_secret_is_reported(server: BrokerThread, heard: Heard) -> None:
    async def program() -> None:
        security = Security(user="u", password="s3cret", secrets_without_tls=True)
        server.faults.drop_connection("Produce")
        async with Producer(server.address, security=security) as producer:
            await producer.send("t", b"v")

    with pytest.raises(horolog.HorologError):
        asyncio.run(program())
    server.faults.clear()
    assert "s3cret" not in str(heard.messages)


def test_a_program_without_logging_sees_nothing(server: BrokerThread) -> None:
    program = """
import sys
from horolog import blocking
with blocking.Producer(sys.argv[1]) as producer:
    producer.send("t", b"v")
    print(input())
    producer.send("t", b"v")
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, server.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        server.faults.drop_connection("Produce", times=1)
        out, err = running.communicate("go\n", timeout=60)
    assert (out, running.returncode) == ("go\n", 0)
    assert [line for line in err.splitlines() if "kernel" not in line] == []
    assert [one.kind for one in server.faults.injected] == ["drop_connection"]
    server.faults.clear()
