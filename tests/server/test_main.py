"""The server as a process: the ready line, signals, errors in one line, few descriptors."""

import asyncio
import json
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.records.kernel import FORM
from horolog.server.events import BURST
from horolog.testing.requests import fetch, message_set, produce, result
from horolog.testing.wire import Wire, wire

from .processes import process, ready, refusal


@pytest.mark.parametrize("event_loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_signal_stops_it_cleanly(
    tmp_path: Path, event_loop: str, number: signal.Signals
) -> None:
    async with process(tmp_path, event_loop=event_loop, log_format="json") as started:
        address = await ready(started)
        async with wire(address) as client:
            assert result(await client.call(produce("a", message_set(5)))).error_code == 0
        started.send_signal(number)
        rest, log = await started.communicate()
        assert started.returncode == 0
        assert rest == b"", "one line on standard output"
        assert b"broker_started" in log
        assert f'"kernel": "{FORM}"'.encode() in log
        assert b"broker_stopped" in log
        assert b"Traceback" not in log
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_more_signals_change_nothing(tmp_path: Path) -> None:
    async with process(tmp_path, retention_ms="-1") as started:
        address = await ready(started)
        async with wire(address) as client:
            for _ in range(50):
                await client.call(produce("a", message_set(5)))
        # The stop waits for this client, which does not read. A signal that comes behind the stop,
        # when the process is about to end, would end it.
        slow = await Wire.open(address, limit=1)
        await slow.call(produce("large", message_set(5, value=bytes(900_000))))
        slow.send_together(*[fetch("large", (0, 0))] * 30)
        await slow.frame()
        for _ in range(2):
            await asyncio.sleep(0.01)
            for number in (signal.SIGTERM, signal.SIGINT):
                started.send_signal(number)
        slow.writer.transport.abort()
        assert await started.wait() == 0
    async with (
        process(tmp_path, retention_ms="-1") as started,
        wire(await ready(started)) as client,
    ):
        assert result(await client.call(fetch("a", (0, 0)))).high_watermark == 50


async def test_no_http_port(tmp_path: Path) -> None:
    async with process(tmp_path, http_listen="off") as started:
        assert started.stdout is not None
        line = (await started.stdout.readline()).decode()
        assert re.fullmatch(r"ready native=127\.0\.0\.1:\d+\n", line)


async def test_what_keeps_it_from_starting_is_one_line(tmp_path: Path) -> None:
    async with process(tmp_path / "one") as first:
        address = await ready(first)
        async with process(tmp_path / "two", listen=address) as second:
            line = await refusal(second)
            assert address in line
            assert "listen" in line
            assert "in use" in line
        async with process(tmp_path / "one") as third:
            line = await refusal(third)
            assert str(tmp_path / "one") in line
            assert str(first.pid) in line
    (tmp_path / "file").write_text("not a directory")
    async with process(tmp_path / "file") as fourth:
        assert str(tmp_path / "file") in await refusal(fourth)


@pytest.mark.parametrize("event_loop", ["uvloop", "asyncio"])
async def test_few_descriptors_and_many_clients(tmp_path: Path, event_loop: str) -> None:
    """fault18: 150 clients of a process that may open 64 files."""
    async with process(
        tmp_path,
        open_files=64,
        event_loop=event_loop,
        log_format="json",
        max_connections_per_ip="1000",
    ) as started:
        address = await ready(started)
        clients = [await Wire.open(address) for _ in range(150)]
        served = 0
        for client in clients:
            client.writer.write(b"")
            try:
                await client.call(MetadataRequest())
                served += 1
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
        assert 8 <= served < 64
        for client in clients:
            client.close()
        while True:
            async with wire(address) as client:
                try:
                    got = result(await client.call(produce("a", message_set(5), acks=-1)))
                except (ConnectionError, asyncio.IncompleteReadError):
                    continue  # the broker has not noticed yet that the others are gone
                assert got.error_code == 0
                break
        started.terminate()
        _, log = await started.communicate()
        assert started.returncode == 0
        assert b"limits_lowered" in log
        assert b"connection_refused" in log
        lines = [json.loads(line) for line in log.splitlines()]
        refused = [line["time"][:19] for line in lines if line["event"] == "connection_refused"]
        # The second of the limit begins in the middle of one of the wall clock.
        assert max(Counter(refused).values()) <= 2 * BURST
        assert len(lines) < len(refused) + 30
