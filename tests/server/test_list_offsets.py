"""list-offsets over the wire: both versions, sentinels, watermark, and many partitions at once."""

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import cast

import pytest

from horolog.protocol.api.log.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest
from horolog.protocol.errors import InvalidRequest, UnknownTopicOrPartition, UnsupportedVersion
from horolog.protocol.records.layout import Codec
from horolog.server.broker import Broker
from horolog.server.handlers.list_offsets import handle_many
from horolog.server.requests import PendingAnswer
from horolog.testing.broker import running_broker
from horolog.testing.requests import (
    create_topic,
    list_offsets,
    message_set,
    produce,
    result,
    results,
)
from horolog.testing.wire import Wire, wire

LATEST, EARLIEST, LARGEST = -1, -2, -3
OF_TIERED_STORAGE = (-4, -5)


async def fill(client: Wire, *times: int, topic: str = "a", codec: Codec = Codec.NONE) -> None:
    await client.call(produce(topic, message_set(*times, codec=codec)))


async def find(client: Wire, target: int, replica_id: int = -1) -> tuple[int, int]:
    got = result(await client.call(list_offsets("a", (0, target), replica_id=replica_id)))
    assert got.error_code == 0
    return got.timestamp, got.offset


@pytest.mark.both_loops
@pytest.mark.parametrize(
    ("times", "target", "found"),
    [
        pytest.param((10, 20, 20, 30), 20, (20, 1), id="tc72-L-20"),
        pytest.param((10, 20, 20, 30), 21, (30, 3), id="tc73-L-20-between"),
        pytest.param((10, 20, 20, 30), 30, (30, 3), id="tc73-L-20-largest"),
        pytest.param((10, 20, 20, 30), 31, (-1, -1), id="tc73-L-20-after"),
        pytest.param((10, 20, 20, 30), 0, (10, 0), id="tc73-L-20-before"),
        pytest.param((10, 40, 20, 30), 25, (40, 1), id="tc74-L-20-out-of-order"),
        pytest.param((), 5, (-1, -1), id="tc89-L-20-empty"),
        pytest.param((10, 40, 40, 30), LARGEST, (40, 1), id="decision-8-largest"),
        pytest.param((), LARGEST, (-1, -1), id="decision-8-largest-of-nothing"),
        pytest.param((10, 40), LATEST, (-1, 2), id="L-21-latest"),
        pytest.param((10, 40), EARLIEST, (-1, 0), id="L-21-earliest"),
        pytest.param((), LATEST, (-1, 0), id="L-21-latest-empty"),
    ],
)
async def test_version_1(
    client: Wire, times: tuple[int, ...], target: int, found: tuple[int, int]
) -> None:
    """L-3."""
    await client.call(create_topic("a"))
    if times:
        await fill(client, *times)
    assert await find(client, target) == found


async def test_inside_a_compressed_set(client: Wire) -> None:
    """tc75, L-23."""
    await fill(client, *[1] * 5)
    await fill(client, 100, 300, 200, codec=Codec.GZIP)
    assert await find(client, 150) == (300, 6)


async def test_above_the_watermark_nothing_is_found(broker: Broker, client: Wire) -> None:
    """tc79 and tc81, L-26 and L-21."""
    await fill(client, 1, 2, 3, 9, 9)
    broker.directory.log("a", 0).hold_high_watermark(3)
    assert await find(client, 9) == (-1, -1)
    assert await find(client, 3) == (3, 2)
    assert await find(client, LATEST) == (-1, 3)
    assert await find(client, LATEST, replica_id=1) == (-1, 5)
    assert await find(client, LARGEST) == (3, 2)


@pytest.mark.parametrize("replica_id", [1, -2], ids=["tc80-L-4-broker", "tc80-L-4-debugging"])
async def test_others_than_consumers_see_the_whole_log(
    broker: Broker, client: Wire, replica_id: int
) -> None:
    await fill(client, 1, 2, 3, 9, 9)
    broker.directory.log("a", 0).hold_high_watermark(3)
    assert await find(client, 9, replica_id=replica_id) == (9, 3)
    assert await find(client, LARGEST, replica_id=replica_id) == (9, 3)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("target", range(-10, -3), ids=lambda target: f"fault13-L-29-{target}")
async def test_other_negative_targets_are_refused(client: Wire, version: int, target: int) -> None:
    await fill(client, 10)
    got = result(await client.call(list_offsets("a", (0, target)), version))
    expected = UnsupportedVersion if target in OF_TIERED_STORAGE else InvalidRequest
    assert got.error_code == expected.code
    assert str(target) in got.error_message
    assert (got.timestamp, got.offset, got.old_style_offsets) == (-1, -1, [])


@pytest.mark.parametrize("version", [0, 1])
async def test_a_partition_named_twice(client: Wire, version: int) -> None:
    """tc84, fault13, L-5: one refusal; the others are answered."""
    await client.call(create_topic("a", partitions=2))
    await fill(client, 10)
    request = list_offsets("a", (0, 5), (1, LATEST), (0, 7))
    first, second = results(await client.call(request, version))
    assert (first.partition, first.error_code) == (0, InvalidRequest.code)
    assert (first.timestamp, first.offset, first.old_style_offsets) == (-1, -1, [])
    assert (second.partition, second.error_code) == (1, 0)


async def test_each_request_of_many_has_its_own_outcome(broker: Broker, client: Wire) -> None:
    await fill(client, 10, 40)
    heavy = message_set(50, 60, codec=Codec.GZIP, value=bytes(200_000))
    await client.call(produce("heavy", heavy))
    broken = ListOffsetsRequest(topics=cast(list[ListOffsetsTopic], None))
    requests = [
        list_offsets("a", (0, 20)),
        broken,
        list_offsets("heavy", (0, 55)),
        list_offsets("missing", (0, 20)),
        list_offsets("a", (0, LATEST)),
    ]
    first, failed, later, unknown, last = handle_many(broker.services, 1, requests)
    assert (result(first).timestamp, result(first).offset) == (40, 1)
    assert isinstance(failed, TypeError)
    assert isinstance(later, PendingAnswer)
    assert result(unknown).error_code == UnknownTopicOrPartition.code
    assert result(last).offset == 2
    assert isinstance(later.ready, asyncio.Future)
    await later.ready
    assert result(later.make()).offset == 1


async def test_unknown_partitions(client: Wire) -> None:
    """L-6."""
    await fill(client, 10)
    for request in (list_offsets("nowhere", (0, 5)), list_offsets("a", (1, 5))):
        got = result(await client.call(request))
        assert got.error_code == UnknownTopicOrPartition.code
        assert (got.timestamp, got.offset) == (-1, -1)


async def listed(client: Wire, target: int, count: int) -> list[int]:
    request = list_offsets("a", (0, target), max_num_offsets=count)
    got = result(await client.call(request, 0))
    assert got.error_code == 0
    offsets: list[int] = got.old_style_offsets
    return offsets


async def test_version_0_lists_segments(client: Wire) -> None:
    """tc85, L-14."""
    await client.call(create_topic("a", segment_bytes=2 * 39, retention_ms=-1))
    for _ in range(20):
        await fill(client, 1000)
    assert await listed(client, LATEST, 15) == [*range(20, -1, -2)]
    assert await listed(client, LATEST, 3) == [20, 18, 16]
    assert await listed(client, EARLIEST, 10) == [0]
    assert await listed(client, LATEST, 0) == []


async def test_version_0_begins_with_the_exact_answer(client: Wire) -> None:
    """Decision 8: whatever is before the first offset is older than the target (D10)."""
    await client.call(create_topic("a", segment_bytes=3 * 39, retention_ms=-1))
    for time in range(100, 1000, 100):
        await fill(client, time)
    assert await listed(client, 500, 10) == [4, 3, 0]
    assert await listed(client, 10_000, 10) == [9, 6, 3, 0]
    assert await listed(client, 1, 10) == [0]
    assert await listed(client, LARGEST, 10) == [8, 6, 3, 0]


async def test_version_0_of_an_empty_log(client: Wire) -> None:
    """L-14."""
    await client.call(create_topic("a"))
    assert await listed(client, LATEST, 5) == [0]
    assert await listed(client, EARLIEST, 5) == [0]
    assert await listed(client, LARGEST, 5) == []


async def test_version_0_refuses_a_negative_count(client: Wire) -> None:
    """L-12."""
    await fill(client, 10)
    got = result(await client.call(list_offsets("a", (0, 5), max_num_offsets=-1), 0))
    assert got.error_code == InvalidRequest.code
    assert "max_num_offsets" in got.error_message


async def test_as_many_partitions_as_a_request_can_name_do_not_stop_the_others(
    broker: Broker, client: Wire
) -> None:
    """fault13 and decision 10."""
    await client.call(create_topic("a", partitions=100))
    topics = [
        ListOffsetsTopic(
            name="a",
            partitions=[
                ListOffsetsPartition(partition=number, timestamp=LATEST) for number in range(19_000)
            ],
        )
    ]
    client.send(LIST_OFFSETS, 1, ListOffsetsRequest(topics=topics))
    answer = asyncio.ensure_future(client.receive())
    async with wire(broker.addresses.native) as other:
        between = 0
        while not answer.done():
            await other.call(list_offsets("a", (0, LATEST)))
            between += 1
        _, response = await answer
    assert between > 10
    codes = [got.error_code for got in results(response)]
    assert codes == [0] * 100 + [UnknownTopicOrPartition.code] * 18_900


@pytest.mark.both_loops
async def test_searching_a_log_that_is_not_prepared(tmp_path: Path) -> None:
    def start() -> AbstractAsyncContextManager[Broker]:
        return running_broker(tmp_path, http_listen="off", segment_bytes=3 * 39, retention_ms=-1)

    async with (
        start() as broker,
        wire(broker.addresses.native) as client,
    ):
        for time in range(100, 1000, 100):
            await fill(client, time)
    for path in (tmp_path / "a-0").glob("*.timeindex"):
        os.unlink(path)
    async with start() as broker:
        async with wire(broker.addresses.native) as client:
            client.send(LIST_OFFSETS, 1, list_offsets("a", (0, 250)))
            client.send(METADATA, 0, MetadataRequest())
            assert result((await client.receive())[1]).offset == 2
            await client.receive()
            assert await find(client, 650) == (700, 6)
        assert broker.figures.topic("a").index_rebuilds > 0
