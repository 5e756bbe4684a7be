"""Topics, offsets and positions, against a real broker."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horolog import (
    EARLIEST,
    LARGEST,
    LATEST,
    Admin,
    AfterEnd,
    Found,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    NewRecord,
    NoTimestamps,
    OffsetAt,
    OffsetOutOfRange,
    Producer,
    ProtocolError,
    TimeError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from horolog.protocol.api.log.list_offsets import (
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)
from horolog.protocol.api.native.frames import RequestHead
from horolog.storage.names import is_id
from horolog.testing.clock import ManualClock

T0 = 1_479_144_272_000


def setting(described: Any, name: str) -> tuple[str, str]:
    """Value and source of one setting."""
    (found,) = [one for one in described.settings if one.name == name]
    return found.value, found.source


async def test_a_topic_that_is_made_again_is_told_apart(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("a", partitions=2)
        await admin.create_topic("b")
        before = await admin.describe_cluster()
        assert {name: one.partitions for name, one in before.topics.items()} == {"a": 2, "b": 1}
        first = (await admin.describe_topic("a")).topic_id
        assert first == before.topics["a"].topic_id
        assert is_id(first)
        await admin.alter_topic("a", {"retention.ms": "-1"})
        await admin.create_partitions("a", 3)
        assert (await admin.describe_topic("a")).topic_id == first
        await admin.delete_topic("a")
        await admin.create_topic("a", partitions=2)
        after = await admin.describe_cluster()
        assert after.topics["a"].topic_id not in {first, None}
        assert after.topics["b"] == before.topics["b"]
        assert after.cluster_id == before.cluster_id
        assert is_id(after.cluster_id)


async def test_the_life_of_a_topic(address: str) -> None:
    async with Admin(address) as admin:
        assert await admin.list_topics() == {}
        await admin.create_topic("b", partitions=3, settings={"retention.ms": "1000"})
        await admin.create_topic("a")
        assert await admin.list_topics() == {"a": 1, "b": 3}
        described = await admin.describe_topic("b")
        assert (described.name, described.partitions) == ("b", 3)
        assert setting(described, "retention.ms") == ("1000", "topic")
        await admin.alter_topic("b", {"segment.ms": "5000"})
        described = await admin.describe_topic("b")
        assert setting(described, "retention.ms") == ("1000", "topic")
        assert setting(described, "segment.ms") == ("5000", "topic")
        await admin.alter_topic("b", {"retention.ms": None})
        described = await admin.describe_topic("b")
        assert setting(described, "retention.ms") == ("604800000", "default")
        await admin.delete_topic("b")
        assert await admin.list_topics() == {"a": 1}


async def test_what_the_broker_refuses_is_raised_as_its_class(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("a")
        with pytest.raises(TopicAlreadyExists):
            await admin.create_topic("a")
        with pytest.raises(InvalidTopic):
            await admin.create_topic("a/b")
        with pytest.raises(InvalidConfig, match=r"retention\.ms"):
            await admin.create_topic("c", settings={"retention.ms": "soon"})
        with pytest.raises(InvalidConfig, match=r"retention\.ms"):
            await admin.alter_topic("a", {"retention.ms": "soon", "segment.ms": "5000"})
        assert setting(await admin.describe_topic("a"), "segment.ms")[1] == "default"


async def test_describing_does_not_create(address: str) -> None:
    async with Admin(address) as admin:
        with pytest.raises(UnknownTopicOrPartition):
            await admin.describe_topic("nothing")
        with pytest.raises(UnknownTopicOrPartition):
            await admin.delete_topic("nothing")
        with pytest.raises(UnknownTopicOrPartition):
            await admin.alter_topic("nothing", {"retention.ms": "1"})
        assert await admin.list_topics() == {}


async def test_a_change_can_be_tried(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("a")
        await admin.alter_topic("a", {"retention.ms": "1"}, validate_only=True)
        assert setting(await admin.describe_topic("a"), "retention.ms")[1] == "default"
        with pytest.raises(InvalidConfig):
            await admin.alter_topic("a", {"retention.ms": "soon"}, validate_only=True)


@pytest.mark.parametrize(
    ("offset_ms", "expected"),
    [
        pytest.param(0, Found(0, T0), id="L-20-first"),
        pytest.param(1, Found(1, T0 + 2000), id="L-20-out-of-order"),
        pytest.param(2000, Found(1, T0 + 2000), id="L-20-equal"),
        pytest.param(3000, Found(3, T0 + 3000), id="L-20-last"),
        pytest.param(3001, AfterEnd(4), id="L-27-after"),
    ],
)
async def test_which_offset_was_it(address: str, offset_ms: int, expected: Any) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        times = [T0, T0 + 2000, T0 + 1000, T0 + 3000]
        await producer.send_many("t", [NewRecord(b"v", None, time) for time in times])
        assert await admin.find_offset("t", 0, timestamp_ms=T0 + offset_ms) == expected
        when = datetime.fromtimestamp((T0 + offset_ms) / 1000, UTC)
        assert await admin.find_offset("t", 0, when) == expected
        just_before = when - timedelta(microseconds=1)
        assert await admin.find_offset("t", 0, just_before) == expected


async def test_an_empty_partition_has_no_timestamps(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("t")
        assert await admin.find_offset("t", timestamp_ms=T0) == NoTimestamps()
        with pytest.raises(UnknownTopicOrPartition):
            await admin.find_offset("t", 1, timestamp_ms=T0)


async def test_the_end_is_asked_for_before_the_search(scripted_broker: Any) -> None:
    asked: list[int] = []

    async def nothing_found(_: RequestHead, body: ListOffsetsRequest, __: Any) -> Any:
        target = body.topics[0].partitions[0].timestamp
        asked.append(target)
        known = {LATEST: (-1, 7), LARGEST: (T0, 3)}.get(target, (-1, -1))
        result = ListOffsetsPartitionResult(partition=0, timestamp=known[0], offset=known[1])
        return ListOffsetsResponse(topics=[ListOffsetsTopicResult(name="t", partitions=[result])])

    async with scripted_broker(nothing_found) as broker, Admin(broker.address) as admin:
        assert await admin.find_offset("t", timestamp_ms=T0 + 1) == AfterEnd(7)
    assert asked.index(LATEST) < asked.index(T0 + 1)


async def test_several_targets_in_one_go(address: str) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        times = [T0, T0 + 2000, T0 + 1000]
        await producer.send_many("t", [NewRecord(b"v", None, time) for time in times])
        targets = [EARLIEST, LATEST, LARGEST, T0 + 1, T0 + 9000]
        assert await admin.list_offsets("t", 0, targets) == [
            OffsetAt(0, None),
            OffsetAt(3, None),
            OffsetAt(1, T0 + 2000),
            OffsetAt(1, T0 + 2000),
            OffsetAt(None, None),
        ]


async def test_times_that_must_be_guessed_are_refused(address: str) -> None:
    async with Admin(address) as admin:
        with pytest.raises(TimeError, match="looks like seconds"):
            await admin.find_offset("t", timestamp_ms=T0 // 1000)
        with pytest.raises(TimeError, match="looks like seconds"):
            await admin.list_offsets("t", 0, [T0 // 1000])
        with pytest.raises(TimeError, match="looks like seconds"):
            await admin.commit_position("reader", "t", 0, 1, timestamp_ms=T0 // 1000)
        with pytest.raises(TypeError, match="needs a datetime or timestamp_ms"):
            await admin.find_offset("t")


async def test_a_log_described(address: str) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        await producer.send_many("t", [NewRecord(b"v", None, T0), NewRecord(b"v", None, T0 + 5)])
        log = await admin.describe_log("t")
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 2, 2)
        (segment,) = log.segments
        assert (segment.base_offset, segment.next_offset, segment.active) == (0, 2, True)
        assert (segment.largest_timestamp_ms, segment.largest_offset) == (T0 + 5, 1)
        assert segment.reason
        with pytest.raises(UnknownTopicOrPartition):
            await admin.describe_log("nothing")


async def test_named_positions(address: str, clock: ManualClock) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("t", partitions=2)
        assert await admin.position("reader", "t", 1) is None
        await admin.commit_position("reader", "t", 1, 5, timestamp_ms=T0, metadata="half way")
        position = await admin.position("reader", "t", 1)
        assert position is not None
        assert (position.topic, position.partition, position.offset) == ("t", 1, 5)
        assert (position.timestamp_ms, position.metadata) == (T0, "half way")
        assert position.commit_time_ms == clock.now_ms()
        assert await admin.position("reader", "t", 0) is None
        assert await admin.position("another", "t", 1) is None
        await admin.commit_position("reader", "t", 1, 6)
        position = await admin.position("reader", "t", 1)
        assert position is not None
        assert (position.offset, position.timestamp_ms, position.metadata) == (6, None, "")


async def test_a_response_without_what_was_asked_for(scripted_broker: Any) -> None:
    async def nothing(*_: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(topics=[])

    async with scripted_broker(nothing) as broker, Admin(broker.address) as admin:
        with pytest.raises(ProtocolError, match="a response without t-0"):
            await admin.list_offsets("t", 0, [LATEST])


async def test_more_partitions_and_fewer_messages(address: str) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("tried", validate_only=True)
        assert await admin.list_topics() == {}
        await admin.create_topic("a")
        for value in (b"1", b"2", b"3"):
            await producer.send("a", value)
        await admin.create_partitions("a", 3, validate_only=True)
        assert await admin.list_topics() == {"a": 1}
        await admin.create_partitions("a", 3)
        assert await admin.list_topics() == {"a": 3}
        with pytest.raises(InvalidPartitions, match="only grow"):
            await admin.create_partitions("a", 2)
        assert await admin.delete_records("a", 0, 2) == 2
        with pytest.raises(OffsetOutOfRange):
            await admin.delete_records("a", 0, 4)
        (everything,) = await admin.describe_log_dirs()
        assert [(one.topic, one.partition) for one in everything.partitions] == [
            ("a", 0),
            ("a", 1),
            ("a", 2),
        ]
        assert everything.partitions[0].size_bytes > 0
        assert await admin.delete_records("a", 0, None) == 3
        (some,) = await admin.describe_log_dirs({"a": [0, 9]})
        assert [(one.partition, one.size_bytes) for one in some.partitions] == [(0, 0)]


async def test_settings_of_the_broker(address: str) -> None:
    async with Admin(address) as admin:
        settings = {one.name: one for one in await admin.broker_settings()}
        assert settings["num.partitions"].value == "1"
        assert settings["num.partitions"].source == "default"
