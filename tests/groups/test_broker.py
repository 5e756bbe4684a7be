"""Groups of a running broker, over Kafka's protocol; its clock is moved by hand."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.groups.delete_groups import DeleteGroupsRequest
from horolog.protocol.api.groups.describe_groups import DescribeGroupsRequest
from horolog.protocol.api.groups.join_group import JOIN_GROUP
from horolog.protocol.api.groups.leave_group import LeaveGroupRequest, LeavingMember
from horolog.protocol.api.groups.list_groups import ListGroupsRequest
from horolog.protocol.api.groups.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from horolog.protocol.api.groups.offset_fetch import LIST_POSITIONS, OffsetFetchRequest
from horolog.protocol.api.rights import NOT_ASKED
from horolog.protocol.api.schema import replaced
from horolog.protocol.api.topics.create_topics import CreatableTopic, CreateTopicsRequest
from horolog.protocol.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    GroupMaxSizeReached,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    NonEmptyGroup,
    NotCoordinator,
    OffsetMetadataTooLarge,
    PolicyViolation,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

from .requests import (
    commit,
    committed,
    coordinator,
    heartbeat,
    join,
    kafka_client,
    leave,
    stable,
    sync,
)

MINUTE_MS = 60_000


def settings(**more: object) -> dict[str, object]:
    return {"http_listen": "off", "kafka_listen": "127.0.0.1:0", **more}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, clock, **settings()) as started:  # type: ignore[arg-type]
        yield started


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Wire]:
    async with kafka_client(broker.addresses.kafka) as connected:
        yield connected


async def create(client: Wire, *names: str) -> None:
    topics = [CreatableTopic(name=name, num_partitions=1) for name in names]
    await client.call(CreateTopicsRequest(topics=topics), 0)


async def time_passes(broker: Broker, clock: ManualClock, ms: int) -> None:
    clock.advance(ms)
    await broker.maintenance.time_passed(ms / 1000)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_coordinator_is_this_broker(broker: Broker, client: Wire, version: int) -> None:
    found = await client.call(coordinator("g"), version)
    assert f"{found.host}:{found.port}" == broker.addresses.kafka
    assert (found.error_code, found.node_id) == (0, 0)


async def test_there_is_no_coordinator_of_transactions(client: Wire) -> None:
    found = await client.call(coordinator("mine", 1))
    assert found.error_code == UnsupportedVersion.code
    assert "transactions" in found.error_message
    assert (await client.call(coordinator("mine", 2))).error_code == InvalidRequest.code


@pytest.mark.both_loops
async def test_two_members_share_the_work(broker: Broker, client: Wire) -> None:
    async with kafka_client(broker.addresses.kafka) as other:
        first, _ = await stable(client, "g")
        assert first.startswith("wire-")
        other.send_together(join("g"))
        while (await client.call(heartbeat("g", first, 1))).error_code == 0:
            pass
        assert (await client.call(heartbeat("g", first, 1))).error_code == RebalanceInProgress.code
        leading = await client.call(join("g", first))
        following = (await other.receive())[1]
        second = following.member_id
        assert {member.member_id for member in leading.members} == {first, second}
        assert [member.metadata for member in leading.members] == [b"topics"] * 2
        assert following.members == []
        assert following.leader == first
        other.send_together(sync("g", second, 2))
        assert (await client.call(sync("g", first, 2, {first: b"1", second: b"2"}))).assignment == (
            b"1"
        )
        assert ((await other.receive())[1]).assignment == b"2"
        assert (await other.call(leave("g", second))).error_code == 0
        assert (await client.call(heartbeat("g", first, 2))).error_code == RebalanceInProgress.code


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_every_version_of_a_join(client: Wire, version: int) -> None:
    joined = await client.call(join("g"), version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")


async def test_a_silent_member_is_lost_when_the_brokers_clock_says_so(
    broker: Broker, client: Wire, clock: ManualClock
) -> None:
    member_id, _ = await stable(client, "g")
    await time_passes(broker, clock, 9_999)
    assert (await client.call(heartbeat("g", member_id, 1))).error_code == 0
    await time_passes(broker, clock, 10_000)
    assert (await client.call(heartbeat("g", member_id, 1))).error_code == UnknownMemberId.code


async def test_a_connection_that_ends_while_it_joins_holds_up_nobody(
    broker: Broker, client: Wire
) -> None:
    first, _ = await stable(client, "g")
    async with kafka_client(broker.addresses.kafka) as other:
        other.send_together(join("g"))
        while (await client.call(heartbeat("g", first, 1))).error_code == 0:
            pass
    await until(lambda: broker.connections() == 1)
    joined = await client.call(join("g", first))
    assert [member.member_id for member in joined.members] == [first]


async def test_session_timeouts_have_bounds(client: Wire) -> None:
    for session_ms, code in (
        (5_999, InvalidSessionTimeout.code),
        (6_000, 0),
        (1_800_000, 0),
        (1_800_001, InvalidSessionTimeout.code),
    ):
        joined = await client.call(join(f"g{session_ms}", session_ms=session_ms))
        assert joined.error_code == code


async def test_a_group_needs_a_name(client: Wire) -> None:
    for name in ("", "x" * 256):
        for request in (join(name), sync(name, "m", 1), heartbeat(name, "m", 1), leave(name, "m")):
            assert (await client.call(request)).error_code == InvalidGroupId.code


async def test_members_of_no_group(client: Wire) -> None:
    for request in (join("g", "m"), sync("g", "m", 1), heartbeat("g", "m", 1), leave("g", "m")):
        assert (await client.call(request)).error_code == UnknownMemberId.code
    assert (await client.call(ListGroupsRequest())).groups == []


async def test_groups_members_and_bytes_are_limited(tmp_path: Path) -> None:
    limits = settings(max_groups=2, group_max_size=1, group_max_bytes=2_000)
    async with (
        running_broker(tmp_path, **limits) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
    ):
        member_id, _ = await stable(client, "one")
        assert (await client.call(join("one"))).error_code == GroupMaxSizeReached.code
        assert (await client.call(join("two", metadata=b"x" * 1_000))).error_code == (
            PolicyViolation.code
        )
        await stable(client, "two", metadata=b"x" * 800)
        assert (await client.call(join("three"))).error_code == PolicyViolation.code
        await client.call(leave("one", member_id))
        await stable(client, "three")


async def test_all_groups_together_are_limited(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, **settings(max_groups_bytes=4_000)) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
    ):
        await stable(client, "one", metadata=b"x" * 1_000)
        joined = await client.call(join("two", metadata=b"x" * 1_000))
        assert joined.error_code == PolicyViolation.code
        joined = await client.call(join("two"))
        assert joined.error_code == 0
        shares = {joined.member_id: b"x" * 2_000}
        synced = await client.call(sync("two", joined.member_id, 1, shares))
        assert synced.error_code == PolicyViolation.code


async def test_the_first_members_may_be_made_to_wait(tmp_path: Path, clock: ManualClock) -> None:
    delayed = settings(group_initial_rebalance_delay_ms=3_000)
    async with (
        running_broker(tmp_path, clock, **delayed) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
        kafka_client(broker.addresses.kafka) as other,
    ):
        client.send_together(join("g"))
        other.send_together(join("g"))
        groups = broker.services.groups.coordinator.groups
        await until(lambda: "g" in groups and len(groups["g"].members) == 2)
        await time_passes(broker, clock, 3_000)
        await time_passes(broker, clock, 3_000)
        one = (await client.receive())[1]
        two = (await other.receive())[1]
        assert one.generation_id == two.generation_id == 1
        assert len(one.members) + len(two.members) == 2


async def test_commits_of_members(broker: Broker, client: Wire) -> None:
    await create(client, "a")
    member_id, _ = await stable(client, "g")
    good = commit("g", "a", 5, member_id=member_id, generation=1, metadata="half")
    assert result(await client.call(good)).error_code == 0
    for request, code in (
        (commit("g", "a", 6), UnknownMemberId.code),
        (commit("g", "a", 6, member_id="stranger", generation=1), UnknownMemberId.code),
        (commit("g", "a", 6, member_id=member_id, generation=2), IllegalGeneration.code),
        (commit("other", "a", 6, member_id=member_id, generation=1), IllegalGeneration.code),
        (
            commit("g", "b", 6, member_id=member_id, generation=1),
            UnknownTopicOrPartition.code,
        ),
        (
            commit("g", "a", 6, member_id=member_id, generation=1, metadata="x" * 4097),
            OffsetMetadataTooLarge.code,
        ),
    ):
        assert result(await client.call(request)).error_code == code
    found = result(await client.call(committed("g", "a")))
    assert (found.committed_offset, found.metadata, found.committed_leader_epoch) == (5, "half", -1)
    async with wire(broker.addresses.native) as own:
        asked = OffsetFetchRequest(group_id="g", topics=[], listing=LIST_POSITIONS, lag=True)
        answer = await own.call(asked)
        assert (answer.group_state, answer.group_members) == ("Stable", 1)
        with pytest.raises(UnknownMemberId, match="has 1 members: only they may commit"):
            await own.call(commit("g", "a", 6), 0)
        await client.call(leave("g", member_id))
        answer = await own.call(asked)
        assert (answer.group_state, answer.group_members) == ("Empty", 0)


@pytest.mark.parametrize("version", range(7))
async def test_every_version_of_a_commit(client: Wire, version: int) -> None:
    await create(client, "a")
    assert result(await client.call(commit("g", "a", 5), version)).error_code == 0
    for fetching in range(6):
        found = await client.call(committed("g", "a"), fetching)
        assert result(found).committed_offset == 5
        assert result(await client.call(committed("h", "a"), fetching)).committed_offset == -1


async def test_all_positions_of_a_group(client: Wire) -> None:
    await create(client, "a", "b")
    for topic in ("a", "b"):
        await client.call(commit("g", topic, 5))
    found = await client.call(committed("g"))
    assert [topic.name for topic in found.topics] == ["a", "b"]
    assert (await client.call(committed("h"))).topics == []


async def test_null_means_all_from_version_2_on(broker: Broker) -> None:
    async with wire(broker.addresses.native) as own:
        with pytest.raises(InvalidRequest, match="topics is null"):
            await own.call(committed("g"), 0)


async def test_positions_outlive_members_and_broker(tmp_path: Path, clock: ManualClock) -> None:
    async with (
        running_broker(tmp_path, clock, **settings()) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
    ):
        await create(client, "a")
        member_id, _ = await stable(client, "g")
        await client.call(commit("g", "a", 5, member_id=member_id, generation=1))
    async with (
        running_broker(tmp_path, clock, **settings()) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
    ):
        assert (await client.call(heartbeat("g", member_id, 1))).error_code == UnknownMemberId.code
        late = commit("g", "a", 6, member_id=member_id, generation=1)
        assert result(await client.call(late)).error_code == IllegalGeneration.code
        assert (await client.call(join("g", member_id))).error_code == UnknownMemberId.code
        assert result(await client.call(committed("g", "a"))).committed_offset == 5
        await stable(client, "g")


async def test_who_waits_when_the_broker_stops_is_sent_elsewhere(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with running_broker(tmp_path, clock, **settings()) as broker:  # type: ignore[arg-type]
        address = broker.addresses.kafka
        async with kafka_client(address) as client, kafka_client(address) as other:
            first, _ = await stable(client, "g")
            other.send_together(join("g"))
            while (await client.call(heartbeat("g", first, 1))).error_code == 0:
                pass
            await broker.stop()
            assert ((await other.receive())[1]).error_code == NotCoordinator.code


async def test_describing(client: Wire) -> None:
    await create(client, "a")
    member_id, _ = await stable(client, "g")
    await client.call(commit("positions", "a", 5))
    ask = DescribeGroupsRequest(groups=["g", "positions", "nothing"])
    one, two, three = (await client.call(ask)).groups
    assert (one.group_state, one.protocol_type, one.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = one.members
    assert (member.member_id, member.client_id) == (member_id, "wire")
    assert (member.client_host, member.member_metadata) == ("127.0.0.1", b"topics")
    assert member.member_assignment == b"all"
    assert (two.group_state, two.members) == ("Empty", [])
    assert (three.group_state, three.error_code) == ("Dead", 0)


async def test_listing_and_deleting(client: Wire) -> None:
    await create(client, "a")
    member_id, _ = await stable(client, "g")
    await client.call(commit("g", "a", 5, member_id=member_id, generation=1))
    await client.call(commit("positions", "a", 5))
    listed = (await client.call(ListGroupsRequest())).groups
    assert [(group.group_id, group.protocol_type) for group in listed] == [
        ("g", "consumer"),
        ("positions", ""),
    ]
    ask = DeleteGroupsRequest(groups_names=["g", "positions", "nothing", ""])
    codes = [each.error_code for each in (await client.call(ask)).results]
    assert codes == [NonEmptyGroup.code, 0, GroupIdNotFound.code, InvalidGroupId.code]
    await client.call(leave("g", member_id))
    assert (await client.call(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == 0
    assert (await client.call(ListGroupsRequest())).groups == []
    assert result(await client.call(committed("g", "a"))).committed_offset == -1


RETENTION = {
    "offsets_retention_minutes": 60,
    "offsets_retention_check_interval_ms": MINUTE_MS,
    "group_max_session_timeout_ms": 10 * MINUTE_MS,
    "clock_settle_ms": 0,
}


async def test_positions_of_groups_expire(tmp_path: Path, clock: ManualClock) -> None:
    async with (
        running_broker(tmp_path, clock, **settings(**RETENTION)) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
        wire(broker.addresses.native) as own,
    ):
        await create(client, "a")
        await client.call(commit("simple", "a", 5))
        await client.call(commit("short", "a", 5, retention_ms=20 * MINUTE_MS), 2)
        await own.call(commit("named", "a", 5))
        member_id, _ = await stable(client, "g", session_ms=10 * MINUTE_MS)
        await client.call(commit("g", "a", 5, member_id=member_id, generation=1))

        async def left() -> list[str]:
            names = ("g", "named", "short", "simple")
            found = [result(await client.call(committed(name, "a"))) for name in names]
            return [
                name for name, each in zip(names, found, strict=True) if each.committed_offset == 5
            ]

        for minutes in range(1, 75):
            await time_passes(broker, clock, MINUTE_MS)
            await client.call(heartbeat("g", member_id, 1))
            if minutes == 19:
                assert await left() == ["g", "named", "short", "simple"]
            if minutes == 21:
                assert await left() == ["g", "named", "simple"]
            if minutes == 59:
                assert await left() == ["g", "named", "simple"]
        assert await left() == ["g", "named"]
        await client.call(leave("g", member_id))
        positions = broker.directory.committed
        await until(lambda: positions.last_used_ms("g") == clock.now_ms())
        for minutes in range(1, 62):
            await time_passes(broker, clock, MINUTE_MS)
            if minutes == 58:
                assert await left() == ["g", "named"]
        assert await left() == ["named"]


async def test_empty_groups_vanish_with_their_positions(tmp_path: Path, clock: ManualClock) -> None:
    """A group that has never committed vanishes within two checks of its last member's leave."""
    async with (
        running_broker(tmp_path, clock, **settings(**RETENTION)) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
    ):
        await create(client, "a")
        members = {name: (await stable(client, name))[0] for name in ("g", "never", "stays")}
        await client.call(commit("g", "a", 5, member_id=members["g"], generation=1))

        async def listed() -> list[str]:
            groups = (await client.call(ListGroupsRequest())).groups
            return sorted(each.group_id for each in groups)

        await client.call(leave("g", members["g"]))
        await client.call(leave("never", members["never"]))
        positions = broker.directory.committed
        await until(lambda: positions.last_used_ms("g") == clock.now_ms())
        for tenths in range(1, 26):
            await time_passes(broker, clock, MINUTE_MS // 10)
            await client.call(heartbeat("stays", members["stays"], 1))
            if tenths == 9:
                assert await listed() == ["g", "never", "stays"]
        assert await listed() == ["g", "stays"]

        member_id, generation = await stable(client, "never")
        assert generation == 1
        await client.call(leave("never", member_id))
        await client.call(leave("stays", members["stays"]))
        await time_passes(broker, clock, 61 * MINUTE_MS)
        assert await listed() == []


async def test_a_start_gives_members_time_to_come_back(tmp_path: Path, clock: ManualClock) -> None:
    async with (
        running_broker(tmp_path, clock, **settings(**RETENTION)) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
    ):
        await create(client, "a")
        await client.call(commit("g", "a", 5))
    clock.advance(1_000 * MINUTE_MS)
    async with (
        running_broker(tmp_path, clock, **settings(**RETENTION)) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
    ):
        for _ in range(9):
            await time_passes(broker, clock, MINUTE_MS)
        assert result(await client.call(committed("g", "a"))).committed_offset == 5
        await time_passes(broker, clock, MINUTE_MS)
        await time_passes(broker, clock, MINUTE_MS)
        assert result(await client.call(committed("g", "a"))).committed_offset == -1


async def test_a_new_client_joins_with_the_id_that_it_is_given(client: Wire) -> None:
    """KIP-394, from version 4 of join-group on."""
    first = await client.call(join("g"), 4)
    assert first.error_code == MemberIdRequired.code
    assert first.member_id.startswith("wire-")
    assert first.generation_id == -1
    second = await client.call(join("g", first.member_id), 4)
    assert (second.error_code, second.member_id) == (0, first.member_id)
    again = await client.call(join("g", "made up"), 4)
    assert again.error_code == UnknownMemberId.code


async def test_an_id_that_is_not_used_is_forgotten(
    broker: Broker, client: Wire, clock: ManualClock
) -> None:
    first = await client.call(join("g"), 5)
    await time_passes(broker, clock, 10_000)
    late = await client.call(join("g", first.member_id), 5)
    assert late.error_code == UnknownMemberId.code


async def test_static_members(broker: Broker, client: Wire, clock: ManualClock) -> None:
    """A restart, a second member with the same id, and a tool that takes members out."""
    await time_passes(broker, clock, 10_000)  # No member comes back from an earlier broker now.
    asks: dict[str, Any] = {"group_instance_id": "cell-1"}
    joined = await client.call(replaced(join("g"), **asks), 5)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert [each.group_instance_id for each in joined.members] == ["cell-1"]
    first = joined.member_id
    assert first.startswith("cell-1-")
    await client.call(replaced(sync("g", first, 1, {first: b"all"}), **asks))
    async with kafka_client(broker.addresses.kafka) as other:
        joined = await other.call(replaced(join("g"), **asks), 5)
        second = joined.member_id
        assert (joined.error_code, joined.generation_id, joined.members) == (0, 1, [])
        synced = await other.call(replaced(sync("g", second, 1), **asks))
        assert synced.assignment == b"all"
    fenced = FencedInstanceId.code
    assert (await client.call(replaced(heartbeat("g", first, 1), **asks))).error_code == fenced
    assert (await client.call(replaced(sync("g", first, 1), **asks))).error_code == fenced
    assert (await client.call(replaced(join("g", first), **asks), 5)).error_code == fenced
    await create(client, "a")
    late = replaced(commit("g", "a", 1, member_id=first, generation=1), **asks)
    assert result(await client.call(late)).error_code == fenced
    (described,) = (await client.call(DescribeGroupsRequest(groups=["g"]))).groups
    (member,) = described.members
    assert (member.member_id, member.group_instance_id) == (second, "cell-1")
    leaving = [
        LeavingMember(member_id=first, group_instance_id="cell-1"),
        LeavingMember(member_id="", group_instance_id="cell-1"),
        LeavingMember(member_id="", group_instance_id="cell-2"),
        LeavingMember(member_id="made up", group_instance_id=None),
    ]
    left = await client.call(LeaveGroupRequest(group_id="g", members=leaving), 3)
    assert left.error_code == 0
    assert [(each.group_instance_id, each.error_code) for each in left.members] == [
        ("cell-1", fenced),
        ("cell-1", 0),
        ("cell-2", UnknownMemberId.code),
        (None, UnknownMemberId.code),
    ]


async def test_static_members_that_come_back_to_a_broker_have_one_rebalance(
    broker: Broker, client: Wire, clock: ManualClock
) -> None:
    async with kafka_client(broker.addresses.kafka) as other:
        for each, name in ((client, "cell-1"), (other, "cell-2")):
            each.send(JOIN_GROUP, 5, replaced(join("g"), group_instance_id=name))
        await until(lambda: broker.services.groups.figures().members == 2)
        await time_passes(broker, clock, 3_000)
        await time_passes(broker, clock, 3_000)
        answers = [(await each.receive())[1] for each in (client, other)]
        assert [each.generation_id for each in answers] == [1, 1]
    assert broker.services.groups.figures().rebalances == 1


async def test_lists_by_state_and_type(client: Wire) -> None:
    await create(client, "a")
    await stable(client, "busy")
    await client.call(commit("positions", "a", 5))

    async def listed(*states: str, types: Sequence[str] = ()) -> list[tuple[str, str, str]]:
        answer = await client.call(
            ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        )
        return [(each.group_id, each.group_state, each.group_type) for each in answer.groups]

    busy, idle = ("busy", "Stable", "classic"), ("positions", "Empty", "classic")
    assert await listed() == [busy, idle]
    assert await listed("Stable") == [busy]
    assert await listed("empty") == [idle]
    assert await listed("EMPTY", "stable", "Unknown") == [busy, idle]
    assert await listed("Dead") == []
    assert await listed(types=["Classic"]) == [busy, idle]
    assert await listed(types=["consumer"]) == []
    older = await client.call(ListGroupsRequest(), 2)
    assert [each.group_id for each in older.groups] == ["busy", "positions"]


async def test_what_a_client_may_do_with_a_group_is_said_where_it_asks(client: Wire) -> None:
    ask = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (group,) = (await client.call(ask)).groups
    assert group.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8
    (group,) = (await client.call(DescribeGroupsRequest(groups=["g"]))).groups
    assert group.authorized_operations == NOT_ASKED


def positions_of(group: str, *places: tuple[str, int]) -> OffsetDeleteRequest:
    """Asks to delete them."""
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteTopic(name=topic, partitions=[OffsetDeletePartition(partition=number)])
            for topic, number in places
        ],
    )


def codes_of(answer: Any) -> dict[str, list[int]]:
    return {topic.name: [each.error_code for each in topic.partitions] for topic in answer.topics}


async def test_some_positions_of_a_group_are_deleted(tmp_path: Path, clock: ManualClock) -> None:
    async with (
        running_broker(tmp_path, clock, **settings()) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
    ):
        await create(client, "a", "b")
        for topic in ("a", "b"):
            await client.call(commit("g", topic, 5))
        answer = await client.call(
            positions_of("g", ("a", 0), ("a", 0), ("a", 7), ("none", 0), ("b", 0))
        )
        unknown = UnknownTopicOrPartition.code
        assert answer.error_code == 0
        assert codes_of(answer) == {"a": [0, unknown], "none": [unknown], "b": [0]}
        await client.call(commit("g", "b", 6))
        assert codes_of(await client.call(positions_of("g", ("a", 0)))) == {"a": [0]}
    async with (
        running_broker(tmp_path, clock, **settings()) as broker,  # type: ignore[arg-type]
        kafka_client(broker.addresses.kafka) as client,
    ):
        assert result(await client.call(committed("g", "a"))).committed_offset == -1
        assert result(await client.call(committed("g", "b"))).committed_offset == 6
        assert codes_of(await client.call(positions_of("g", ("b", 0)))) == {"b": [0]}
        gone = await client.call(positions_of("g", ("b", 0)))
        assert (gone.error_code, gone.topics) == (GroupIdNotFound.code, [])
        assert (await client.call(positions_of("", ("b", 0)))).error_code == InvalidGroupId.code


async def test_positions_of_topics_that_a_member_reads_are_kept(client: Wire) -> None:
    await create(client, "a", "b")
    subscription = b"\0\1\0\0\0\1\0\1a\xff\xff\xff\xff"
    member_id, generation = await stable(client, "g", metadata=subscription)
    for topic in ("a", "b"):
        await client.call(commit("g", topic, 5, member_id=member_id, generation=generation))
    answer = await client.call(positions_of("g", ("a", 0), ("b", 0)))
    assert codes_of(answer) == {"a": [GroupSubscribedToTopic.code], "b": [0]}
    assert result(await client.call(committed("g", "a"))).committed_offset == 5
    assert result(await client.call(committed("g", "b"))).committed_offset == -1
    await client.call(leave("g", member_id))
    assert codes_of(await client.call(positions_of("g", ("a", 0)))) == {"a": [0]}


async def test_what_members_read_is_not_guessed(client: Wire) -> None:
    await create(client, "a")
    member_id, generation = await stable(client, "g")  # which brings b"topics"
    await client.call(commit("g", "a", 5, member_id=member_id, generation=generation))
    answer = await client.call(positions_of("g", ("a", 0)))
    assert codes_of(answer) == {"a": [GroupSubscribedToTopic.code]}
    workers = replaced(join("connect"), protocol_type="connect")
    assert (await client.call(workers)).error_code == 0
    answer = await client.call(positions_of("connect", ("a", 0)))
    assert (answer.error_code, answer.topics) == (NonEmptyGroup.code, [])
