"""Append times after `kill -9` on a real server under load: none is wrong."""

import asyncio
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from horolog.client.administer.admin import Admin
from horolog.client.consume.consumer import Consumer
from horolog.client.errors import ConnectionFailed
from horolog.client.produce.producer import Producer
from horolog.protocol.records.messages.sets import NewRecord
from horolog.storage.directory.checkpoints import RECOVERY_POINTS, decode_checkpoint
from horolog.testing.program import ServerProcess, serving
from horolog.testing.waiting import until

SETTINGS = {"segment.bytes": "8000", "retention.ms": "-1"}
ROUNDS = 4
FIRST = 20
"""Messages of each topic that are below the recovery point in any case before a server is killed:
after a kill no others are sure to keep their append times."""


@dataclass
class Load:
    """What was sent, and when: by value, the time before and after."""

    kind: str
    sent: dict[bytes, tuple[float, float]] = field(default_factory=dict)
    begin: int = 0
    """Messages that were there when the server started."""
    safe: int = 0
    """The recovery point that the server had written before it was killed."""

    @property
    def topic(self) -> str:
        return self.kind.lower()


async def write_until_killed(server: ServerProcess, load: Load, rng: random.Random) -> None:
    async with Producer(server.native, acks="all", idempotent=False) as producer:
        while True:
            values = [b"%d" % (len(load.sent) + number) for number in range(rng.randrange(1, 5))]
            began = time.time() * 1000
            load.sent |= dict.fromkeys(values, (began, float("inf")))
            try:
                await producer.send_many(
                    load.topic, [NewRecord(value, timestamp_ms=0) for value in values]
                )
            except ConnectionFailed:
                return
            load.sent |= dict.fromkeys(values, (began, time.time() * 1000))


async def one_life(server: ServerProcess, loads: list[Load], rng: random.Random) -> None:
    def note_safe() -> bool:
        written = decode_checkpoint((server.data_dir / RECOVERY_POINTS).read_bytes())
        for load in loads:
            load.safe = written.get((load.topic, 0), 0)
        return all(load.safe >= load.begin + FIRST for load in loads)

    async with asyncio.TaskGroup() as tasks:
        for load in loads:
            tasks.create_task(write_until_killed(server, load, rng))
        await until(note_safe)
        await asyncio.sleep(rng.uniform(0.2, 0.7))
        note_safe()
        server.process.kill()


async def create(server: ServerProcess, loads: list[Load]) -> None:
    async with Admin(server.native) as admin:
        for load in loads:
            settings = SETTINGS | {"message.timestamp.type": load.kind}
            await admin.create_topic(load.topic, settings=settings)


async def known(server: ServerProcess, load: Load) -> list[int | None]:
    """The append times, which are right where they are known."""
    async with Consumer(server.native, append_times=True, max_wait_ms=0) as consumer:
        consumer.assign(load.topic, offset=0)
        read = []
        while batch := await consumer.fetch():
            read += batch
    for record in read:
        if record.append_time_ms is not None:
            assert record.value is not None
            began, ended = load.sent[record.value]
            assert int(began) <= record.append_time_ms <= ended
            if load.kind == "LogAppendTime":
                assert record.append_time_ms == record.timestamp_ms
    return [record.append_time_ms for record in read]


def test_20_kills_leave_no_wrong_append_time(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(request.config.getoption("--hypothesis-seed"))
    loads = [Load("CreateTime"), Load("LogAppendTime")]
    before: dict[str, list[int | None]] = {load.topic: [] for load in loads}
    often = ("--set", "recovery.point.checkpoint.interval.ms=50")
    with serving(tmp_path / "data", *often) as server:
        asyncio.run(create(server, loads))
        assert server.stop() == 0
    for _ in range(ROUNDS):
        with serving(tmp_path / "data", *often) as server:
            for load in loads:
                now = asyncio.run(known(server, load))
                check_kept(load, before[load.topic], now)
                before[load.topic] = now
                load.begin = len(now)
            asyncio.run(one_life(server, loads, rng))
            assert server.process.wait() == -signal.SIGKILL
    with serving(tmp_path / "data") as server:
        for load in loads:
            times = asyncio.run(known(server, load))
            check_kept(load, before[load.topic], times)
            assert sum(ms is not None for ms in times) >= ROUNDS * FIRST


def check_kept(load: Load, before: list[int | None], now: list[int | None]) -> None:
    assert now[: len(before)] == before, "what is known stays known"
    assert None not in now[len(before) : load.safe], "what was safe is known"
    assert len(now) >= load.safe
