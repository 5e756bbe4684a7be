"""`kill -9` on a real server under load: nothing acknowledged is lost, moved or doubled."""

import asyncio
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from horolog.client.administer.admin import Admin
from horolog.client.consume.consumer import Consumer
from horolog.client.errors import ConnectionFailed
from horolog.client.produce.producer import Acks, Compression, Producer
from horolog.client.results import Found, SentRecord
from horolog.protocol.records.messages.sets import NewRecord
from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.testing.logs import LogFolder
from horolog.testing.program import ServerProcess, serving

WRITERS_PER_TOPIC = 3
SEGMENTS = {"segment.bytes": "5000", "index.interval.bytes": "300", "retention.ms": "-1"}
SEGMENT_FILES = (".log", ".index", ".timeindex")
NOW_MS = 1_479_144_272_509

Stored = tuple[int, int | None, bytes | None]
"""Offset, timestamp, value."""


@dataclass
class Topic:
    """A topic, how it is written to, and what its writers were told."""

    name: str
    acks: Acks
    compression: Compression
    kind: str = "CreateTime"
    idempotent: bool = False
    acknowledged: list[Stored] = field(default_factory=list)
    sent: int = 0

    def next_set(self, rng: random.Random) -> list[NewRecord]:
        """Messages with values never sent before and times out of order."""
        records = []
        for _ in range(rng.randrange(1, 8)):
            self.sent += 1
            value = b"%s %d " % (self.name.encode(), self.sent) + b"." * rng.randrange(80)
            timestamp_ms = NOW_MS + rng.randrange(-1_000_000, 1_000_000)
            records.append(NewRecord(value, timestamp_ms=timestamp_ms))
        return records

    def acknowledge(self, records: list[NewRecord], answers: list[SentRecord]) -> None:
        """Keep what the server has promised to have."""
        self.acknowledged += [
            (answer.offset, answer.timestamp_ms, record.value)
            for record, answer in zip(records, answers, strict=True)
        ]


def topics() -> list[Topic]:
    return [
        Topic("acks-1", 1, "none"),
        Topic("acks-all", "all", "none"),
        Topic("acks-all-gzip", "all", "gzip"),
        Topic("idempotent", "all", "none", idempotent=True),
        Topic("append-time", "all", "lz4", "LogAppendTime"),
        Topic("append-time-acks-1", 1, "none", "LogAppendTime"),
    ]


async def write_until_killed(
    server: ServerProcess, topic: Topic, rng: random.Random, load: "Load"
) -> None:
    """Send set after set; what is not answered was not promised, and is not sent again."""
    with suppress(ConnectionFailed):
        async with Producer(
            server.native,
            acks=topic.acks,
            compression=topic.compression,
            idempotent=topic.idempotent,
            delivery_timeout_ms=0 if topic.idempotent else 120_000,
        ) as producer:
            while True:
                records = topic.next_set(rng)
                topic.acknowledge(records, await producer.send_many(topic.name, records))
                load.answered()


@dataclass
class Load:
    """Counts answers, and kills the server in the middle of the load."""

    server: ServerProcess
    answers_left: int
    is_enough: Callable[[], bool]

    def answered(self) -> None:
        self.answers_left -= 1
        if self.answers_left <= 0 and self.is_enough():
            self.server.process.send_signal(signal.SIGKILL)


async def read_all(server: ServerProcess, topic: Topic) -> list[Stored]:
    async with Consumer(server.native) as consumer:
        consumer.assign(topic.name, offset=0)
        read: list[Stored] = []
        while records := await consumer.fetch(max_wait_ms=0):
            read += [(record.offset, record.timestamp_ms, record.value) for record in records]
        return read


async def assert_nothing_lost(server: ServerProcess, topic: Topic, rng: random.Random) -> None:
    stored = await read_all(server, topic)
    assert [offset for offset, *_ in stored] == list(range(len(stored)))
    for offset, timestamp_ms, value in topic.acknowledged:
        assert stored[offset] == (offset, timestamp_ms, value)
    assert max(Counter(value for *_, value in stored).values(), default=1) == 1
    times = [timestamp_ms for _, timestamp_ms, _ in stored if timestamp_ms is not None]
    assert len(times) == len(stored)
    if topic.kind == "LogAppendTime":
        assert times == sorted(times)
    async with Admin(server.native) as admin:
        for target_ms in rng.sample(times, min(len(times), 5)):
            first = next(offset for offset, at_ms in enumerate(times) if at_ms >= target_ms)
            found = await admin.find_offset(topic.name, 0, timestamp_ms=target_ms)
            assert found == Found(first, times[first])


def assert_indexes_are_as_rebuilt(data_dir: Path, topic: Topic, scratch: Path) -> None:
    copy = scratch / f"{topic.name}-0"
    shutil.copytree(data_dir / copy.name, copy)
    folder = LogFolder(copy)
    before = folder.content(SEGMENT_FILES)
    folder.settings |= SEGMENTS
    folder.open(clean=False)
    folder.let_go()
    assert folder.content(SEGMENT_FILES) == before
    shutil.rmtree(copy)


async def create(server: ServerProcess, written: list[Topic]) -> None:
    async with Admin(server.native) as admin:
        for topic in written:
            settings = SEGMENTS | {"message.timestamp.type": topic.kind}
            await admin.create_topic(topic.name, settings=settings)


async def one_life(
    server: ServerProcess,
    written: list[Topic],
    rng: random.Random,
    is_enough: Callable[[], bool],
) -> None:
    """Check what the last kill left, write, and be killed."""
    for topic in written:
        await assert_nothing_lost(server, topic, rng)
    load = Load(server, rng.randrange(1, 150), is_enough)
    async with asyncio.TaskGroup() as writers:
        for topic in written:
            for _ in range(WRITERS_PER_TOPIC):
                writers.create_task(write_until_killed(server, topic, rng, load))


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(10, marks=pytest.mark.timeout(300)),
        pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
def test_20_kills_lose_nothing_that_was_acknowledged(
    tmp_path: Path, rounds: int, request: pytest.FixtureRequest, tell: Callable[[str], None]
) -> None:
    """V-9."""
    rng = random.Random(f"{request.config.getoption('--hypothesis-seed')} {rounds}")
    written = topics()
    data_dir = tmp_path / "data"

    def is_all_of_a_load() -> bool:
        return all(
            len(topic.acknowledged) > rounds
            and len(list((data_dir / f"{topic.name}-0").glob("*.log"))) > 1
            for topic in written
        )

    with serving(data_dir) as server:
        asyncio.run(create(server, written))
    for number in range(1, rounds + 1):
        with serving(data_dir) as server:
            for topic in written:
                assert_indexes_are_as_rebuilt(data_dir, topic, tmp_path / "copy")
            # Kills fall at any answer; before the last one there was a load to speak of.
            is_enough = is_all_of_a_load if number == rounds else lambda: True
            asyncio.run(one_life(server, written, rng, is_enough))
            assert server.process.wait() == -signal.SIGKILL
    with serving(data_dir) as server:
        for topic in written:
            asyncio.run(assert_nothing_lost(server, topic, rng))
        kept = sum(len(asyncio.run(read_all(server, topic))) for topic in written)
        assert server.stop() == 0
    assert not [found for found in verify(SystemFiles(), data_dir) if found.error]
    assert is_all_of_a_load()
    acknowledged = sum(len(topic.acknowledged) for topic in written)
    segments = len(list(data_dir.glob("*/*.log")))
    tell(
        f"{rounds} kills; {acknowledged} messages were acknowledged and none is lost, moved or "
        f"doubled; {kept - acknowledged} more were kept; {segments} segments, indexes as rebuilt"
    )
