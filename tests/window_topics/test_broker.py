"""Window topics of large logs, of logs that are cut off or trimmed, and who may read them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from horolog import Admin, Consumer, UnknownTopicOrPartition
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.security.acl_terms import Operation, ResourceType
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import OffsetOutOfRange, TopicAuthorizationFailed
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set, records
from horolog.server.broker import Broker
from horolog.storage.read.slices import Slice
from horolog.testing.broker import running_broker
from horolog.testing.requests import fetch, list_offsets, produce, result, results
from horolog.testing.wire import Wire, wire
from horolog.tests.rights.conftest import add, only, rule

from .reading import LIMIT, latest, read

AT_14 = 1_479_132_000_000
HOUR_MS = 3_600_000
HOUR = "20161114T14Z..1h"


def timed(times: range, *, value_bytes: int = 500, codec: Codec = Codec.NONE) -> bytes:
    random = Random(times[0])
    new = [NewRecord(random.randbytes(value_bytes), b"k", time_ms) for time_ms in times]
    return bytes(build_set(new, magic=2, codec=codec))


async def append(client: Wire, topic: str, data: bytes) -> None:
    assert result(await client.call(produce(topic, data), 7)).error_code == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_a_window_of_a_large_log_costs_what_it_holds(
    broker: Broker, client: Wire, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sets of a second each, a message each 10 ms; the window begins and ends within a set."""
    for second in range(120):
        begin_ms = AT_14 + second * 1_000
        await append(client, "t", timed(range(begin_ms, begin_ms + 1_000, 10), codec=codec))
    name = f"t..{AT_14 + 30_255}..{AT_14 + 90_255}"
    found = await read(client, name)
    log = broker.services.logs.find("t", 0)
    read_bytes = 0
    read_now = Slice.read_now

    def counted(self: Slice) -> object:
        nonlocal read_bytes
        read_bytes += self.size
        return read_now(self)

    monkeypatch.setattr(Slice, "read_now", counted)
    found = await read(client, name)
    assert [one.offset for one in found] == list(range(3_026, 9_026))
    assert {one.timestamp_ms - AT_14 - 10 * one.offset for one in found} == {0}
    whole_bytes = log.size_bytes / 2
    assert read_bytes <= 1.5 * whole_bytes
    assert await latest(client, name) == 9_026


async def test_the_last_message_of_a_large_log_and_then_the_end(
    broker: Broker, client: Wire
) -> None:
    """With a wait that is much shorter than a plain scan would take, and a map to be made."""
    for _ in range(60):
        await append(client, "t", timed(range(AT_14 - HOUR_MS, AT_14 - HOUR_MS + 400)))
    await append(client, "t", timed(range(AT_14, AT_14 + 1)))
    position, found = 0, list[int]()
    for _ in range(200):
        answer = result(
            await client.call(fetch(f"t..{HOUR}", (0, position), max_wait_ms=20, min_bytes=1), 10)
        )
        if answer.records:
            got = records(bytes(answer.records), max_decompressed_bytes=LIMIT)
            found += [one.offset for one in got]
            position = found[-1] + 1
        elif answer.high_watermark == position:
            break
    assert found == [24_000]
    assert position == 24_001


async def test_a_log_that_is_cut_off(broker: Broker, client: Wire) -> None:
    await append(client, "t", timed(range(AT_14, AT_14 + 10)))
    name = f"t..{HOUR}"
    assert await latest(client, name) == 10
    broker.services.logs.find("t", 0).truncate(0)
    assert await latest(client, name) == 0
    assert await read(client, name) == []
    await append(client, "t", timed(range(AT_14 - 5, AT_14 + 2)))
    assert [one.offset for one in await read(client, name)] == [5, 6]
    answer = result(await client.call(fetch(name, (0, 8)), 10))
    assert answer.error_code == OffsetOutOfRange.code


async def test_a_topic_that_is_deleted_while_a_reader_waits(broker: Broker, client: Wire) -> None:
    await append(client, "t", timed(range(AT_14, AT_14 + 1)))
    waiting = asyncio.create_task(
        client.call(fetch(f"t..{HOUR}", (0, 1), max_wait_ms=20_000, min_bytes=1), 10)
    )
    async with wire(str(broker.addresses.kafka), kafka) as other:
        for _ in range(1_000):
            if len(broker.services.fetches):
                break
            await asyncio.sleep(0.01)
        await other.call(DeleteTopicsRequest(topic_names=["t"]))
        async with asyncio.timeout(10):
            assert result(await waiting).error_code == UnknownTopicOrPartition.code


async def test_positions_between_the_log_start_and_the_log_end(
    broker: Broker, client: Wire
) -> None:
    await append(client, "t", timed(range(AT_14 - 2, AT_14 + 2)))
    await append(client, "t", timed(range(AT_14 - 9, AT_14 - 2)))
    name = f"t..{HOUR}"
    for offset, mark in ((0, 4), (3, 4), (4, 4), (7, 7), (11, 11)):
        answer = result(await client.call(fetch(name, (0, offset)), 10))
        assert (answer.error_code, answer.high_watermark) == (0, mark)
        assert answer.last_stable_offset == mark
        assert bool(answer.records) == (offset < 4)
    assert result(await client.call(fetch(name, (0, 12)), 10)).error_code == OffsetOutOfRange.code
    broker.services.logs.find("t", 0).expiry.trim(5)
    assert result(await client.call(fetch(name, (0, 4)), 10)).error_code == OffsetOutOfRange.code
    assert await latest(client, name) == 5


async def test_clients_of_our_own_take_a_window_as_a_topic(broker: Broker, client: Wire) -> None:
    await append(client, "t", timed(range(AT_14 - 3, AT_14 + 3)))
    name = f"t..{HOUR}"
    async with Consumer(broker.addresses.native, max_wait_ms=50) as consumer:
        consumer.assign(name)
        assert [one.offset for one in await consumer.fetch()] == [3, 4, 5]
        assert await consumer.fetch() == []
        (lag,) = (await consumer.lag()).values()
        assert lag.messages == 0
    async with Admin(broker.addresses.native) as admin:
        start, end = await admin.list_offsets(name, 0, [-2, -1])
        assert (start.offset, end.offset) == (0, 6)
        assert (await admin.describe_topic(name)).partitions == 1
        with pytest.raises(UnknownTopicOrPartition, match="reads as a window of nowhere, and ther"):
            await admin.partition_count(f"nowhere..{HOUR}")
        with pytest.raises(UnknownTopicOrPartition, match="No time is in a window that ends"):
            await admin.partition_count("t..20161114T14Z..0h")


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path / "data",
        http_listen="off",
        kafka_listen="127.0.0.1:0",
        retention_ms=-1,
        authorization="on",
    ) as started:
        yield started


READ = (Operation.READ, ResourceType.TOPIC)


async def test_rights_are_those_on_the_base(guarded: Broker) -> None:
    every = [
        rule((operation, ResourceType.TOPIC))
        for operation in (Operation.WRITE, Operation.CREATE, Operation.DESCRIBE)
    ]
    only(guarded, *every)
    async with wire(str(guarded.addresses.kafka), kafka) as client:
        await append(client, "t", timed(range(AT_14 - 1, AT_14 + 2)))
        name = f"t..{HOUR}"
        only(guarded, rule(READ, name))  # which is a right on a topic of this name
        for request in (
            fetch(name, (0, 0)),
            list_offsets(name, (0, -1)),
            MetadataRequest(topics=[MetadataTopic(name=name)]),
        ):
            answer = await client.call(request)
            parts = results(answer) if hasattr(answer.topics[0], "partitions") else []
            codes = [getattr(one, "error_code", 0) for one in (*answer.topics, *parts)]
            assert TopicAuthorizationFailed.code in codes, answer
        add(guarded, rule(READ, "t"))
        assert [one.offset for one in await read(client, name)] == [1, 2]
        answer = await client.call(MetadataRequest(topics=[MetadataTopic(name=name)]))
        assert answer.topics[0].error_code == 0


async def test_a_writer_beside_many_readers(broker: Broker, client: Wire) -> None:
    """Each reader gets every message of its window once, while others are appended."""
    name = f"t..{HOUR}"
    await append(client, "t", timed(range(AT_14, AT_14 + 1)))

    async def follow(total: int) -> list[int]:
        found: list[int] = []
        async with wire(str(broker.addresses.kafka), kafka) as reader:
            position = 0
            while len(found) < total:
                request = fetch(name, (0, position), max_wait_ms=500, min_bytes=1)
                answer = result(await reader.call(request, 10))
                data = bytes(answer.records or b"")
                got = records(data, max_decompressed_bytes=LIMIT, from_offset=position)
                found += [one.offset for one in got]
                position = found[-1] + 1 if found else 0
        return found

    readers = [asyncio.create_task(follow(81)) for _ in range(5)]
    for number in range(40):
        codec = Codec.GZIP if number % 3 else Codec.NONE
        await append(client, "t", timed(range(AT_14 - 4, AT_14 + 2), value_bytes=20, codec=codec))
    expected = [0, *(1 + 6 * number + inside for number in range(40) for inside in (4, 5))]
    async with asyncio.timeout(30):
        for reader in readers:
            assert await reader == expected


async def test_a_fetch_selects_messages_when_its_turn_has_come(
    broker: Broker, client: Wire
) -> None:
    """Otherwise each of a hundred requests in flight would hold the messages that it found."""
    await append(client, "t", timed(range(AT_14 - 500, AT_14 + 500, 10)))
    waits = fetch(f"t..{HOUR}", (0, 0), max_wait_ms=30_000, min_bytes=10**6)
    client.send_together(*[waits] * 30)
    assert broker.addresses.kafka is not None
    async with wire(broker.addresses.kafka, kafka) as other:
        while not len(broker.services.fetches):
            await other.call(MetadataRequest(topics=[]))
        for _ in range(30):
            await other.call(MetadataRequest(topics=[]))
    assert len(broker.services.fetches) == 1
