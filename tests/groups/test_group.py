"""A group's answers and transitions, call by call."""

from collections.abc import Callable

import pytest

from horolog.protocol.errors import (
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    PolicyViolation,
    RebalanceInProgress,
    UnknownMemberId,
)
from horolog.server.groups.group import GroupLimits
from horolog.server.groups.member import Synced
from horolog.server.groups.states import RULES, State

from .conftest import Desk, joining


def test_one_member_is_leader_of_the_first_generation(desk: Desk) -> None:
    answer = desk.joined(desk.join())
    assert answer.generation == 1
    assert answer.leader == answer.member_id
    assert answer.protocol == "range"
    assert answer.members == [(answer.member_id, b"range")]
    number = desk.sync(answer.member_id, 1, {answer.member_id: b"all"})
    assert desk.answers[number] == Synced(b"all")
    assert desk.states == [State.PREPARING, State.COMPLETING, State.STABLE]
    desk.heartbeat(answer.member_id, 1)


def test_a_second_member_waits_until_the_first_joins_again(desk: Desk) -> None:
    (first,) = desk.stable()
    waiting = desk.join()
    assert waiting not in desk.answers
    with pytest.raises(RebalanceInProgress):
        desk.heartbeat(first, 1)
    again = desk.joined(desk.join(first))
    second = desk.joined(waiting)
    assert (again.generation, second.generation) == (2, 2)
    assert again.leader == second.leader == first
    assert [each for each, _ in again.members] == [first, second.member_id]
    assert second.members == []
    early = desk.sync(second.member_id, 2)
    assert early not in desk.answers
    late = desk.sync(first, 2, {first: b"1", second.member_id: b"2", "stranger": b"3"})
    assert desk.answers[early] == Synced(b"2")
    assert desk.answers[late] == Synced(b"1")


def test_whoever_syncs_after_the_leader_is_answered_at_once(desk: Desk) -> None:
    (first,) = desk.stable()
    waiting = desk.join()
    desk.join(first)
    second = desk.joined(waiting).member_id
    desk.sync(first, 2, {second: b"2"})
    assert desk.answers[desk.sync(second, 2)] == Synced(b"2")
    assert desk.answers[desk.sync(second, 2)] == Synced(b"2"), "and again when it asks again"


def test_a_silent_member_is_lost(desk: Desk) -> None:
    first, second = desk.stable(2)
    for _ in range(3):
        desk.wait(3)
        desk.heartbeat(first, 2)
    desk.wait(1)
    with pytest.raises(RebalanceInProgress):
        desk.heartbeat(first, 2)
    assert desk.lost == [(second, "session timed out")]
    assert desk.joined(desk.join(first)).generation == 3


def test_a_session_lasts_exactly_as_long_as_it_says(desk: Desk) -> None:
    (first,) = desk.stable()
    desk.wait(9.999)
    assert desk.lost == []
    desk.wait(0.001)
    assert desk.lost == [(first, "session timed out")]
    assert desk.group.state is State.EMPTY
    with pytest.raises(UnknownMemberId):
        desk.heartbeat(first, 1)


def test_who_does_not_join_again_is_left_out_after_the_rebalance_timeout(desk: Desk) -> None:
    first, second = desk.stable(2, joining(rebalance_ms=5000), joining(rebalance_ms=7000))
    again = desk.join(first, joining(rebalance_ms=5000))
    desk.wait(6.9)
    assert again not in desk.answers, "the longest of the members' timeouts counts"
    with pytest.raises(RebalanceInProgress):
        desk.heartbeat(second, 2)
    desk.wait(0.1)
    assert desk.joined(again).generation == 3
    assert desk.lost == [(second, "did not join in time")]


def test_a_leader_that_does_not_sync_is_left_out(desk: Desk) -> None:
    (first,) = desk.stable(1, joining(rebalance_ms=5000))
    waiting = desk.join("", joining(rebalance_ms=5000))
    desk.join(first, joining(rebalance_ms=5000))
    second = desk.joined(waiting).member_id
    parked = desk.sync(second, 2)
    desk.wait(3)
    desk.heartbeat(first, 2)
    desk.wait(2)
    assert desk.refused(parked) == RebalanceInProgress.code
    assert desk.lost == [(first, "did not sync in time")]
    alone = desk.joined(desk.join(second))
    assert (alone.generation, alone.leader) == (3, second)


def test_a_follower_that_never_syncs_is_left_out(desk: Desk) -> None:
    (first,) = desk.stable(1, joining(rebalance_ms=5000))
    waiting = desk.join("", joining(rebalance_ms=5000))
    desk.join(first, joining(rebalance_ms=5000))
    second = desk.joined(waiting).member_id
    desk.sync(first, 2, {})
    desk.wait(3)
    desk.heartbeat(second, 2)
    desk.heartbeat(first, 2)
    desk.wait(2)
    assert desk.lost == [(second, "did not sync in time")]


def test_leaving(desk: Desk) -> None:
    first, second = desk.stable(2)
    desk.leave(first)
    assert desk.lost == [(first, "left")]
    assert desk.joined(desk.join(second)).leader == second
    desk.leave(second)
    assert desk.group.state is State.EMPTY
    with pytest.raises(UnknownMemberId):
        desk.leave(second)
    assert desk.joined(desk.join()).generation > 3, "generations go on rising"


def test_a_leader_that_joins_again_asks_for_a_rebalance(desk: Desk) -> None:
    first, second = desk.stable(2)
    asked = desk.joined(desk.join(second))
    assert (asked.generation, asked.leader) == (2, first), "a follower is only told again"
    again = desk.join(first)
    assert again not in desk.answers
    desk.join(second)
    assert desk.joined(again).generation == 3


def test_new_subscriptions_of_a_follower_are_a_rebalance(desk: Desk) -> None:
    first, second = desk.stable(2)
    changed = desk.join(second, joining(metadata=b"other topics"))
    assert changed not in desk.answers
    assert (second, b"other topics") in desk.joined(desk.join(first)).members


def test_a_lost_answer_is_told_again(desk: Desk) -> None:
    (first,) = desk.stable()
    waiting = desk.join()
    desk.join(first)
    second = desk.joined(waiting).member_id
    again = desk.joined(desk.join(second))
    assert (again.generation, again.member_id) == (2, second)
    leader = desk.joined(desk.join(first))
    assert len(leader.members) == 2


def test_a_repeated_join_takes_the_place_of_the_one_before(desk: Desk) -> None:
    first, second = desk.stable(2)
    one = desk.join(first)
    two = desk.join(first)
    assert desk.refused(one) == RebalanceInProgress.code
    desk.join(second)
    assert desk.joined(two).generation == 3


def test_a_repeated_sync_takes_the_place_of_the_one_before(desk: Desk) -> None:
    (first,) = desk.stable()
    waiting = desk.join()
    desk.join(first)
    second = desk.joined(waiting).member_id
    one = desk.sync(second, 2)
    two = desk.sync(second, 2)
    assert desk.refused(one) == RebalanceInProgress.code
    desk.sync(first, 2, {second: b"2"})
    assert desk.answers[two] == Synced(b"2")


def test_who_disconnects_before_it_knows_its_id_holds_up_nobody(desk: Desk) -> None:
    (first,) = desk.stable()
    waiting = desk.join()
    desk.gone(waiting)
    assert desk.lost == [("c-1", "disconnected while joining")]
    assert desk.joined(desk.join(first)).generation == 2


def test_who_knows_its_id_may_come_back_after_it_disconnected(desk: Desk) -> None:
    first, second = desk.stable(2)
    desk.gone(desk.join(second, joining(metadata=b"new")))
    assert desk.lost == []
    again = desk.join(second, joining(metadata=b"new"))
    desk.join(first)
    assert desk.joined(again).generation == 3


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ([("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "range")], "roundrobin"),
        ([("range", "roundrobin"), ("roundrobin", "range")], "range"),
        ([("range", "sticky"), ("sticky",), ("roundrobin", "sticky")], "sticky"),
    ],
)
def test_the_protocol_with_most_votes_is_chosen(
    desk: Desk, offers: list[tuple[str, ...]], chosen: str
) -> None:
    desk.stable(0, *(joining(*each) for each in offers))
    assert desk.group.protocol == chosen


@pytest.mark.parametrize(
    "brings",
    [
        joining("sticky"),
        joining(protocol_type="connect"),
        joining(protocol_type=""),
    ],
)
def test_members_have_a_protocol_in_common(desk: Desk, brings: object) -> None:
    desk.stable()
    with pytest.raises(InconsistentGroupProtocol):
        desk.join("", brings)  # type: ignore[arg-type]
    assert desk.group.state is State.STABLE, "who is refused disturbs nobody"


def test_a_lone_member_may_change_its_protocol(desk: Desk) -> None:
    (first,) = desk.stable()
    assert desk.joined(desk.join(first, joining("sticky"))).protocol == "sticky"


def test_generations_are_checked(desk: Desk) -> None:
    (first,) = desk.stable()
    for generation in (0, 2):
        with pytest.raises(IllegalGeneration):
            desk.heartbeat(first, generation)
        with pytest.raises(IllegalGeneration):
            desk.sync(first, generation)
        with pytest.raises(IllegalGeneration):
            desk.group.check_commit(desk.now, first, generation)
    with pytest.raises(UnknownMemberId):
        desk.sync("stranger", 1)
    with pytest.raises(UnknownMemberId):
        desk.join("stranger")


def test_who_may_commit(desk: Desk) -> None:
    def may(member_id: str, generation: int) -> type[Exception] | None:
        try:
            desk.group.check_commit(desk.now, member_id, generation)
        except Exception as error:
            return type(error)
        return None

    assert may("", -1) is None, "who is no member, while there is none"
    (first,) = desk.stable()
    assert may("", -1) is UnknownMemberId
    assert may(first, 1) is None
    waiting = desk.join()
    assert may(first, 1) is None, "what was done before the rebalance"
    desk.join(first)
    assert may(first, 2) is RebalanceInProgress
    assert may(first, 1) is IllegalGeneration
    second = desk.joined(waiting).member_id
    desk.sync(first, 2)
    assert may(second, 2) is None
    desk.leave(second)
    desk.leave(first)
    assert may("", -1) is None


def test_a_commit_is_a_sign_of_life(desk: Desk) -> None:
    (first,) = desk.stable()
    desk.wait(9)
    desk.group.check_commit(desk.now, first, 1)
    desk.wait(9)
    assert desk.group.state is State.STABLE


@pytest.mark.parametrize("again", [False, True])
def test_as_many_members_as_may_be(again: bool) -> None:
    desk = Desk(GroupLimits(members_max=2, bytes_max=1 << 20, initial_delay_ms=0))
    first, _ = desk.stable(2)
    if again:
        desk.join(first)
        return
    with pytest.raises(GroupMaxSizeReached, match=r"group\.max\.size"):
        desk.join()
    assert desk.group.state is State.STABLE


def test_as_many_bytes_as_may_be() -> None:
    small = Desk()
    small.stable()
    own = small.group.size_bytes - len(b"c-0")
    for room, fits in ((100, True), (99, False)):
        desk = Desk(GroupLimits(members_max=9, bytes_max=own + room, initial_delay_ms=0))
        first = desk.joined(desk.join()).member_id
        if fits:
            desk.sync(first, 1, {first: b"x" * 100})
            continue
        with pytest.raises(PolicyViolation, match=r"group\.max\.bytes"):
            desk.sync(first, 1, {first: b"x" * 100})
        assert desk.group.state is State.COMPLETING


def test_metadata_counts() -> None:
    desk = Desk(GroupLimits(members_max=9, bytes_max=2000, initial_delay_ms=0))
    desk.join("", joining(metadata=b"x" * 900))
    with pytest.raises(PolicyViolation):
        desk.join("", joining(metadata=b"x"))
    with pytest.raises(PolicyViolation):
        desk.join("c-0", joining(metadata=b"x" * 1000))
    assert desk.group.size_bytes < 2000


def delayed(delay_ms: int) -> Desk:
    return Desk(GroupLimits(members_max=9, bytes_max=1 << 20, initial_delay_ms=delay_ms))


def test_the_first_members_wait_for_others() -> None:
    desk = delayed(3000)
    one = desk.join()
    desk.wait(2.9)
    two = desk.join()
    desk.wait(0.1)
    assert desk.answers == {}, "somebody came, so more may be on their way"
    desk.wait(3)
    assert desk.joined(one).generation == desk.joined(two).generation == 1
    assert len(desk.joined(one).members) == 2


def test_the_first_members_do_not_wait_longer_than_a_rebalance_may_take() -> None:
    desk = delayed(3000)
    brings = joining(rebalance_ms=5000)
    one = desk.join("", brings)
    for _ in range(4):
        desk.wait(1)
        desk.join("", brings)
    desk.wait(0.9)
    assert one not in desk.answers
    desk.wait(0.1)
    assert desk.joined(one).generation == 1


def test_a_delay_is_only_for_a_group_that_was_empty() -> None:
    desk = delayed(3000)
    one = desk.join()
    desk.wait(3)
    first = desk.joined(one).member_id
    waiting = desk.join()
    desk.join(first)
    assert desk.joined(waiting).generation == 2


def test_everybody_goes_during_the_delay() -> None:
    desk = delayed(3000)
    desk.gone(desk.join())
    assert desk.group.state is State.EMPTY
    one = desk.join()
    desk.wait(3)
    assert desk.joined(one).members


REQUESTS: list[Callable[[Desk, str], object]] = [
    lambda desk, member: desk.join(member),
    lambda desk, member: desk.sync(member, desk.group.generation),
    lambda desk, member: desk.heartbeat(member, desk.group.generation),
    lambda desk, member: desk.leave(member),
]


@pytest.mark.parametrize("request_of", REQUESTS)
def test_a_dropped_group_knows_nobody(
    desk: Desk, request_of: Callable[[Desk, str], object]
) -> None:
    (first,) = desk.stable()
    desk.leave(first)
    desk.group.drop()
    with pytest.raises(UnknownMemberId):
        request_of(desk, first)
    with pytest.raises(UnknownMemberId):
        desk.join()


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    assert set(RULES) == set(State)
    assert {after for rules in RULES.values() for after in rules.next} == set(State)
