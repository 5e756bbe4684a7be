"""A reader at the end of a window is woken by messages of the window, and by no other append: not
even to look at the log."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.records.layout import Codec
from horolog.server.broker import Broker
from horolog.storage.index import time_map
from horolog.storage.log import admission, admitted, recent_appends
from horolog.storage.read.window_sets import LogWindow, WindowUnion, watch_appends
from horolog.storage.read.windows import ReadWindow, WindowPosition
from horolog.testing.broker import running_broker
from horolog.testing.logs import LogFolder, timed_set
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.wire import Wire, wire
from horolog.tests.properties.examples import examples

AT_14 = 1_479_132_000_000
HOUR_MS = 3_600_000
BEFORE, AFTER = AT_14 - 7, AT_14 + HOUR_MS
WINDOW = "t..20161114T14Z..1h"
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
APPENDS = 20


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets from which a log was searched for a window."""
    found: list[int] = []
    find = LogWindow.find

    def noted(self: LogWindow, log: Any, offset: int, end_offset: int) -> WindowPosition:
        found.append(offset)
        return find(self, log, offset, end_offset)

    monkeypatch.setattr(LogWindow, "find", noted)
    return found


@dataclass
class WaitingReader:
    """A reader that waits at the end of a window, and a producer."""

    broker: Broker
    producer: Wire
    reader: Wire

    async def send(self, data: bytes, version: int = 7) -> None:
        answer = result(await self.producer.call(produce("t", data), version))
        assert answer.error_code == 0, answer

    async def parked(self, window: str = WINDOW) -> asyncio.Task[Any]:
        end = self.broker.services.logs.find("t", 0).log_end_offset
        waiting = asyncio.create_task(
            self.reader.call(fetch(window, (0, end), max_wait_ms=60_000, min_bytes=1), 10)
        )
        async with asyncio.timeout(20):
            while not len(self.broker.services.fetches):  # noqa: ASYNC110 - of the same loop
                await asyncio.sleep(0)
        return waiting

    async def wakes(self, waiting: asyncio.Task[Any], data: bytes) -> None:
        assert not waiting.done()
        await self.send(data)
        async with asyncio.timeout(20):
            assert len(result(await waiting).records) > 0


@asynccontextmanager
async def waiting_at(broker: Broker) -> AsyncIterator[WaitingReader]:
    address = str(broker.addresses.kafka)
    async with wire(address, kafka) as producer, wire(address, kafka) as reader:
        yield WaitingReader(broker, producer, reader)


Sends = Callable[[WaitingReader, int], Awaitable[None]]


def sent(magic: int, codec: Codec, *times: int, value_bytes: int = 5) -> Sends:
    data = message_set(*times, magic=magic, codec=codec, value=bytes(value_bytes))
    version = 7 if magic == 2 else 2

    async def send(reader: WaitingReader, _: int) -> None:
        await reader.send(data, version)

    return send


def large(reader: WaitingReader, number: int) -> Awaitable[None]:
    """Sets that end a block of the time map each."""
    value = Random(number).randbytes(40_000)
    return reader.send(message_set(BEFORE, AFTER, magic=2, value=value))


def mixed(reader: WaitingReader, number: int) -> Awaitable[None]:
    codec = COMPRESSED[number // 2 % 3] if number % 2 else Codec.NONE
    return reader.send(message_set(BEFORE - number, AFTER + number, magic=2, codec=codec))


KINDS: dict[str, Sends] = {
    "plain": sent(2, Codec.NONE, BEFORE),
    "spread": sent(2, Codec.NONE, BEFORE, AFTER),
    "plain messages": sent(1, Codec.NONE, BEFORE, AFTER),
    "some without a time": sent(1, Codec.NONE, BEFORE, -1, AFTER),
    "no times": sent(0, Codec.NONE, -1, -1),
    "wrappers": sent(1, Codec.GZIP, BEFORE, AFTER),
    "close wrappers": sent(1, Codec.LZ4, BEFORE, BEFORE - 1),
    "batches": sent(2, Codec.LZ4, BEFORE, AFTER),
    "wrappers without a time": sent(0, Codec.GZIP, -1, -1),
    "large": large,
    "mixed": mixed,
}


@pytest.mark.parametrize(
    "settings",
    [{}, {"compression_type": "gzip"}, {"message_timestamp_type": "LogAppendTime"}],
    ids=["as sent", "compressed by the broker", "stamped"],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_appends_of_other_times(
    broker: Broker, looks: list[int], kind: str, settings: dict[str, Any]
) -> None:
    """In whatever form they come, and after whatever came before."""
    if settings and kind in ("large", "mixed"):
        pytest.skip("is as one of the others")
    async with waiting_at(broker) as reader:
        await reader.producer.call(create_topic("t", retention_ms=-1, **settings))
        await KINDS["batches"](reader, 0)
        await KINDS[kind](reader, 0)
        waiting = await reader.parked()
        looks.clear()
        for number in range(APPENDS):
            await KINDS[kind](reader, number)
        assert looks == []
        if "message_timestamp_type" in settings:
            waiting.cancel()
        else:
            await reader.wakes(waiting, message_set(BEFORE, AT_14, AFTER, magic=2))


async def test_after_a_restart(tmp_path: Path, looks: list[int]) -> None:
    """Where the time map of the last segment is not extended."""
    settings: dict[str, Any] = {"kafka_listen": "127.0.0.1:0", "http_listen": "off"}
    started = partial(running_broker, tmp_path / "data", retention_ms=-1, **settings)
    async with started() as broker, waiting_at(broker) as reader:
        await KINDS["spread"](reader, 0)
    async with started() as broker, waiting_at(broker) as reader:
        waiting = await reader.parked()
        looks.clear()
        for number in range(APPENDS):
            await KINDS["spread"](reader, number)
        assert looks == []
        await reader.wakes(waiting, message_set(AT_14, magic=2))


async def test_through_a_roll(broker: Broker, looks: list[int]) -> None:
    async with waiting_at(broker) as reader:
        await reader.producer.call(create_topic("t", retention_ms=-1, segment_bytes=1_000))
        await KINDS["spread"](reader, 0)
        waiting = await reader.parked()
        looks.clear()
        for number in range(APPENDS):
            await KINDS["spread"](reader, number)
        assert broker.services.logs.find("t", 0).segment_count > 1
        assert looks == []
        await reader.wakes(waiting, message_set(AT_14, magic=2))


async def test_a_window_of_append_times(broker: Broker, looks: list[int]) -> None:
    """No append is in one that is over, and each in one that is open."""
    async with waiting_at(broker) as reader:
        await KINDS["batches"](reader, 0)
        waiting = await reader.parked("t..20161114T14Z..1h..append")
        looks.clear()
        for number in range(APPENDS):
            await KINDS["mixed"](reader, number)
        assert looks == []
        waiting.cancel()
    async with waiting_at(broker) as reader:
        await reader.wakes(await reader.parked("t..20161114T14Z..append"), message_set(AT_14))


async def test_a_reader_of_a_window_and_its_base_searches_once(
    broker: Broker, looks: list[int]
) -> None:
    """Both wait for the same partition."""
    async with waiting_at(broker) as reader:
        await KINDS["plain"](reader, 0)
        request = fetch(WINDOW, (0, 1), max_wait_ms=60_000, min_bytes=1)
        request.topics += fetch("t", (0, 1)).topics
        waiting = asyncio.create_task(reader.reader.call(request, 10))
        async with asyncio.timeout(20):
            while not len(broker.services.fetches):  # noqa: ASYNC110 - of the same loop
                await asyncio.sleep(0)
        searched, parked = len(looks), broker.services.fetches.by_awaited["t", 0].copy()
        for _ in range(100):
            await asyncio.sleep(0)
        assert broker.services.fetches.by_awaited["t", 0] == parked
        assert len(looks) == searched
        await KINDS["plain"](reader, 0)
        answer = await waiting
        assert [len(each.partitions[0].records) > 0 for each in answer.topics] == [True, False]


async def test_what_is_noted_goes_when_nobody_waits(broker: Broker) -> None:
    async with waiting_at(broker) as reader:
        await KINDS["plain"](reader, 0)
        log = broker.services.logs.find("t", 0)
        assert log.recent_appends is None
        waiting = await reader.parked()
        await KINDS["plain"](reader, 0)
        assert log.recent_appends is not None
        waiting.cancel()
        reader.reader.close()
        frames = [produce("t", message_set(BEFORE))] * 50
        for _ in range(22):
            for request in frames:
                reader.producer.send_together(request)
                await reader.producer.receive()
        assert log.recent_appends is None


times = st.lists(
    st.integers(0, 40) | st.integers(0, 90_000) | st.just(-1), min_size=1, max_size=12
).map(tuple)
starts = st.integers(0, 60) | st.integers(0, 90_000)
sets = st.tuples(times, st.sampled_from([0, 1, 1, 2, 2]), st.sampled_from([Codec.NONE, *Codec]))


@examples(150)
@given(
    appends=st.lists(sets, min_size=1, max_size=30),
    windows=st.lists(st.tuples(starts, st.integers(0, 3_000), st.booleans()), max_size=20),
    places=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    block_bytes=st.sampled_from([200, 65_536]),
    watched=st.integers(0, 5),
)
def test_beside_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[tuple[tuple[int, ...], int, Codec]],
    windows: list[tuple[int, int, bool]],
    places: tuple[int, int],
    block_bytes: int,
    watched: int,
) -> None:
    """What the noted times say of a stretch is true, and says all of appends that were noted."""
    folder = LogFolder(tmp_path_factory.mktemp("log") / "t-0")
    with pytest.MonkeyPatch.context() as patch:
        for module in (time_map, admission):
            patch.setattr(module, "BLOCK_BYTES", block_bytes)
        for module in (time_map, admission, admitted, recent_appends):
            patch.setattr(module, "CLOSE_MS", -1)
        log = folder.open(retention_ms=-1, segment_bytes=2_000)
        known: list[tuple[int, int]] = []
        ends = [0]
        noted_from = -1
        for number, (some, magic, codec) in enumerate(appends):
            if number == watched:
                watch_appends(log)
                noted_from = log.log_end_offset
            if codec is Codec.ZSTD:
                magic = 2
            some = some if magic else (-1,) * len(some)
            now_ms = folder.clock.now_ms()
            log.appender.append(timed_set(*some, magic=magic, codec=codec))
            known += [(time_ms, now_ms) for time_ms in some]
            ends.append(log.log_end_offset)
            folder.clock.advance(1)
    begin, end = sorted(ends[place % len(ends)] for place in places)
    asked = []
    for start, length, by_append in windows:
        from_ms = start + (known[0][1] if by_append else 0)
        asked.append(LogWindow(ReadWindow(from_ms, from_ms + length), by_append))
    says = WindowUnion(asked).appends_lack(log, begin, end)
    inside = any(
        each.window.first_ms <= message[each.by_append] <= each.window.last_ms
        for message in known[begin:end]
        for each in asked
    )
    assert not (says and inside)
    if 0 <= noted_from <= begin < end:
        assert says == (not inside)
    folder.let_go()
