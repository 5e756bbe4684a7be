"""How far positions are behind: over the wire, and by which time."""

from pathlib import Path

import pytest

from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import (
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.errors import InvalidRequest, UnknownTopicOrPartition
from horolog.protocol.lag import Pace
from horolog.protocol.records.layout import Codec
from horolog.server.broker import Broker
from horolog.server.handlers import positions
from horolog.server.metrics import lags
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, message_set, produce, result
from horolog.testing.wire import Wire, wire
from horolog.tests.groups.requests import commit as offset_commit
from horolog.tests.groups.requests import join, kafka_client, leave, sync


def commit(name: str, topic: str, offset: int, partition: int = 0) -> OffsetCommitRequest:
    entry = OffsetCommitPartition(partition=partition, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=name, topics=[OffsetCommitTopic(name=topic, partitions=[entry])]
    )


async def lag_of(client: Wire, name: str, topic: str = "a") -> OffsetFetchPartitionResult:
    asked = OffsetFetchTopic(name=topic, partitions=[0])
    found: OffsetFetchPartitionResult = result(
        await client.call(OffsetFetchRequest(group_id=name, topics=[asked], lag=True))
    )
    return found


async def append(client: Wire, *timestamps_ms: int, topic: str = "a", **how: object) -> None:
    """Append a set with a message for each timestamp."""
    answer = result(await client.call(produce(topic, message_set(*timestamps_ms, **how))))  # type: ignore[arg-type]
    assert answer.error_code == 0


async def test_at_the_end_there_is_no_lag(client: Wire, clock: ManualClock) -> None:
    await client.call(create_topic("a"))
    await append(client, 1)
    await client.call(commit("job", "a", 1))
    clock.advance(5_000)
    found = await lag_of(client, "job")
    assert (found.lag, found.lag_ms, found.lag_estimated, found.catch_up_ms) == (0, 0, False, 0)


async def test_seconds_go_by_the_append_time_of_the_first_message_not_consumed(
    client: Wire, clock: ManualClock
) -> None:
    await client.call(create_topic("a"))
    for _ in range(3):
        await append(client, 1)  # created long ago
        clock.advance(10_000)
    await client.call(commit("job", "a", 1))
    found = await lag_of(client, "job")
    assert (found.lag, found.lag_ms, found.lag_estimated) == (2, 20_000, False)
    await client.call(commit("job", "a", 2))
    assert (await lag_of(client, "job")).lag_ms == 10_000


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_without_append_times_the_create_time_makes_an_estimate(
    tmp_path: Path, clock: ManualClock, codec: Codec
) -> None:
    async with (
        running_broker(tmp_path, clock, http_listen="off") as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a"))
        await append(client, *(clock.now_ms() - age for age in (9000, 7000, 5000)), codec=codec)
        await client.call(commit("job", "a", 1))
    (tmp_path / "a-0" / f"{0:020}.appendtime").unlink()
    async with (
        running_broker(tmp_path, clock, http_listen="off") as broker,
        wire(broker.addresses.native) as client,
    ):
        found = await lag_of(client, "job")
    assert (found.lag, found.lag_ms, found.lag_estimated) == (2, 7000, True)


async def test_no_time_known_is_no_lag_in_seconds(tmp_path: Path, clock: ManualClock) -> None:
    """decision 35."""
    async with (
        running_broker(tmp_path, clock, http_listen="off") as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a"))
        await append(client, -1, -1, magic=0)
        await client.call(commit("job", "a", 1))
    (tmp_path / "a-0" / f"{0:020}.appendtime").unlink()
    async with (
        running_broker(tmp_path, clock, http_listen="off") as broker,
        wire(broker.addresses.native) as client,
    ):
        found = await lag_of(client, "job")
        await broker.services.lags.refresh()
        metrics = broker.metrics_text()
    assert (found.lag, found.lag_ms) == (1, -1)
    labels = b'{name="job",partition="0",topic="a"}'
    assert b"horolog_consumer_lag" + labels + b" 1.0" in metrics
    assert b"horolog_consumer_lag_seconds" + labels not in metrics


async def test_messages_that_retention_dropped_are_not_lag(
    broker: Broker, client: Wire, clock: ManualClock
) -> None:
    """RT-13."""
    await client.call(create_topic("a", retention_ms=60_000))
    await append(client, clock.now_ms())
    await client.call(commit("job", "a", 0))
    clock.advance(61_000)
    await broker.maintenance.tasks["retention"].run_now()
    await append(client, clock.now_ms())
    found = await lag_of(client, "job")
    assert (found.lag, found.lag_ms) == (1, 0)


async def test_the_time_to_catch_up(client: Wire, clock: ManualClock) -> None:
    await client.call(create_topic("a"))
    await append(client, *[1] * 1000)
    await client.call(commit("job", "a", 0))
    assert (await lag_of(client, "job")).catch_up_ms == -1  # no pace yet
    for step in range(1, 7):
        clock.advance(10_000)
        await append(client, *[1] * 10)
        await client.call(commit("job", "a", 60 * step))
    found = await lag_of(client, "job")
    assert found.lag == 1060 - 360
    assert found.catch_up_ms == 700 * 1000 / (6 - 1)
    clock.advance(60_000)
    assert (await lag_of(client, "job")).catch_up_ms == -1  # nothing was read in the last minute


async def test_lag_of_offsets_that_nobody_committed(client: Wire, clock: ManualClock) -> None:
    await client.call(create_topic("a"))
    await append(client, 1, 1, 1)
    clock.advance(2500)
    asked = OffsetFetchTopic(name="a", partitions=[0], offsets=[1])
    found = result(await client.call(OffsetFetchRequest(group_id="", topics=[asked], lag=True)))
    assert (found.committed_offset, found.lag, found.lag_ms) == (1, 2, 2500)


async def test_offsets_must_be_as_many_as_partitions(client: Wire) -> None:
    asked = OffsetFetchTopic(name="a", partitions=[0], offsets=[1, 2])
    request = OffsetFetchRequest(group_id="", topics=[asked], lag=True)
    with pytest.raises(InvalidRequest, match="2 offsets for 1 partitions"):
        await client.call(request)


async def test_a_partition_that_does_not_exist(client: Wire) -> None:
    asked = OffsetFetchTopic(name="a", partitions=[0], offsets=[1])
    found = result(await client.call(OffsetFetchRequest(group_id="", topics=[asked], lag=True)))
    assert found.error_code == UnknownTopicOrPartition.code


async def test_metrics_follow_the_positions_committed_last(
    broker: Broker, client: Wire, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lags, "MAX_FOLLOWED", 2)
    await client.call(create_topic("a"))
    await append(client, 1, 1)
    for name in ("first", "second", "third"):
        await client.call(commit(name, "a", 1))
    clock.advance(1500)
    await broker.services.lags.refresh()
    assert {key[0] for key in broker.services.lags.followed} == {"second", "third"}
    metrics = broker.metrics_text()
    assert b'horolog_consumer_lag_seconds{name="third",partition="0",topic="a"} 1.5' in metrics
    assert b"horolog_consumer_lag_left_out 1.0" in metrics


async def test_metrics_say_when_a_position_moved_and_whether_a_member_has_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    topic, number = b"\0\1a", b"\0\0\0\0"
    shares = {
        "has": b"\0\0" + b"\0\0\0\1" + topic + b"\0\0\0\1" + number + b"\0\0\0\0",
        "has-not": b"\0\0" + b"\0\0\0\1" + topic + b"\0\0\0\0" + b"\0\0\0\0",
        "unread": b"what is this",
        "large": bytes(lags.MAX_READ_ASSIGNMENT_BYTES + 1),
        "left": b"",
    }
    async with (
        running_broker(tmp_path, clock, http_listen="off", kafka_listen="127.0.0.1:0") as broker,
        kafka_client(broker.addresses.kafka) as client,
    ):
        await client.call(create_topic("a"), 0)
        for name, share in shares.items():
            await client.call(offset_commit(name, "a", 0))
            member_id = (await client.call(join(name))).member_id
            await client.call(sync(name, member_id, 1, {member_id: share}))
            if name == "left":
                await client.call(leave(name, member_id))
        clock.advance(2000)
        await client.call(offset_commit("left", "a", 0))  # the same offset: no move
        clock.advance(2500)
        await broker.services.lags.refresh()
        metrics = broker.metrics_text().decode()
    for name, assigned in zip(shares, (1, 0, 1, 1, 0), strict=True):
        labels = f'{{name="{name}",partition="0",topic="a"}}'
        assert f"horolog_consumer_position_moved_seconds{labels} 4.5" in metrics
        assert f"horolog_consumer_position_assigned{labels} {assigned}" in metrics


async def test_metrics_follow_what_was_committed_before_a_restart(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running_broker(tmp_path, clock, http_listen="off") as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a"))
        for name in ("first", "second", "third"):
            clock.advance(1)
            await client.call(commit(name, "a", 0))
    monkeypatch.setattr(lags, "MAX_FOLLOWED", 2)
    async with running_broker(tmp_path, clock, http_listen="off") as broker:
        await broker.services.lags.refresh()
        assert {key[0] for key in broker.services.lags.followed} == {"second", "third"}


async def test_a_topic_that_goes_takes_its_lag_along(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    await client.call(commit("job", "a", 0))
    await broker.services.lags.refresh()
    assert len(broker.services.lags.followed) == 1
    await client.call(DeleteTopicsRequest(topic_names=["a"]))
    await broker.services.lags.refresh()
    assert broker.services.lags.followed == {}


async def test_positions_and_names_are_listed(client: Wire) -> None:
    await client.call(create_topic("a", partitions=2))
    await client.call(create_topic("b"))
    for name, topic, partition in (("j", "b", 0), ("j", "a", 1), ("j", "a", 0), ("i", "a", 0)):
        await client.call(commit(name, topic, 5, partition))
    request = OffsetFetchRequest(group_id="j", topics=[], listing="positions")
    listed = await client.call(request)
    assert [(t.name, [p.partition for p in t.partitions]) for t in listed.topics] == [
        ("a", [0, 1]),
        ("b", [0]),
    ]
    assert not listed.more
    named = await client.call(OffsetFetchRequest(group_id="", topics=[], listing="names"))
    assert (named.names, named.topics, named.more) == (["i", "j"], [], False)


async def test_long_lists_come_in_parts(client: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "MAX_LISTED", 2)
    for topic in "abc":
        await client.call(create_topic(topic, partitions=3))
    for name in "xyz":
        for topic in "abc":
            for partition in range(3 if topic == "b" else 1):
                await client.call(commit(name, topic, 5, partition))
    got, after = [], ""
    for more in (True, True, False):
        request = OffsetFetchRequest(group_id="y", topics=[], listing="positions", after=after)
        listed = await client.call(request)
        assert listed.more is more
        got.append([(topic.name, len(topic.partitions)) for topic in listed.topics])
        after = listed.topics[-1].name
    assert got == [[("a", 1)], [("b", 3)], [("c", 1)]]
    names = OffsetFetchRequest(group_id="", topics=[], listing="names")
    first = await client.call(names)
    assert (first.names, first.more) == (["x", "y"], True)
    names.after = "y"
    last = await client.call(names)
    assert (last.names, last.more) == (["z"], False)


async def test_another_listing_is_refused(client: Wire) -> None:
    with pytest.raises(InvalidRequest, match="'positions'"):
        await client.call(OffsetFetchRequest(group_id="", topics=[], listing="groups"))


SAMPLES: list[tuple[float, int, int]] = [(0, 0, 100), (30, 30, 100), (60, 90, 100)]


@pytest.mark.parametrize(
    ("samples", "now", "position", "end", "expected"),
    [
        pytest.param([], 0, 0, 10, None, id="nothing is known"),
        pytest.param([], 0, 10, 10, 0.0, id="at the end"),
        pytest.param([(0, 0, 10)], 0.5, 5, 10, None, id="too short a time"),
        pytest.param([(0, 0, 10)], 1, 5, 10, 1.0, id="one second"),
        pytest.param([(0, 0, 10)], 10, 5, 20, None, id="the lag grows"),
        pytest.param([(0, 0, 10)], 10, 5, 15, None, id="the lag stays"),
        pytest.param(SAMPLES, 60, 90, 100, 10 * 60 / 90, id="over the whole minute"),
        pytest.param(SAMPLES, 90, 90, 110, 20 * 60 / 50, id="what is older does not count"),
        pytest.param([(0, 50, 100), (10, 20, 100)], 20, 40, 100, 30.0, id="a seek back"),
    ],
)
def test_the_pace_of_the_last_minute(
    samples: list[tuple[float, int, int]],
    now: float,
    position: int,
    end: int,
    expected: float | None,
) -> None:
    pace = Pace()
    for sample in samples:
        pace.note(*sample)
    found = pace.catch_up_seconds(now, position, end)
    assert found == (None if expected is None else pytest.approx(expected))


def test_a_pace_keeps_few_samples() -> None:
    pace = Pace()
    for tenths in range(100_000):
        pace.note(tenths / 10, tenths, tenths)
    assert len(pace._samples) <= 14
