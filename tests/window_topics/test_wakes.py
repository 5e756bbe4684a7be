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
from horolog.server.handlers.window_reads import AwaitedPartition
from horolog.storage.index import time_map
from horolog.storage.log import admission, admitted, recent_appends
from horolog.storage.log.log import Log
from horolog.storage.log.recent_appends import AwaitedTimes, RecentAppends, TimeIntervals
from horolog.storage.read.window_sets import LogWindow, WindowUnion
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
HOUR_BEFORE = "t..20161114T13Z..1h"


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

    async def parked(self, window: str = WINDOW, *, max_wait_ms: int = 60_000) -> asyncio.Task[Any]:
        end = self.broker.services.logs.find("t", 0).log_end_offset
        parked = len(self.broker.services.fetches)
        waiting = asyncio.create_task(
            self.reader.call(fetch(window, (0, end), max_wait_ms=max_wait_ms, min_bytes=1), 10)
        )
        async with asyncio.timeout(20):
            while len(self.broker.services.fetches) == parked:  # noqa: ASYNC110 - of the same loop
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


async def test_appends_outside_of_all_windows_are_not_checked(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[int] = []
    may_have = AwaitedPartition.may_have

    def noted(self: AwaitedPartition, log: Log) -> bool:
        checks.append(log.log_end_offset)
        return may_have(self, log)

    monkeypatch.setattr(AwaitedPartition, "may_have", noted)
    async with waiting_at(broker) as reader:
        await KINDS["plain"](reader, 0)
        waiting = await reader.parked()
        checks.clear()
        for number in range(3 * APPENDS):
            await KINDS["plain"](reader, number)
        assert checks == []
        await reader.wakes(waiting, message_set(AT_14))


async def test_a_wait_that_ends_does_not_look_at_what_was_passed_over(
    broker: Broker, looks: list[int]
) -> None:
    async with waiting_at(broker) as reader:
        await KINDS["plain"](reader, 0)
        waiting = await reader.parked(max_wait_ms=300)
        looks.clear()
        await KINDS["plain"](reader, 0)
        answer = result(await waiting)
        assert (answer.error_code, answer.records) == (0, b"")
        assert looks == []


async def test_each_reader_is_woken_by_its_own_window(broker: Broker, looks: list[int]) -> None:
    """The second begins to wait where the first passed over appends of its window."""
    async with waiting_at(broker) as first, waiting_at(broker) as second:
        await KINDS["plain"](first, 0)
        of_14 = await first.parked()
        for number in range(APPENDS):
            await KINDS["plain"](first, number)
        of_13 = await second.parked(HOUR_BEFORE)
        looks.clear()
        for _ in range(APPENDS):
            await first.send(message_set(AFTER))
        assert looks == []
        await second.wakes(of_13, message_set(BEFORE))
        await first.wakes(of_14, message_set(AT_14))


@pytest.mark.parametrize(
    ("times_ms", "append_ms", "passed_over"),
    [
        ((50, 99), 500, True),
        ((50, 100), 500, False),
        ((50, 250), 500, False),
        ((200, 250), 500, False),
        ((201, 250), 500, True),
        ((50, 99), 999, True),
        ((50, 99), 1_000, False),
        ((50, 99), 2_000, False),
        ((50, 99), 2_001, True),
    ],
)
def test_what_is_passed_over(times_ms: tuple[int, int], append_ms: int, passed_over: bool) -> None:
    recent = RecentAppends(10)
    times = TimeIntervals([(100, 120), (180, 200)]), TimeIntervals([(1_000, 2_000)])
    awaited = recent.await_times(*times)
    recent.note(b"", 12, times_ms[1], (*times_ms, 2), (append_ms, append_ms))
    assert recent.may_pass_over(10, 12, awaited) == passed_over
    assert recent.may_pass_over(12, 12, awaited)
    assert not recent.may_pass_over(12, 13, awaited)


def test_a_reader_of_other_times_does_not_pass_over_earlier_appends() -> None:
    recent = RecentAppends(10)
    wide, narrow = TimeIntervals([(400, 600)]), TimeIntervals([(100, 200)])
    first = recent.await_times(narrow, None)
    recent.note(b"", 12, 500, (500, 500, 2), (1_000, 1_000))
    assert recent.may_pass_over(10, 12, first)
    second = recent.await_times(wide, None)
    assert not recent.may_pass_over(10, 12, second)
    recent.note(b"", 14, 300, (300, 300, 2), (1_000, 1_000))
    assert recent.lacks(10, 14, narrow, by_append=False, awaited=first)
    assert not recent.lacks(10, 14, wide, by_append=False, awaited=second)
    assert recent.lacks(12, 14, wide, by_append=False, awaited=second)


def test_what_was_passed_over_is_known_to_those_who_waited_for_other_times() -> None:
    recent = RecentAppends(10)
    narrow, other = TimeIntervals([(100, 200)]), TimeIntervals([(400, 600)])
    first = recent.await_times(narrow, None)
    for next_offset, time_ms in ((12, 150), (14, 500), (16, 150)):
        recent.note(b"", next_offset, time_ms, (time_ms, time_ms, 2), (1_000, 1_000))
    assert recent.lacks(12, 14, narrow, by_append=False, awaited=first)
    assert not recent.lacks(12, 16, narrow, by_append=False, awaited=first)
    assert not recent.lacks(12, 14, other, by_append=False)
    for _ in range(200):
        second = recent.await_times(other, None)
    assert second[0] is not first[0]
    assert not recent.lacks(12, 14, other, by_append=False, awaited=second)
    assert recent.lacks(14, 16, other, by_append=False, awaited=second)


def test_appends_within_times_that_are_no_longer_awaited_are_passed_over() -> None:
    recent = RecentAppends(10)
    wide, narrow = TimeIntervals([(0, 600)]), TimeIntervals([(100, 200)])
    first = recent.await_times(wide, None)
    recent.note(b"", 12, 700, (700, 700, 2), (1_000, 1_000))
    for _ in range(200):
        awaited = recent.await_times(narrow, None)
    recent.note(b"", 14, 500, (500, 500, 2), (1_000, 1_000))
    assert not recent.may_pass_over(12, 14, first)
    assert not recent.lacks(10, 14, wide, by_append=False, awaited=first)
    assert recent.lacks(10, 12, wide, by_append=False, awaited=first)
    assert recent.may_pass_over(12, 14, awaited)


def test_a_reader_that_passes_over_every_append_is_waiting() -> None:
    recent = RecentAppends(0)
    awaited = recent.await_times(TimeIntervals([(100, 200)]), None)
    for offset in range(2_000):
        assert recent.note(b"", offset + 1, 300, (300, 300, 1), (1_000, 1_000))
        assert recent.may_pass_over(0, offset + 1, awaited)


few_times = st.lists(st.integers(0, 12), min_size=1, max_size=2).map(tuple)
times = few_times | st.lists(
    st.integers(0, 40) | st.integers(0, 90_000) | st.just(-1), min_size=1, max_size=12
).map(tuple)
starts = st.integers(0, 60) | st.integers(0, 90_000)
sets = st.tuples(times, st.sampled_from([0, 1, 1, 2, 2]), st.sampled_from([Codec.NONE, *Codec]))


short_window = st.tuples(st.integers(0, 12), st.integers(0, 2), st.booleans())
window = st.tuples(starts, st.integers(0, 3_000), st.booleans())
windows = st.lists(short_window, max_size=2) | st.lists(window, max_size=20)


@examples(150)
@given(
    appends=st.lists(sets, min_size=1, max_size=30),
    readers=st.lists(st.tuples(st.integers(0, 5), windows), min_size=1, max_size=3),
    places=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    block_bytes=st.sampled_from([200, 65_536]),
)
def test_beside_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[tuple[tuple[int, ...], int, Codec]],
    readers: list[tuple[int, list[tuple[int, int, bool]]]],
    places: tuple[int, int],
    block_bytes: int,
) -> None:
    """What the noted times say of a stretch is true, whenever a reader began to wait, and says all
    of the appends since. A reader passes over appends only if none has a message for it."""
    folder = LogFolder(tmp_path_factory.mktemp("log") / "t-0")
    awaited = [windows_from(folder.clock.now_ms(), each) for _, each in readers]
    with pytest.MonkeyPatch.context() as patch:
        for module in (time_map, admission):
            patch.setattr(module, "BLOCK_BYTES", block_bytes)
        for module in (time_map, admission, admitted, recent_appends):
            patch.setattr(module, "CLOSE_MS", -1)
        log = folder.open(retention_ms=-1, segment_bytes=2_000)
        patch.setattr(recent_appends, "_WAITS_PER_EXTENT", 2)
        known: list[tuple[int, int]] = []
        ends = [0]
        waits: dict[int, AwaitedTimes] = {}
        newest = None
        for number, (some, magic, codec) in enumerate(appends):
            for index, (began, _) in enumerate(readers):
                if number == began:
                    waits[index] = WindowUnion(awaited[index]).watch_appends(log)
                    newest, _ = waits[index]
            known += append(log, folder, some, magic, codec)
            ends.append(log.log_end_offset)
    begin, end = sorted(ends[place % len(ends)] for place in places)
    for index, ((began, _), asked) in enumerate(zip(readers, awaited, strict=True)):
        inside = any(are_in(asked, message) for message in known[begin:end])
        says = WindowUnion(asked).appends_lack(log, begin, end, waits.get(index))
        assert not (says and inside)
        if index in waits:
            passed = passed_over(log, ends, waits[index])
            assert not any(are_in(asked, message) for end in passed for message in known[end:])
            if ends[began] <= begin < end and waits[index][0] is newest:
                assert says == (not inside)
    folder.let_go()


def passed_over(log: Log, ends: list[int], awaited: AwaitedTimes) -> list[int]:
    """The offsets from which a reader that waits there passes over all appends."""
    recent = log.recent_appends
    assert recent is not None
    return [end for end in ends if recent.may_pass_over(end, log.log_end_offset, awaited)]


def append(
    log: Log, folder: LogFolder, some: tuple[int, ...], magic: int, codec: Codec
) -> list[tuple[int, int]]:
    """Append messages with `some` times. Return their message and append times."""
    if codec is Codec.ZSTD:
        magic = 2
    some = some if magic else (-1,) * len(some)
    now_ms = folder.clock.now_ms()
    log.appender.append(timed_set(*some, magic=magic, codec=codec))
    folder.clock.advance(1)
    return [(time_ms, now_ms) for time_ms in some]


def windows_from(began_ms: int, windows: list[tuple[int, int, bool]]) -> list[LogWindow]:
    """Windows of append times begin so long after `began_ms`."""
    found = []
    for start, length, by_append in windows:
        from_ms = start + (began_ms if by_append else 0)
        found.append(LogWindow(ReadWindow(from_ms, from_ms + length), by_append))
    return found


def are_in(asked: list[LogWindow], message: tuple[int, int]) -> bool:
    """Whether a message time and an append time are in one of the windows."""
    return any(
        each.window.first_ms <= message[each.by_append] <= each.window.last_ms for each in asked
    )
