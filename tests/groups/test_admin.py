"""Groups as `Admin` lists, describes, moves and deletes them; the members are Kafka's clients."""

import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from horolog import (
    Admin,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidRequest,
    NonEmptyGroup,
    OffsetOutOfRange,
    PositionMove,
    Producer,
    TimeError,
    UnknownTopicOrPartition,
    blocking,
)
from horolog.server.handlers import groups_admin
from horolog.storage.directory import position_table
from horolog.testing.broker import BrokerThread
from horolog.testing.wire import Wire

from .requests import commit, join, kafka_client, leave, sync

START_MS = 1_500_000_000_000
DAY_MS = 86_400_000


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    return {"kafka.listen": "127.0.0.1:0", "retention.ms": -1}


@pytest.fixture
async def admin(horolog_broker: BrokerThread) -> AsyncIterator[Admin]:
    async with Admin(horolog_broker.address) as connected:
        yield connected


def text(name: str) -> bytes:
    encoded = name.encode()
    return struct.pack(">h", len(encoded)) + encoded


def subscription(*topics: str) -> bytes:
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(text, topics)) + struct.pack(">i", -1)


def assignment(topics: Mapping[str, Sequence[int]]) -> bytes:
    parts = [
        text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in topics.items()
    ]
    return struct.pack(">hi", 0, len(parts)) + b"".join(parts) + struct.pack(">i", -1)


async def joined(client: Wire, group: str, topics: Mapping[str, Sequence[int]]) -> str:
    """Join a group as its only member, with these partitions; returns the member's id."""
    request = join(group, metadata=subscription(*topics), session_ms=600_000)
    member_id = (await client.call(request)).member_id
    await client.call(sync(group, member_id, 1, {member_id: assignment(topics)}))
    return str(member_id)


@asynccontextmanager
async def member(
    broker: BrokerThread, group: str, topics: Mapping[str, Sequence[int]]
) -> AsyncIterator[str]:
    """A member of a group, which leaves at the end."""
    async with kafka_client(broker.kafka_address) as client:
        member_id = await joined(client, group, topics)
        yield member_id
        await client.call(leave(group, member_id))


async def messages(
    broker: BrokerThread, topic: str, times_ms: Sequence[int], partition: int = 0
) -> None:
    values = [b"x"] * len(times_ms)
    async with Producer(broker.address) as producer:
        await producer.send_batch(topic, values, timestamps_ms=times_ms, partition=partition)


async def test_groups_and_named_positions_are_listed(
    horolog_broker: BrokerThread, admin: Admin
) -> None:
    clock = horolog_broker.clock
    clock.freeze()
    await admin.create_topic("clicks", partitions=2)
    await admin.commit_position("named", "clicks", 1, 0)
    async with kafka_client(horolog_broker.kafka_address) as client:
        await client.call(commit("simple", "clicks", 0))
    clock.step(60)
    async with member(horolog_broker, "team", {"clicks": [0]}):
        found = {each.name: each for each in await admin.list_groups()}
        assert list(found) == ["named", "simple", "team"]
        assert (found["named"].state, found["named"].positions) == (None, 1)
        assert (found["simple"].state, found["simple"].members) == ("Empty", 0)
        assert found["simple"].moved_at_ms == clock.now_ms() - 60_000
        team = found["team"]
        assert (team.state, team.protocol_type, team.members) == ("Stable", "consumer", 1)
        assert (team.positions, team.moved_at_ms, team.used_at_ms) == (0, None, None)


async def test_a_group_is_idle_without_members_and_commits(
    horolog_broker: BrokerThread, admin: Admin
) -> None:
    clock = horolog_broker.clock
    clock.freeze()

    async def idle(days: float) -> list[str]:
        return [each.name for each in await admin.list_groups(idle_for=timedelta(days=days))]

    await admin.create_topic("clicks")
    for name in ("busy", "gone", "held"):
        await admin.commit_position(name, "clicks", 0, 0)
    async with member(horolog_broker, "held", {"clicks": [0]}):
        clock.step(300)
        await admin.commit_position("busy", "clicks", 0, 0)
        assert await idle(200 / 86_400) == ["gone"]
        assert await idle(0) == ["busy", "gone"]
        assert await idle(1) == []
    (busy,) = [each for each in await admin.list_groups() if each.name == "busy"]
    assert busy.moved_at_ms == clock.now_ms() - 300_000
    assert busy.used_at_ms == clock.now_ms()


async def test_a_long_list_comes_in_pages(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_admin, "MAX_LISTED", 3)
    monkeypatch.setattr(position_table, "_SUMMARISED_AT_ONCE", 2)
    await admin.create_topic("clicks", partitions=3)
    names = [f"g{number}" for number in range(10)]
    for number, name in enumerate(names):
        for partition in range(1 + number % 3):
            await admin.commit_position(name, "clicks", partition, 0)
    found = await admin.list_groups()
    assert [each.name for each in found] == names
    assert [each.positions for each in found] == [1 + number % 3 for number in range(10)]
    assert await admin.list_groups(idle_for=timedelta(days=1)) == []


async def test_a_group_is_described(horolog_broker: BrokerThread, admin: Admin) -> None:
    clock = horolog_broker.clock
    clock.freeze()
    now_ms = clock.now_ms()
    await admin.create_topic("clicks", partitions=3)
    await messages(horolog_broker, "clicks", [now_ms] * 5, partition=0)
    await messages(horolog_broker, "clicks", [now_ms] * 2, partition=2)
    for partition in (0, 1):
        await admin.commit_position("team", "clicks", partition, 0)
    clock.step(30)
    async with member(horolog_broker, "team", {"clicks": [0, 2]}) as member_id:
        found = await admin.describe_group("team")
        assert (found.name, found.state, found.protocol) == ("team", "Stable", "range")
        (holder,) = found.members
        assert (holder.member_id, holder.host) == (member_id, "127.0.0.1")
        assert holder.partitions == (("clicks", 0), ("clicks", 2))
        first, second, third = found.positions
        assert (first.offset, first.end_offset, first.member) == (0, 5, holder)
        assert first.lag is not None
        assert (first.lag.messages, first.lag.seconds) == (5, 30.0)
        assert first.moved_at_ms == now_ms
        assert (second.offset, second.member) == (0, None)
        # Assigned, and nothing is committed yet.
        assert (third.offset, third.lag, third.end_offset) == (None, None, 2)
        assert (third.member, third.moved_at_ms) == (holder, None)
    gone = await admin.describe_group("team")
    assert (gone.state, gone.members, len(gone.positions)) == ("Empty", (), 2)
    with pytest.raises(GroupIdNotFound, match="no group 'nobody'"):
        await admin.describe_group("nobody")


async def test_a_commit_of_the_same_offset_is_no_move(
    horolog_broker: BrokerThread, admin: Admin
) -> None:
    """Java's consumer commits every five seconds, whether it has read anything or not."""
    clock = horolog_broker.clock
    clock.freeze()
    await admin.create_topic("clicks")
    first_ms = clock.now_ms()

    async def moved_ms() -> int | None:
        async with Admin(horolog_broker.address) as other:
            return (await other.describe_group("job")).positions[0].moved_at_ms

    for _ in range(3):
        await admin.commit_position("job", "clicks", 0, 0)
        clock.step(10)
        assert await moved_ms() == first_ms
    position = await admin.position("job", "clicks")
    assert position is not None
    assert position.commit_time_ms == first_ms + 20_000
    horolog_broker.restart()
    assert await moved_ms() == first_ms
    async with Admin(horolog_broker.address) as other:
        await other.commit_position("job", "clicks", 0, 1)
    assert await moved_ms() == clock.now_ms()


async def test_windows_are_described_and_moved_as_topics(
    horolog_broker: BrokerThread, admin: Admin
) -> None:
    await admin.create_topic("clicks")
    await messages(horolog_broker, "clicks", [START_MS + 1000 * n for n in range(10)])
    window = f"clicks..{START_MS + 2000}..{START_MS + 6000}"
    await admin.seek_group("job", timestamp_ms=START_MS + 3000, topic=window)
    (found,) = (await admin.describe_group("job")).positions
    assert (found.topic, found.offset, found.end_offset) == (window, 3, 6)
    assert found.lag is not None
    assert found.lag.messages == 3
    assert await admin.delete_group("job", topic=window) == [PositionMove(window, 0, 3, None)]


async def test_positions_move_to_what_a_plain_list_says(
    horolog_broker: BrokerThread, admin: Admin
) -> None:
    random = Random(20161114)
    logs: list[list[int]] = []
    await admin.create_topic("clicks", partitions=4)
    for partition in range(4):
        times = [START_MS + 1000 * random.randrange(50) for _ in range(30 * partition)]
        logs.append(times)
        if times:
            await messages(horolog_broker, "clicks", times, partition=partition)
    await admin.delete_records("clicks", 2, 20)
    starts = [0, 0, 20, 0]

    def expected(kind: str, number: int, partition: int, old: int | None) -> int:
        times, start = logs[partition], starts[partition]
        end = len(times)
        if kind == "time":
            later = [at for at in range(start, end) if times[at] >= number]
            return later[0] if later else end
        if kind == "by":
            assert old is not None
            return min(max(old + number, start), end)
        return {"earliest": start, "latest": end}.get(kind, number)

    held: dict[int, int] = {}
    for _ in range(60):
        kind = random.choice(["time", "by", "earliest", "latest", "offset"] if held else ["time"])
        number = {
            "time": START_MS + 500 * random.randrange(-2, 104),
            "by": random.randrange(-40, 40),
            "offset": random.choice([20, 25, 30]),
        }.get(kind, 0)
        numbered = {
            "time": {"timestamp_ms": number},
            "by": {"by": number},
            "offset": {"offset": number},
        }
        how: dict[str, object] = {**numbered.get(kind, {"to": kind})}
        wanted: list[int | None] = [1, 2, 3] if kind in ("by", "offset") else [None, 1, 2, 3]
        chosen = random.choice(wanted)
        if kind == "by" and chosen not in held:
            continue
        moves = await admin.seek_group("g", topic="clicks", partition=chosen, **how)  # type: ignore[arg-type]
        touched = range(4) if chosen is None else [chosen]
        assert moves == [
            PositionMove("clicks", one, held.get(one), expected(kind, number, one, held.get(one)))
            for one in touched
        ], (kind, number)
        held |= {move.partition: move.new or 0 for move in moves}
        stored = (await admin.describe_group("g")).positions
        assert {each.partition: each.offset for each in stored} == held


async def test_positions_are_created_an_hour_back_for_any_client(
    horolog_broker: BrokerThread, admin: Admin
) -> None:
    now_ms = horolog_broker.clock.now_ms()
    await admin.create_topic("clicks", partitions=2)
    ages_min = (90, 70, 50, 10)
    await messages(
        horolog_broker, "clicks", [now_ms - 60_000 * age for age in ages_min], partition=0
    )
    with pytest.raises(GroupIdNotFound, match="name a topic"):
        await admin.seek_group("new", timedelta(hours=1))
    moves = await admin.seek_group("new", timedelta(hours=1), topic="clicks")
    assert moves == [PositionMove("clicks", 0, None, 2), PositionMove("clicks", 1, None, 0)]


async def test_what_cannot_be_sought_is_refused_and_nothing_moves(
    horolog_broker: BrokerThread, admin: Admin
) -> None:
    await admin.create_topic("clicks", partitions=2)
    await messages(horolog_broker, "clicks", [START_MS] * 5, partition=0)
    await admin.commit_position("g", "clicks", 0, 3)
    with pytest.raises(OffsetOutOfRange, match="clicks-1 has no offset 4, only those from 0 to 0"):
        await admin.seek_group("g", offset=4, topic="clicks")
    with pytest.raises(InvalidRequest, match="no position from which -1"):
        await admin.seek_group("g", by=-1, topic="clicks")
    with pytest.raises(UnknownTopicOrPartition, match="no partition 2"):
        await admin.seek_group("g", "latest", topic="clicks", partition=2)
    with pytest.raises(UnknownTopicOrPartition):
        await admin.seek_group("g", "latest", topic="nowhere")
    for wrong in ({}, {"to": "latest", "offset": 1}):
        with pytest.raises(TypeError, match="exactly one"):
            await admin.seek_group("g", **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give topic too"):
        await admin.seek_group("g", "latest", partition=0)
    with pytest.raises(ValueError, match="'earliest', 'latest'"):
        await admin.seek_group("g", "end")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="from 0 to"):
        await admin.seek_group("g", offset=-1)
    with pytest.raises(ValueError, match="before now"):
        await admin.seek_group("g", timedelta(hours=-1))
    with pytest.raises(TimeError, match="looks like seconds"):
        await admin.seek_group("g", timestamp_ms=START_MS // 1000)
    with pytest.raises(TimeError, match="no time zone"):
        await admin.seek_group("g", datetime(2016, 11, 14))
    await admin.seek_group("g", datetime(2016, 11, 14, tzinfo=UTC), dry_run=True)
    (position,) = (await admin.describe_group("g")).positions
    assert position.offset == 3


async def test_a_group_with_members_is_refused_by_their_names(
    horolog_broker: BrokerThread, admin: Admin
) -> None:
    await admin.create_topic("clicks")
    await admin.create_topic("views")
    await messages(horolog_broker, "clicks", [START_MS] * 5)
    for topic in ("clicks", "views"):
        await admin.commit_position("team", topic, 0, 0)
    moves = await admin.seek_group("team", "latest", topic="clicks", dry_run=True)
    async with member(horolog_broker, "team", {"clicks": [0]}) as member_id:
        said = f"1 member: {member_id} at 127.0.0.1"
        with pytest.raises(NonEmptyGroup, match=said):
            await admin.seek_group("team", "latest")
        with pytest.raises(NonEmptyGroup, match="joined group 'team' meanwhile"):
            await admin.move_group("team", moves)
        with pytest.raises(NonEmptyGroup, match=said):
            await admin.delete_group("team")
        with pytest.raises(GroupSubscribedToTopic, match=f"subscribe to clicks: {member_id}"):
            await admin.delete_group("team", topic="clicks")
        assert await admin.delete_group("team", topic="views") == [
            PositionMove("views", 0, 0, None)
        ]
    assert [each.offset for each in (await admin.describe_group("team")).positions] == [0]
    await admin.move_group("team", moves)
    assert [each.offset for each in (await admin.describe_group("team")).positions] == [5]


async def test_a_seek_leaves_a_group_a_group_and_a_name_a_name(
    horolog_broker: BrokerThread, admin: Admin
) -> None:
    """The positions of a group expire, named ones do not."""
    await admin.create_topic("clicks", partitions=2)
    await admin.commit_position("named", "clicks", 0, 0)
    async with kafka_client(horolog_broker.kafka_address) as client:
        await client.call(commit("group", "clicks", 0))
    for name in ("named", "group", "new"):
        await admin.seek_group(name, "latest", topic="clicks")
    kinds = {each.name: each.state for each in await admin.list_groups()}
    assert kinds == {"named": None, "group": "Empty", "new": None}
    horolog_broker.clock.step(8 * DAY_MS / 1000)
    assert [each.name for each in await admin.list_groups()] == ["named", "new"]


def test_groups_and_positions_are_deleted(horolog_broker: BrokerThread) -> None:
    """With the blocking client."""
    with blocking.Admin(horolog_broker.address) as admin:
        admin.create_topic("clicks", partitions=3)
        for partition in range(3):
            admin.commit_position("job", "clicks", partition, 0)
        gone = admin.delete_group("job", topic="clicks", partition=1)
        assert gone == [PositionMove("clicks", 1, 0, None)]
        with pytest.raises(GroupIdNotFound, match="no position in clicks-1"):
            admin.delete_group("job", topic="clicks", partition=1)
        assert len(admin.delete_group("job", dry_run=True)) == 2
        assert [each.positions for each in admin.list_groups()] == [2]
        assert len(admin.delete_group("job")) == 2
        assert admin.list_groups() == []
        with pytest.raises(GroupIdNotFound, match="no group 'job'"):
            admin.delete_group("job")
        admin.seek_group("job", "earliest", topic="clicks")
        assert len(admin.describe_group("job").positions) == 3
