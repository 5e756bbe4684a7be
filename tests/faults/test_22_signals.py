"""Fault 22: SIGTERM under load, more signals during the stop, SIGSTOP and SIGCONT."""

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from horolog.client.administer.admin import Admin
from horolog.client.consume.consumer import Consumer
from horolog.client.errors import ConnectionFailed
from horolog.client.produce.producer import Acks, Producer
from horolog.client.results import SentRecord
from horolog.config.address import split_address
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native
from horolog.protocol.errors import RequestTimedOut
from horolog.protocol.limits import LENGTH_BYTES
from horolog.protocol.records.messages.sets import NewRecord
from horolog.storage.check.verify import verify
from horolog.storage.files import Buffer, SystemFile, SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.program import ServerProcess, serving
from horolog.testing.requests import message_set, produce
from horolog.testing.waiting import until
from horolog.testing.wire import wire

NOW_MS = 1_479_144_272_509
MARKER = ".kafka_cleanshutdown"
SMALL_SEGMENTS = ["--set", "segment.bytes=5000", "--set", "retention.ms=-1"]
TOPICS = ("one", "all", "all-too")

DEADLINE_MS = 500
"""Of a request. Between its halves a client may have to wait for the processor itself."""

LONGER_THAN_THE_DEADLINE_S = 0.7


class Load:
    """Writers that go on until their server is gone, and what they were told."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.acknowledged: dict[str, list[tuple[int, bytes]]] = {topic: [] for topic in TOPICS}
        self._answers = 0

    async def write(self, when_answered: dict[int, Callable[[], None]]) -> None:
        """`when_answered` is what to do after how many answers."""
        async with Admin(self.server.native) as admin:
            # One topic may be answered as often as it takes before another one is made.
            for topic in TOPICS:
                await admin.create_topic(topic)
        async with asyncio.TaskGroup() as writers:
            for topic in TOPICS:
                for number in range(3):
                    writers.create_task(self._write(topic, number, when_answered))

    async def _write(
        self, topic: str, writer: int, when_answered: dict[int, Callable[[], None]]
    ) -> None:
        acks: Acks = 1 if topic == "one" else "all"
        # Once the server is gone, tries go on for that long.
        async with Producer(self.server.native, acks=acks, delivery_timeout_ms=5000) as producer:
            for number in range(1_000_000):
                value = b"%d %d" % (writer, number)
                try:
                    sent: list[SentRecord] = await producer.send_many(
                        topic, [NewRecord(value, timestamp_ms=NOW_MS)]
                    )
                except (ConnectionFailed, RequestTimedOut):
                    return  # A server that stops does not wait for syncs for ever.
                self.acknowledged[topic] += [(each.offset, value) for each in sent]
                self._answers += 1
                when_answered.get(self._answers, lambda: None)()


async def read_all(server: ServerProcess, topic: str) -> list[tuple[int, bytes | None]]:
    async with Consumer(server.native) as consumer:
        consumer.assign(topic, offset=0)
        read: list[tuple[int, bytes | None]] = []
        while records := await consumer.fetch(max_wait_ms=0):
            read += [(record.offset, record.value) for record in records]
        return read


def assert_nothing_lost(data_dir: Path, load: Load) -> str:
    """What was acknowledged is there, in one piece; returns what this start has logged."""
    log = data_dir.with_name(f"{data_dir.name}.log")
    before = len(log.read_text())
    with serving(data_dir, *SMALL_SEGMENTS) as server:
        for topic, acknowledged in load.acknowledged.items():
            stored = asyncio.run(read_all(server, topic))
            assert [offset for offset, _ in stored] == list(range(len(stored)))
            assert set(acknowledged) <= set(stored)
        assert any(load.acknowledged.values())
        assert server.stop() == 0
    assert not [found for found in verify(SystemFiles(), data_dir) if found.error]
    return log.read_text()[before:]


def test_22_a_stop_under_load_is_clean_however_often_it_is_asked_for(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir, *SMALL_SEGMENTS) as server:
        assert not (data_dir / MARKER).exists()
        load = Load(server)
        terminate = partial(server.process.send_signal, signal.SIGTERM)
        asyncio.run(load.write({200 + 2 * number: terminate for number in range(5)}))
        assert server.process.wait(30) == 0
        assert "Traceback" not in server.log.read_text()
    assert (data_dir / MARKER).read_bytes() == b"", "every log was closed cleanly"
    assert "log_recovered" not in assert_nothing_lost(data_dir, load)


@pytest.mark.parametrize("answers", [0, 3])
def test_22_a_kill_during_the_stop(tmp_path: Path, answers: int) -> None:
    """With the marker everything is as it should be at once; without it, after recovery."""
    data_dir = tmp_path / "data"
    with serving(data_dir, *SMALL_SEGMENTS) as server:
        load = Load(server)
        process = server.process

        def terminate() -> None:
            process.send_signal(signal.SIGTERM)
            if not answers:
                process.kill()

        asyncio.run(load.write({100 + answers: process.kill, 100: terminate}))
        process.kill()
        clean = process.wait(30) == 0
    assert (data_dir / MARKER).exists() or not clean
    clean = (data_dir / MARKER).exists()
    assert ("log_recovered" not in assert_nothing_lost(data_dir, load)) == clean


@contextmanager
def stopped(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """SIGSTOP; SIGCONT after the block, `seconds` later."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    yield
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.send_signal(signal.SIGCONT)


def receive(client: socket.socket) -> bytes:
    """The next frame, or what there was of it."""
    with client.makefile("rb") as stream:
        return stream.read(int.from_bytes(stream.read(LENGTH_BYTES), "big"))


def test_22_time_in_which_the_broker_is_stopped_is_not_its_clients_fault(tmp_path: Path) -> None:
    """A request whose second half came while nobody could read it is not late."""
    request = native.encode_request(PRODUCE, 2, 7, "c", produce("a", message_set(5)))
    with (
        serving(tmp_path / "data", "--set", f"request.deadline.ms={DEADLINE_MS}") as server,
        socket.create_connection(split_address(server.native)) as client,
        socket.create_connection(split_address(server.native)) as silent,
    ):
        for number in range(2):
            client.sendall(request[:-5])
            if not number:
                silent.sendall(request[:-5])
            with stopped(server.process, LONGER_THAN_THE_DEADLINE_S):
                client.sendall(request[-5:])
            head, _ = native.open_response(receive(client))
            assert (head.correlation_id, head.error_code) == (7, 0)
        assert receive(silent) == b"", "one that did not send the rest is closed all the same"
        assert server.stop() == 0


class SlowFile(SystemFile):
    """A file whose writes take long; `meanwhile` happens during the next one."""

    __slots__ = ()
    meanwhile: ClassVar[Callable[[], object] | None] = None

    def pwrite(self, data: Buffer, position: int) -> None:
        happens, SlowFile.meanwhile = SlowFile.meanwhile, None
        if happens is not None:
            happens()
            time.sleep(LONGER_THAN_THE_DEADLINE_S)
        super().pwrite(data, position)


class SlowFiles(SystemFiles):
    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> SystemFile:
        file = super().open(path, create=create, read_only=read_only)
        return SlowFile(file.fileno(), path)


@pytest.mark.both_loops
async def test_22_nor_is_time_in_which_its_disk_is_slow(tmp_path: Path) -> None:
    request = native.encode_request(PRODUCE, 2, 7, "c", produce("a", message_set(5)))
    async with (
        running_broker(
            tmp_path, files=SlowFiles(), http_listen="off", request_deadline_ms=DEADLINE_MS
        ) as broker,
        wire(broker.addresses.native) as other,
    ):
        await other.call(produce("a", message_set(5)))
        loop = asyncio.get_running_loop()
        with socket.create_connection(split_address(broker.addresses.native)) as client:
            for _ in range(3):
                received = broker.figures.received_bytes
                client.sendall(request[:-5])
                await until(lambda: broker.figures.received_bytes > received)  # noqa: B023
                SlowFile.meanwhile = partial(client.sendall, request[-5:])
                await other.call(produce("a", message_set(5)))
                client.setblocking(False)
                assert len(await loop.sock_recv(client, 1000)) > 20
                client.setblocking(True)
        assert broker.figures.connections_dropped == {}


def test_22_nothing_expires_because_the_broker_was_stopped(tmp_path: Path) -> None:
    often = [
        *("--set", "log.retention.check.interval.ms=50"),
        *("--set", "log.initial.task.delay.ms=0"),
        *("--set", "retention.ms=60000"),
    ]
    with serving(tmp_path / "data", *often) as server:
        asyncio.run(write_now(server))
        with stopped(server.process, 0.5):
            pass
        asyncio.run(write_now(server))
        assert len(asyncio.run(read_all(server, "a"))) == 2
        assert "clock_stepped" not in server.log.read_text()
        assert "segment_deleted" not in server.log.read_text()
        assert server.stop() == 0


async def write_now(server: ServerProcess) -> None:
    async with Producer(server.native) as producer:
        await producer.send("a", b"x")
