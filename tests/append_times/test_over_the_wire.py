"""Append times through the protocol and the client."""

import struct
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from horolog.client.administer.admin import Admin
from horolog.client.consume.consumer import Consumer
from horolog.client.results import AfterEnd, Found, NoTimestamps
from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.log.list_offsets import EARLIEST, LARGEST, LATEST
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.errors import InvalidRequest
from horolog.protocol.limits import MAX_APPEND_TIMES
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import records
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    result,
    results,
)
from horolog.testing.wire import Wire, wire
from horolog.tests.followers.appending import append_copy

NOW = 1_479_144_272_509


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, clock, http_listen="off", retention_ms=-1) as started:
        yield started


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(broker.addresses.native) as connected:
        yield connected


async def fill(
    client: Wire, clock: ManualClock, *sizes: int, topic: str = "t", codec: Codec = Codec.NONE
) -> None:
    """Sets of so many messages, one every ten milliseconds."""
    for size in sizes:
        answer = await client.call(produce(topic, message_set(*[5] * size, codec=codec)))
        assert result(answer).error_code == 0
        clock.step(10)


def asking(*places: tuple[int, int], topic: str = "t", **limits: int) -> Any:
    request = fetch(topic, *places, **limits)
    request.include_append_times = True
    return request


def told(answer: Any) -> list[tuple[int, int]]:
    times = [(item.offset, item.append_time_ms) for item in answer.append_times]
    return [(offset, ms if ms == -1 else ms - NOW) for offset, ms in times]


def stored(answer: Any, offset: int = 0) -> list[int]:
    found = records(answer.records, max_decompressed_bytes=1 << 20, from_offset=offset)
    return [record.offset for record in found]


@pytest.mark.both_loops
@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_a_fetch_tells_them_when_asked(
    client: Wire, clock: ManualClock, version: int
) -> None:
    await fill(client, clock, 2, 1)
    await fill(client, clock, 3, codec=Codec.GZIP)
    answer = result(await client.call(asking((0, 0)), version))
    assert told(answer) == [(0, 0), (2, 10), (3, 20)]
    assert stored(answer) == [0, 1, 2, 3, 4, 5]
    assert told(result(await client.call(asking((0, 4)), version))) == [(3, 20)]
    assert told(result(await client.call(fetch("t", (0, 0)), version))) == []


async def test_nothing_read_nothing_told(client: Wire, clock: ManualClock) -> None:
    await fill(client, clock, 2)
    assert told(result(await client.call(asking((0, 2))))) == []
    answer = result(await client.call(asking((0, 3))))
    assert (answer.error_code, told(answer)) == (1, [])


async def test_several_partitions(client: Wire, clock: ManualClock) -> None:
    await client.call(create_topic("t", 2))
    for partition in (0, 1, 0):
        await client.call(produce("t", message_set(5), partition=partition))
        clock.step(10)
    answers = results(await client.call(asking((1, 0), (0, 1), (0, 0))))
    assert [told(answer) for answer in answers] == [[(0, 10)], [(1, 20)], [(0, 0), (1, 20)]]


async def test_a_fetch_that_waits(client: Wire, broker: Broker, clock: ManualClock) -> None:
    await fill(client, clock, 1)
    client.send(FETCH, 3, asking((0, 1), max_wait_ms=100_000, min_bytes=1))
    async with wire(broker.addresses.native) as other:
        await fill(other, clock, 2)
    _, response = await client.receive()
    assert told(result(response)) == [(1, 10)]


async def test_a_response_has_so_many_sets_at_most(client: Wire, clock: ManualClock) -> None:
    """The slices end where the times end, and the next fetch goes on from there."""
    await client.call(create_topic("t", 2))
    count = 1500
    wanted = MAX_APPEND_TIMES + 500
    for partition, sets in ((0, wanted), (1, count)):
        for start in range(0, sets, 500):
            clock.step(1)
            for _ in range(start, min(start + 500, sets)):
                client.send(PRODUCE, 2, produce("t", message_set(5), partition=partition))
            for _ in range(start, min(start + 500, sets)):
                await client.receive()
    first, second = results(await client.call(asking((0, 0), (1, 0), partition_max_bytes=1 << 26)))
    got = stored(first)
    assert got == list(range(len(got)))
    assert MAX_APPEND_TIMES - 10 < len(got) < MAX_APPEND_TIMES
    assert stored(second) == []
    assert second.high_watermark == count
    again = result(await client.call(asking((0, len(got)), partition_max_bytes=1 << 26)))
    assert stored(again) == list(range(len(got), wanted))


@pytest.mark.both_loops
async def test_a_search_goes_by_them_when_asked(client: Wire, clock: ManualClock) -> None:
    await fill(client, clock, 2, 1)
    clock.step(-100)
    await fill(client, clock, 1)
    cases = {-80: (0, 0), 0: (0, 0), 1: (2, 10), 10: (2, 10), 11: (-1, -1 - NOW)}
    for target, expected in cases.items():
        assert await find(client, NOW + target, "append") == expected, target
    assert await find(client, 5, "timestamp") == (0, 5 - NOW)
    assert await find(client, 5, "") == (0, 5 - NOW)
    assert await find(client, NOW, "timestamp") == (-1, -1 - NOW)


async def find(client: Wire, target_ms: int, by: str, version: int = 1) -> tuple[int, int]:
    answer = await ask(client, target_ms, by, version)
    assert answer.error_code == 0, answer.error_message
    return answer.offset, answer.timestamp - NOW


async def ask(client: Wire, target_ms: int, by: str, version: int = 1) -> Any:
    request = list_offsets("t", (0, target_ms))
    request.topics[0].partitions[0].by = by
    return result(await client.call(request, version))


@pytest.mark.parametrize(
    ("target_ms", "by", "version", "text"),
    [
        pytest.param(NOW, "appended", 1, "'timestamp' or 'append'", id="unknown"),
        pytest.param(NOW, "append", 0, "version 1", id="version-0"),
        pytest.param(LARGEST, "append", 1, "by timestamps", id="largest"),
        pytest.param(-6, "append", 1, "means nothing", id="no-time"),
    ],
)
async def test_a_search_that_makes_no_sense_is_refused(
    client: Wire, clock: ManualClock, target_ms: int, by: str, version: int, text: str
) -> None:
    await fill(client, clock, 1)
    answer = await ask(client, target_ms, by, version)
    assert answer.error_code == InvalidRequest.code
    assert text in answer.error_message


async def test_start_and_end_are_the_same_by_both(client: Wire, clock: ManualClock) -> None:
    await fill(client, clock, 2)
    for target, offset in ((LATEST, 2), (EARLIEST, 0)):
        assert (await find(client, target, "append"))[0] == offset
        assert (await find(client, target, "timestamp"))[0] == offset


async def test_a_topic_whose_format_has_no_times(client: Wire, clock: ManualClock) -> None:
    await client.call(create_topic("t", message_format_version="0.9.0"))
    await fill(client, clock, 1, 1)
    assert await find(client, NOW + 1, "append") == (1, 10)


async def test_the_client(broker: Broker, client: Wire, clock: ManualClock) -> None:
    await fill(client, clock, 2, 1)
    async with Consumer(broker.addresses.native, append_times=True, max_wait_ms=0) as consumer:
        consumer.assign("t", offset=1)
        read = await consumer.fetch()
        assert [(record.offset, record.append_time_ms) for record in read] == [
            (1, NOW),
            (2, NOW + 10),
        ]
        when = datetime.fromtimestamp((NOW + 5) / 1000, UTC)
        assert await consumer.seek_to_time(when, by="append") == {("t", 0): Found(2, NOW + 10)}
        assert consumer.position("t") == 2
        late = await consumer.seek_to_time(timestamp_ms=NOW + 11, by="append")
        assert late == {("t", 0): AfterEnd(3)}
        assert consumer.position("t") == 3
    async with Consumer(broker.addresses.native, max_wait_ms=0) as consumer:
        consumer.assign("t")
        assert {record.append_time_ms for record in await consumer.fetch()} == {None}
    async with Admin(broker.addresses.native, check_units=False) as admin:
        assert await admin.find_offset("t", timestamp_ms=NOW, by="append") == Found(0, NOW)
        assert await admin.find_offset("t", timestamp_ms=NOW) == AfterEnd(3)
        assert await admin.find_offset("t", timestamp_ms=3) == Found(0, 5)
        assert await admin.find_offset("t", timestamp_ms=NOW + 11, by="append") == AfterEnd(3)
        with pytest.raises(ValueError, match="'timestamp' or 'append'"):
            await admin.find_offset("t", timestamp_ms=NOW, by="appended")  # type: ignore[arg-type]


async def test_a_restart_in_between(tmp_path: Path, clock: ManualClock) -> None:
    """The files of all segments are looked at when somebody asks, and one of them is gone."""

    def start() -> AbstractAsyncContextManager[Broker]:
        return running_broker(
            tmp_path, clock, http_listen="off", segment_bytes=2 * 39, retention_ms=-1
        )

    async with start() as broker, wire(broker.addresses.native) as client:
        await fill(client, clock, *[1] * 6)
    (tmp_path / "t-0" / f"{2:020d}.appendtime").unlink()
    path = tmp_path / "t-0" / f"{4:020d}.appendtime"
    path.write_bytes(path.read_bytes()[:12] + struct.pack(">iq", 1, NOW + 5000))
    async with start() as broker:
        async with Consumer(broker.addresses.native, append_times=True, max_wait_ms=0) as consumer:
            consumer.assign("t")
            read: list[int | None] = []
            while batch := await consumer.fetch():
                read += [record.append_time_ms for record in batch]
        assert read == [NOW, NOW + 10, None, None, None, None]
        async with Admin(broker.addresses.native) as admin:
            assert await admin.find_offset("t", timestamp_ms=NOW + 5, by="append") == Found(
                1, NOW + 10
            )
            assert await admin.find_offset("t", timestamp_ms=NOW + 50, by="append") == AfterEnd(6)


async def test_a_log_without_them(broker: Broker, client: Wire, clock: ManualClock) -> None:
    await client.call(create_topic("t"))
    append_copy(broker.directory.log("t", 0), message_set(5, 6))
    async with Admin(broker.addresses.native, check_units=False) as admin:
        assert await admin.find_offset("t", timestamp_ms=3, by="append") == NoTimestamps()
        assert await admin.find_offset("t", timestamp_ms=3) == Found(0, 5)
    async with Consumer(broker.addresses.native, append_times=True, max_wait_ms=0) as consumer:
        consumer.assign("t")
        assert [record.append_time_ms for record in await consumer.fetch()] == [None, None]
