"""Requests that name thousands of windows: an append costs a waiting one no more than one of few
windows."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count
from random import Random
from typing import Any

import pytest

from horolog.protocol import window_topics
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.fetch import FetchPartition, FetchRequest, FetchTopic
from horolog.protocol.api.log.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import UnknownTopicOrPartition
from horolog.protocol.records.layout import Codec
from horolog.server import work
from horolog.server.broker import Broker
from horolog.server.handlers import window_fetch, window_offsets
from horolog.server.handlers.window_fetch import WINDOW_COUNTS_AS
from horolog.storage.log.recent_appends import TimeIntervals
from horolog.storage.read.window_sets import LogWindow
from horolog.storage.read.windows import WindowPosition
from horolog.testing.requests import create_topic, message_set, produce, result
from horolog.testing.wire import Wire, wire

AT_14 = 1_479_132_000_000
HOUR_MS = 3_600_000
MANY = 2_000


@pytest.fixture
async def reader(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(str(broker.addresses.kafka), kafka) as connected:
        yield connected


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[LogWindow]:
    """The windows for which a log was searched."""
    found: list[LogWindow] = []
    find = LogWindow.find

    def noted(self: LogWindow, log: Any, offset: int, end_offset: int) -> WindowPosition:
        found.append(self)
        return find(self, log, offset, end_offset)

    monkeypatch.setattr(LogWindow, "find", noted)
    return found


def wait_for(*names: str, offset: int, partitions: int = 1, wait_ms: int = 60_000) -> FetchRequest:
    wanted = [
        FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=1 << 20)
        for each in range(partitions)
    ]
    topics = [FetchTopic(name=name, partitions=wanted) for name in names]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


async def parked(broker: Broker, reader: Wire, request: FetchRequest) -> asyncio.Task[Any]:
    """Have a fetch wait."""
    waiting = asyncio.create_task(reader.call(request, 10))
    async with asyncio.timeout(20):
        while not len(broker.services.fetches):  # noqa: ASYNC110 - of the same loop
            await asyncio.sleep(0)
    return waiting


async def settled(broker: Broker) -> None:
    """Have the requests that were woken go on, and wait until one waits again."""
    async with asyncio.timeout(20):
        for turns in count():
            await asyncio.sleep(0)
            if turns > 50 and len(broker.services.fetches):
                break


async def test_appends_of_other_times_cost_one_check(
    broker: Broker,
    client: Wire,
    reader: Wire,
    searches: list[LogWindow],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await client.call(produce("t", message_set(AT_14)), 7)
    names = [f"t..{AT_14 + HOUR_MS + 2 * number}..1ms" for number in range(MANY)]
    waiting = await parked(broker, reader, wait_for(*names, offset=1))
    checks: list[tuple[int, int]] = []
    meet = TimeIntervals.meet

    def counted(self: TimeIntervals, first_ms: int, last_ms: int) -> bool:
        checks.append((first_ms, last_ms))
        return meet(self, first_ms, last_ms)

    monkeypatch.setattr(TimeIntervals, "meet", counted)
    searches.clear()
    for number in range(100):  # between the windows, and beside them
        await client.call(produce("t", message_set(AT_14 + HOUR_MS + 2 * number + 1)), 7)
        await client.call(produce("t", message_set(AT_14 - number, AT_14 + 3 * HOUR_MS)), 7)
    assert searches == []
    assert len(checks) <= 700
    time_ms = AT_14 + HOUR_MS + 2 * (MANY // 2)
    await client.call(produce("t", message_set(time_ms)), 7)
    async with asyncio.timeout(20):
        answer = await waiting
    found = [topic.name for topic in answer.topics if topic.partitions[0].records]
    assert found == [f"t..{time_ms}..1ms"]


@pytest.mark.parametrize("seed", range(4))
async def test_beside_a_plain_list(
    broker: Broker, client: Wire, reader: Wire, searches: list[LogWindow], seed: int
) -> None:
    """A fetch is answered by the first append with a message in one of its windows, and by none
    before it. Partitions, windows by message and by append time, and spread sets are mixed."""
    random = Random(seed)
    await client.call(create_topic("t", partitions=2, retention_ms=-1))
    ends = [0, 0]
    for _ in range(6):
        spans = []
        for _ in range(random.choice([1, 3, 40])):
            start = AT_14 + random.randrange(1_000)
            spans.append((start, start + random.choice([1, 2, 30])))
        names = [f"t..{start}..{end}" for start, end in spans]
        names += [f"t..{start}..{end}..append" for start, end in spans[:2]]  # long over
        request = wait_for(*names, offset=0, partitions=2)
        for topic in request.topics:
            topic.partitions = [
                FetchPartition(partition=each, fetch_offset=ends[each], partition_max_bytes=1 << 20)
                for each in range(2)
            ]
        waiting = await parked(broker, reader, request)
        searches.clear()
        for _ in range(200):
            partition = random.randrange(2)
            times = [AT_14 + random.randrange(1_000) for _ in range(random.choice([1, 1, 3]))]
            inside = any(start <= time_ms < end for time_ms in times for start, end in spans)
            data = message_set(*times, magic=2, codec=random.choice([Codec.NONE, Codec.GZIP]))
            answer = result(await client.call(produce("t", data, partition=partition), 7))
            assert answer.error_code == 0
            ends[partition] += len(times)
            if inside:
                break
            spanned = any(start <= max(times) and min(times) < end for start, end in spans)
            if spanned:  # It may look, and waits again.
                await settled(broker)
            else:
                assert searches == []
            searches.clear()
            assert not waiting.done()
        else:
            await client.call(produce("t", message_set(spans[0][0])), 7)
            ends[0] += 1
        async with asyncio.timeout(20):
            found = await waiting
        assert any(each.records for topic in found.topics for each in topic.partitions)


async def test_each_window_counts_as_waiting(
    broker: Broker, client: Wire, reader: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than may wait are answered at once, although they are of one partition."""
    await client.call(produce("t", message_set(AT_14)), 7)
    monkeypatch.setattr(broker.services.fetches, "_partitions_max", 10 * WINDOW_COUNTS_AS)
    names = [f"t..{AT_14 + HOUR_MS + number}..1ms" for number in range(11)]
    async with asyncio.timeout(20):
        await reader.call(wait_for(*names, offset=1), 10)
    assert broker.services.figures.parked_refused == 1
    waiting = await parked(broker, reader, wait_for(*names[:10], offset=1))
    assert not broker.services.fetches.has_room(1)
    waiting.cancel()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many names were parsed in each turn of the event loop. A turn is too short for many, also
    where others take their time."""
    for name in ("TURN_SECONDS", "MAX_TURN_SECONDS"):
        monkeypatch.setattr(work, name, 0.0001)
    found = Counter[int]()
    turn = count()
    now = next(turn)
    loop = asyncio.get_event_loop()
    parse = window_topics.parse_window_name

    def tick() -> None:
        nonlocal now
        now = next(turn)
        loop.call_soon(tick)

    def counted(name: str) -> Any:
        found[now] += 1
        return parse(name)

    loop.call_soon(tick)
    monkeypatch.setattr(window_topics, "parse_window_name", counted)
    return found


def names_of(kind: str) -> list[str]:
    base = "t" if kind == "windows" else "missing"
    end = "yesterday" if kind == "ordinary" else "1ms"
    return [f"{base}..{AT_14 + number}..{end}" for number in range(MANY)]


def reading(kind: str, *names: str) -> Any:
    if kind == "metadata":
        wanted = [MetadataTopic(name=name) for name in names]
        return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    if kind == "fetch":
        return wait_for(*names, offset=0, wait_ms=0)
    places = [ListOffsetsPartition(partition=0, timestamp=LATEST)]
    topics = [ListOffsetsTopic(name=name, partitions=places) for name in names]
    return ListOffsetsRequest(topics=topics)


@pytest.mark.parametrize("names", ["windows", "missing", "ordinary"])
@pytest.mark.parametrize("kind", ["metadata", "fetch", "list-offsets"])
async def test_names_are_parsed_in_turns(
    client: Wire, kind: str, names: str, parsed: Counter[int]
) -> None:
    """The rest of the request is answered as by itself, in its order."""
    await client.call(create_topic("t"))
    await client.call(produce("t", message_set(AT_14 + 1)), 7)
    parsed.clear()
    own = names_of(names)
    answer = await client.call(reading(kind, *own, "t"), 7)
    assert max(parsed.values(), default=0) < MANY // 2
    by_name = {topic.name: topic for topic in answer.topics}
    assert len(by_name) == MANY + 1
    (alone,) = (await client.call(reading(kind, "t"), 7)).topics
    assert by_name["t"] == alone
    if names != "windows":
        assert [topic.name for topic in answer.topics] == [*own, "t"]
        codes = {_code_of(by_name[name]) for name in own}
        assert codes == {UnknownTopicOrPartition.code}
    else:
        assert {_code_of(by_name[name]) for name in own} == {0}


@pytest.mark.parametrize("kind", ["fetch", "list-offsets"])
async def test_windows_whose_base_is_created_while_names_are_parsed(
    broker: Broker, client: Wire, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are unknown, as before: clients ask again after this error, and after no other."""
    module = window_fetch if kind == "fetch" else window_offsets
    split = module.split_windows

    async def then_created(*arguments: Any) -> Any:
        found = await split(*arguments)
        broker.directory.create_topic("missing", 1, {})
        return found

    monkeypatch.setattr(module, "split_windows", then_created)
    answer = await client.call(reading(kind, *names_of("missing")), 7)
    assert {_code_of(topic) for topic in answer.topics} == {UnknownTopicOrPartition.code}
    monkeypatch.undo()
    answer = await client.call(reading(kind, *names_of("missing")), 7)
    assert {_code_of(topic) for topic in answer.topics} == {0}


def _code_of(topic: Any) -> int:
    return int(topic.error_code if hasattr(topic, "error_code") else topic.partitions[0].error_code)
