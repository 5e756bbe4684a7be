"""Windows of random logs beside a plain list: every message once, no other, none at another
offset, and little is read for it."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.list_offsets import LARGEST, LATEST
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.records.messages.sets import Record
from horolog.protocol.window_topics import WindowName, window_name
from horolog.server.broker import Broker
from horolog.server.handlers import window_reads
from horolog.server.handlers.window_reads import WindowRead
from horolog.storage.index import time_map
from horolog.storage.log import admission
from horolog.storage.read import windows as storage_windows
from horolog.storage.read.slices import FileRange, Slice
from horolog.testing.broker import running_broker
from horolog.testing.clock import MovingClock
from horolog.testing.files import QuickFiles
from horolog.testing.wire import Wire, wire

from .oracle import Known, RandomLog, windows
from .reading import earliest, offset_of, read

BLOCK_BYTES = 600
FIRST_WITH_TIMES, FIRST_WITH_LEVELS = 2, 4
SEED = 2016
SOME, MANY = 40, 3_000
TOPICS = count()


class ReadBytes:
    """Bytes of logs that were read, or sent from their files, for the messages of windows."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = self.of_answers = self.of_tails = 0
        read, stretch = WindowRead._read, Slice.stretch

        async def counted(reading: WindowRead, found: Slice) -> bytes:
            self.count += found.size
            return await read(reading, found)

        def lent(found: Slice) -> FileRange | None:
            self.count += found.size
            return stretch(found)

        patch.setattr(WindowRead, "_read", counted)
        patch.setattr(Slice, "stretch", lent)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> ReadBytes:
    """Small logs have time maps too, and sets are sent from their files."""
    for module in (time_map, admission):
        monkeypatch.setattr(module, "BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr(storage_windows, "UNMAPPED_BYTES", BLOCK_BYTES)
    monkeypatch.setattr(window_reads, "MIN_FILE_RANGE_BYTES", 400)
    return ReadBytes(monkeypatch)


@pytest.fixture
def clock() -> MovingClock:
    clock = MovingClock()
    clock.freeze()
    return clock


@pytest.fixture
async def broker(tmp_path: Path, clock: MovingClock) -> AsyncIterator[Broker]:
    settings: dict[str, Any] = {
        "http_listen": "off",
        "kafka_listen": "127.0.0.1:0",
        "retention_ms": -1,
    }
    async with running_broker(tmp_path / "data", clock, QuickFiles(), **settings) as started:
        yield started


def seen(found: list[Record], version: int) -> list[tuple[int, int, bytes | None]]:
    """Messages as a client of a version sees them: v0 has no times."""
    with_times = version >= FIRST_WITH_TIMES
    return [(one.offset, one.timestamp_ms if with_times else -1, one.value) for one in found]


def wanted(known: list[Known], version: int) -> list[tuple[int, int, bytes | None]]:
    with_times = version >= FIRST_WITH_TIMES
    return [(one.offset, one.time_ms if with_times else -1, one.value) for one in known]


class OracleRound:
    """One random log, and readers of some of its windows."""

    def __init__(self, broker: Broker, clock: MovingClock, seed: int, read_bytes: ReadBytes):
        self._random = Random(seed)
        self._log = RandomLog(broker, clock, f"t{next(TOPICS)}", self._random)
        self._broker = broker
        self._clock = clock
        self._read_bytes = read_bytes

    async def run(self, client: Wire, writer: Wire) -> None:
        random = self._random
        await self._log.make(client)
        for _ in range(random.choice([1, 4, 12, 25])):
            await self._log.grow(client)
        for window in windows(random, self._clock.now_ms()):
            await self._offsets(client, window)
            await self._whole(client, window)
            await self._from_somewhere(client, window, writer)
            await self._log.grow(client)
        await client.call(DeleteTopicsRequest(topic_names=[self._log.topic]))

    def _name(self, window: tuple[int, int | None, bool]) -> str:
        return window_name(WindowName(self._log.topic, *window))

    def _inside(
        self, window: tuple[int, int | None, bool], *, committed: bool = False
    ) -> list[Known]:
        from_ms, until_ms, by_append = window
        return self._log.inside(from_ms, until_ms, by_append=by_append, committed=committed)

    async def _offsets(self, client: Wire, window: tuple[int, int | None, bool]) -> None:
        inside, name = self._inside(window), self._name(window)
        by_append = window[2]

        def time_of(one: Known) -> int:
            return one.append_ms if by_append else one.time_ms

        start = self._log.log.log_start_offset
        assert await earliest(client, name) == start
        last = inside[-1].offset + 1 if inside else start
        assert (await offset_of(client, name, LATEST))[0] == last
        target = window[0] + self._random.randrange(10)
        later = next((one for one in inside if time_of(one) >= target), None)
        expected = (-1, -1) if later is None else (later.offset, time_of(later))
        assert await offset_of(client, name, target) == expected
        largest = max(map(time_of, inside), default=-1)
        found = await offset_of(client, name, LARGEST)
        assert found[1] == largest
        if inside and not by_append:
            assert found[0] == next(one.offset for one in inside if one.time_ms == largest)

    async def _whole(self, client: Wire, window: tuple[int, int | None, bool]) -> None:
        """In large fetches, for which no more is read than the blocks that hold an answer."""
        inside = self._inside(window)
        counted = self._read_bytes
        before = counted.count
        found = await read(client, self._name(window), max_wait_ms=200, min_bytes=0)
        assert seen(found, 10) == wanted(inside, 10)
        if not window[2]:
            answering, tail = self._log.answering_bytes(inside)
            counted.of_answers += answering
            counted.of_tails += tail
        else:
            counted.count = before

    async def _from_somewhere(
        self, client: Wire, window: tuple[int, int | None, bool], writer: Wire
    ) -> None:
        """In fetches of any size and version, perhaps while others are appended."""
        random, log = self._random, self._log.log
        version = random.choice([0, 1, 2, 3, 4, 7, 10, 10])
        committed = version >= FIRST_WITH_LEVELS and random.random() < 0.4
        begin = position = random.randrange(log.log_start_offset, log.log_end_offset + 1)
        size = random.choice([1, 300, 5_000, 70_000, 1 << 20])
        counted = self._read_bytes.count
        writing = asyncio.create_task(self._write(writer, random.choice([0, 0, 3])))
        found: list[Record] = []
        is_over = False
        while not is_over:
            await asyncio.sleep(0)
            is_over = writing.done()
            found += await read(
                client,
                self._name(window),
                position,
                version=version,
                partition_max_bytes=size,
                max_wait_ms=200,
                min_bytes=0,
                isolation_level=int(committed),
            )
            position = found[-1].offset + 1 if found else begin
        await writing
        self._read_bytes.count = counted
        inside = self._inside(window, committed=committed)
        expected = [one for one in inside if one.offset >= begin]
        assert seen(found, version) == wanted(expected, version), (version, size, committed)

    async def _write(self, writer: Wire, sets: int) -> None:
        for _ in range(sets):
            await self._log.send(writer)
            await asyncio.sleep(0)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    "rounds", [SOME, pytest.param(MANY, marks=pytest.mark.soak)], ids="{} rounds".format
)
async def test_windows_of_random_logs(
    broker: Broker, clock: MovingClock, read_bytes: ReadBytes, rounds: int
) -> None:
    assert broker.addresses.kafka is not None
    for seed in range(SEED, SEED + rounds):
        async with (
            wire(broker.addresses.kafka, kafka) as client,
            wire(broker.addresses.kafka, kafka) as writer,
        ):
            try:
                await OracleRound(broker, clock, seed, read_bytes).run(client, writer)
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
    sums = read_bytes.count, read_bytes.of_answers, read_bytes.of_tails
    assert read_bytes.count <= 1.5 * read_bytes.of_answers + read_bytes.of_tails, sums
