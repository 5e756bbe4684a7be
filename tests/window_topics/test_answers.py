"""What window topics answer on the Kafka port, beside a plain list of the log's messages."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.list_offsets import LARGEST, LATEST
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.protocol.window_topics import WindowName, window_name
from horolog.server.handlers import window_reads
from horolog.storage.index import time_map
from horolog.storage.log import admission
from horolog.storage.read import windows as storage_windows
from horolog.testing.broker import BrokerThread
from horolog.testing.requests import create_topic, produce, result
from horolog.testing.wire import Wire, wire
from horolog.tests.properties.examples import examples

from .reading import earliest, latest, offset_of, read

T0 = 1_479_132_000_000
NUMBERS = count()

times = st.one_of(
    st.integers(T0, T0 + 30),
    st.integers(T0, T0 + 30),
    st.integers(T0 - 86_400_000, T0 + 86_400_000),
    st.just(-1),
)


@dataclass(frozen=True)
class Sent:
    """A set of messages."""

    magic: int
    codec: Codec
    times_ms: list[int]
    value_bytes: int
    step_ms: int
    """How much time passes behind it."""

    @property
    def data(self) -> bytes:
        timed = self.magic > 0
        new = [
            NewRecord(b"v" * self.value_bytes, b"k", ms if timed else -1) for ms in self.times_ms
        ]
        return bytes(build_set(new, magic=self.magic, codec=self.codec))


def sets(magic: int) -> st.SearchStrategy[Sent]:
    codecs = [Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
    return st.builds(
        Sent,
        st.just(magic),
        st.sampled_from([*codecs, Codec.ZSTD] if magic == 2 else codecs),
        st.lists(times, min_size=1, max_size=30),
        st.sampled_from([0, 20, 500, 4_000]),
        st.sampled_from([0, 0, 1, 7]),
    )


formats = st.sampled_from([0, 1, 2, 2])


@st.composite
def sent_sets(draw: st.DrawFn) -> list[Sent]:
    """Of one format, or of another from one of them on."""
    first, second = draw(formats), draw(formats)
    return [
        *draw(st.lists(sets(first), min_size=1, max_size=5)),
        *draw(st.lists(sets(second), max_size=4)),
    ]


windows = st.tuples(
    st.integers(T0 - 5, T0 + 35) | st.just(T0 - 86_400_000),
    st.none() | st.integers(T0, T0 + 36) | st.just(T0 + 86_400_001),
)


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Small logs have time maps too, and sets are sent from their files."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (time_map, admission):
            patch.setattr(module, "BLOCK_BYTES", 600)
        patch.setattr(storage_windows, "UNMAPPED_BYTES", 600)
        patch.setattr(window_reads, "MIN_FILE_RANGE_BYTES", 400)
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    data: Path = tmp_path_factory.mktemp("windows") / "data"
    settings = {"kafka.listen": "127.0.0.1:0", "auto.create.topics.enable": "false"}
    with BrokerThread(data, settings) as running:
        running.clock.freeze()
        yield running


@dataclass(frozen=True)
class Stored:
    """A message as the oracle knows it."""

    offset: int
    time_ms: int
    append_ms: int


async def fill(
    server: BrokerThread, client: Wire, topic: str, sent: list[Sent], settings: dict[str, object]
) -> list[Stored]:
    """Make a topic, append the sets, and read all of it back."""
    made = await client.call(create_topic(topic, 1, **settings))
    assert made.topics[0].error_code == 0, made
    appended: list[int] = []
    for one in sent:
        answer = result(await client.call(produce(topic, one.data), 2 if one.magic < 2 else 7))
        assert answer.error_code == 0, answer
        appended += [server.clock.now_ms()] * len(one.times_ms)
        server.clock.jump(one.step_ms / 1000)
    return [
        Stored(one.offset, one.timestamp_ms, appended[one.offset])
        for one in await read(client, topic)
    ]


@examples(60)
@given(
    sent=sent_sets(),
    window=windows,
    by_append=st.booleans(),
    stamped=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    segment_bytes=st.sampled_from([130_000, 130_000, 1 << 30]),
    version=st.sampled_from([4, 7, 10, 10]),
    size=st.sampled_from([1, 300, 5_000, 1 << 20]),
    trim=st.integers(0, 60) | st.just(0),
    start=st.integers(0, 100) | st.none(),
)
def test_every_message_of_a_window_once_and_no_other(
    server: BrokerThread,
    sent: list[Sent],
    window: tuple[int, int | None],
    by_append: bool,
    stamped: str,
    segment_bytes: int,
    version: int,
    size: int,
    trim: int,
    start: int | None,
) -> None:
    from_ms, until_ms = window
    if by_append:
        now_ms = server.clock.now_ms()
        from_ms, until_ms = now_ms + from_ms - T0, until_ms and now_ms + until_ms - T0
    if until_ms is not None and until_ms <= from_ms:
        until_ms = from_ms + 10

    async def run() -> None:
        async with wire(str(server.kafka_address), kafka) as client:
            topic = f"t{next(NUMBERS)}"
            settings: dict[str, object] = {
                "segment_bytes": segment_bytes,
                "message_timestamp_type": stamped,
                "retention_ms": -1,
            }
            stored = await fill(server, client, topic, sent, settings)
            name = window_name(WindowName(topic, from_ms, until_ms, by_append))
            if trim:
                await trim_to(client, topic, min(trim, stored[-1].offset + 1))
            begin = await earliest(client, topic)

            def time_of(one: Stored) -> int:
                return one.append_ms if by_append else one.time_ms

            expected = [
                one
                for one in stored
                if one.offset >= begin
                and time_of(one) >= from_ms
                and (until_ms is None or time_of(one) < until_ms)
            ]
            offset = begin if start is None else min(max(start, begin), stored[-1].offset + 1)
            found = await read(
                client, name, offset, version=version, partition_max_bytes=size, max_wait_ms=200
            )
            assert [(one.offset, one.timestamp_ms) for one in found] == [
                (one.offset, one.time_ms) for one in expected if one.offset >= offset
            ]
            assert await earliest(client, name) == begin
            assert await latest(client, name) == (expected[-1].offset + 1 if expected else begin)
            target = from_ms + 7
            later = next((one for one in expected if time_of(one) >= target), None)
            assert await offset_of(client, name, target) == (
                (-1, -1) if later is None else (later.offset, time_of(later))
            )
            largest = max(expected, key=time_of, default=None)
            if largest is None:
                assert await offset_of(client, name, LARGEST) == (-1, -1)
            else:
                assert (await offset_of(client, name, LARGEST))[1] == time_of(largest)

    asyncio.run(run())


async def trim_to(client: Wire, topic: str, offset: int) -> None:
    partition = DeleteRecordsPartition(partition=0, offset=offset)
    named = DeleteRecordsTopic(name=topic, partitions=[partition])
    answer = result(await client.call(DeleteRecordsRequest(topics=[named], timeout_ms=1000)))
    assert answer.error_code == 0, answer


@pytest.mark.parametrize("version", range(11))
def test_every_version_of_fetch(server: BrokerThread, version: int) -> None:
    """Older ones get the messages in a format that they know."""

    async def run() -> None:
        async with wire(str(server.kafka_address), kafka) as client:
            topic = f"t{next(NUMBERS)}"
            sent = [Sent(2, codec, [T0 + ms for ms in range(10)], 20, 0) for codec in Codec]
            await fill(server, client, topic, sent, {"retention_ms": -1})
            name = window_name(WindowName(topic, T0 + 3, T0 + 6))
            if version < 10:
                await trim_to(client, topic, 0)
            found = await read(client, name, version=version, max_wait_ms=200)
            assert [one.offset for one in found] == [
                10 * number + ms for number in range(len(Codec)) for ms in (3, 4, 5)
            ]

    asyncio.run(run())


@pytest.mark.parametrize("version", range(8))
def test_every_version_of_list_offsets(server: BrokerThread, version: int) -> None:
    async def run() -> None:
        async with wire(str(server.kafka_address), kafka) as client:
            topic = f"t{next(NUMBERS)}"
            sent = [Sent(2, Codec.NONE, [T0 + ms for ms in range(10)], 20, 0)]
            await fill(server, client, topic, sent, {"retention_ms": -1})
            name = window_name(WindowName(topic, T0 + 3, T0 + 6))
            assert (await offset_of(client, name, LATEST, version=version))[0] == 6
            assert (await offset_of(client, name, T0 + 4, version=version))[0] == 4
            assert (await offset_of(client, name, T0, version=version))[0] == 3

    asyncio.run(run())
