"""Named positions over the wire."""

from pathlib import Path

import pytest

from horolog.protocol.api.groups.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.errors import (
    InvalidCommitOffsetSize,
    InvalidGroupId,
    InvalidRequest,
    OffsetMetadataTooLarge,
    UnknownTopicOrPartition,
)
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, result, results
from horolog.testing.wire import Wire, wire


def commit(
    name: str, topic: str, *positions: tuple[int, int], metadata: str = "", timestamp_ms: int = -1
) -> OffsetCommitRequest:
    """`positions` are (partition, offset)."""
    partitions = [
        OffsetCommitPartition(
            partition=number,
            committed_offset=offset,
            committed_metadata=metadata,
            timestamp_ms=timestamp_ms,
        )
        for number, offset in positions
    ]
    topics = [OffsetCommitTopic(name=topic, partitions=partitions)]
    return OffsetCommitRequest(group_id=name, topics=topics)


def ask(name: str, topic: str, *partitions: int) -> OffsetFetchRequest:
    topics = [OffsetFetchTopic(name=topic, partitions=list(partitions))]
    return OffsetFetchRequest(group_id=name, topics=topics)


@pytest.mark.both_loops
async def test_a_commit_is_there_and_survives_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        running_broker(tmp_path, clock, http_listen="off") as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a", partitions=2))
        request = commit("job", "a", (1, 42), metadata="half-way", timestamp_ms=7)
        assert result(await client.call(request)).error_code == 0
    async with (
        running_broker(tmp_path, clock, http_listen="off") as broker,
        wire(broker.addresses.native) as client,
    ):
        nothing, there = results(await client.call(ask("job", "a", 0, 1)))
        assert (nothing.committed_offset, nothing.error_code) == (-1, 0)
        assert (there.committed_offset, there.metadata, there.timestamp_ms) == (42, "half-way", 7)
        assert there.commit_time_ms == clock.now_ms()
        other = result(await client.call(ask("another", "a", 1)))
        assert other.committed_offset == -1


async def test_pipelined_commits_are_stored_in_order(client: Wire) -> None:
    await client.call(create_topic("a"))
    for offset in range(50):
        client.send(OFFSET_COMMIT, 0, commit("job", "a", (0, offset)))
    for _ in range(50):
        _, response = await client.receive()
        assert result(response).error_code == 0
    assert result(await client.call(ask("job", "a", 0))).committed_offset == 49


async def test_one_bad_position_does_not_keep_the_others(client: Wire) -> None:
    await client.call(create_topic("a", partitions=2))
    got = results(await client.call(commit("job", "a", (0, 5), (1, -1), (2, 5))))
    codes = [each.error_code for each in got]
    assert codes == [0, InvalidRequest.code, UnknownTopicOrPartition.code]
    assert result(await client.call(ask("job", "a", 0))).committed_offset == 5


async def test_the_text_beside_a_position_is_limited(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, http_listen="off", offset_metadata_max_bytes=10) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a"))
        assert (
            result(await client.call(commit("j", "a", (0, 1), metadata="x" * 10))).error_code == 0
        )
        got = result(await client.call(commit("j", "a", (0, 2), metadata="é" * 6)))
        assert got.error_code == OffsetMetadataTooLarge.code
        assert "offset.metadata.max.bytes" in got.error_message
        assert result(await client.call(ask("j", "a", 0))).committed_offset == 1


@pytest.mark.parametrize("name", ["", "x" * 300])
async def test_a_bad_name(client: Wire, name: str) -> None:
    await client.call(create_topic("a"))
    got = result(await client.call(commit(name, "a", (0, 1))))
    assert got.error_code == InvalidGroupId.code


async def test_nothing_to_commit(client: Wire) -> None:
    assert (await client.call(OffsetCommitRequest(group_id="j", topics=[]))).topics == []


async def test_positions_go_with_their_topic(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    await client.call(commit("job", "a", (0, 5)))
    await client.call(DeleteTopicsRequest(topic_names=["a"]))
    await client.call(create_topic("a"))
    assert result(await client.call(ask("job", "a", 0))).committed_offset == -1


async def test_a_full_store_refuses_by_name_in_both_encodings(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, max_positions_bytes=2048, kafka_listen="127.0.0.1:0") as broker,
        wire(broker.addresses.native) as client,
        wire(str(broker.addresses.kafka), kafka) as kafka_client,
    ):
        await client.call(create_topic("a", partitions=3))
        for number in range(2):
            got = result(await client.call(commit("j", "a", (number, 7), metadata="x" * 500)))
            assert got.error_code == 0
        got = result(await client.call(commit("j", "a", (2, 1), metadata="x" * 500)))
        assert got.error_code == InvalidCommitOffsetSize.code == 28
        assert "max.positions.bytes=2048" in got.error_message
        request = commit("j", "a", (2, 1), metadata="x" * 500)
        request.generation_id = -1
        got = result(await kafka_client.call(request))
        assert got.error_code == InvalidCommitOffsetSize.code
        there = result(await client.call(ask("j", "a", 2)))
        assert there.committed_offset == -1
        assert 2 * 500 < broker.positions_bytes() <= 2048
        await client.call(DeleteTopicsRequest(topic_names=["a"]))
        await client.call(create_topic("a"))
        got = result(await client.call(commit("j", "a", (0, 1), metadata="x" * 1000)))
        assert got.error_code == 0, "what is deleted makes room"
