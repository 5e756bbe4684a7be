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

from .conftest import Service, joining


def test_one_member_is_leader_of_the_first_generation(service: Service) -> None:
    answer = service.joined(service.join())
    assert answer.generation == 1
    assert answer.leader == answer.member_id
    assert answer.protocol == "range"
    assert answer.members == [(answer.member_id, None, b"range")]
    number = service.sync(answer.member_id, 1, {answer.member_id: b"all"})
    assert service.answers[number] == Synced(b"all")
    assert service.states == [State.PREPARING, State.COMPLETING, State.STABLE]
    service.heartbeat(answer.member_id, 1)


def test_a_second_member_waits_until_the_first_joins_again(service: Service) -> None:
    (first,) = service.stable()
    waiting = service.join()
    assert waiting not in service.answers
    with pytest.raises(RebalanceInProgress):
        service.heartbeat(first, 1)
    again = service.joined(service.join(first))
    second = service.joined(waiting)
    assert (again.generation, second.generation) == (2, 2)
    assert again.leader == second.leader == first
    assert [each for each, _, _ in again.members] == [first, second.member_id]
    assert second.members == []
    early = service.sync(second.member_id, 2)
    assert early not in service.answers
    late = service.sync(first, 2, {first: b"1", second.member_id: b"2", "stranger": b"3"})
    assert service.answers[early] == Synced(b"2")
    assert service.answers[late] == Synced(b"1")


def test_whoever_syncs_after_the_leader_is_answered_at_once(service: Service) -> None:
    (first,) = service.stable()
    waiting = service.join()
    service.join(first)
    second = service.joined(waiting).member_id
    service.sync(first, 2, {second: b"2"})
    assert service.answers[service.sync(second, 2)] == Synced(b"2")
    assert service.answers[service.sync(second, 2)] == Synced(b"2"), "and again when it asks again"


def test_a_silent_member_is_lost(service: Service) -> None:
    first, second = service.stable(2)
    for _ in range(3):
        service.wait(3)
        service.heartbeat(first, 2)
    service.wait(1)
    with pytest.raises(RebalanceInProgress):
        service.heartbeat(first, 2)
    assert service.lost == [(second, "session timed out")]
    assert service.joined(service.join(first)).generation == 3


def test_a_session_lasts_exactly_as_long_as_it_says(service: Service) -> None:
    (first,) = service.stable()
    service.wait(9.999)
    assert service.lost == []
    service.wait(0.001)
    assert service.lost == [(first, "session timed out")]
    assert service.group.state is State.EMPTY
    with pytest.raises(UnknownMemberId):
        service.heartbeat(first, 1)


def test_who_does_not_join_again_is_left_out_after_the_rebalance_timeout(service: Service) -> None:
    first, second = service.stable(2, joining(rebalance_ms=5000), joining(rebalance_ms=7000))
    again = service.join(first, joining(rebalance_ms=5000))
    service.wait(6.9)
    assert again not in service.answers, "the longest of the members' timeouts counts"
    with pytest.raises(RebalanceInProgress):
        service.heartbeat(second, 2)
    service.wait(0.1)
    assert service.joined(again).generation == 3
    assert service.lost == [(second, "did not join in time")]


def test_a_leader_that_does_not_sync_is_left_out(service: Service) -> None:
    (first,) = service.stable(1, joining(rebalance_ms=5000))
    waiting = service.join("", joining(rebalance_ms=5000))
    service.join(first, joining(rebalance_ms=5000))
    second = service.joined(waiting).member_id
    parked = service.sync(second, 2)
    service.wait(3)
    service.heartbeat(first, 2)
    service.wait(2)
    assert service.refused(parked) == RebalanceInProgress.code
    assert service.lost == [(first, "did not sync in time")]
    alone = service.joined(service.join(second))
    assert (alone.generation, alone.leader) == (3, second)


def test_a_follower_that_never_syncs_is_left_out(service: Service) -> None:
    (first,) = service.stable(1, joining(rebalance_ms=5000))
    waiting = service.join("", joining(rebalance_ms=5000))
    service.join(first, joining(rebalance_ms=5000))
    second = service.joined(waiting).member_id
    service.sync(first, 2, {})
    service.wait(3)
    service.heartbeat(second, 2)
    service.heartbeat(first, 2)
    service.wait(2)
    assert service.lost == [(second, "did not sync in time")]


def test_leaving(service: Service) -> None:
    first, second = service.stable(2)
    service.leave(first)
    assert service.lost == [(first, "left")]
    assert service.joined(service.join(second)).leader == second
    service.leave(second)
    assert service.group.state is State.EMPTY
    with pytest.raises(UnknownMemberId):
        service.leave(second)
    assert service.joined(service.join()).generation > 3, "generations go on rising"


def test_a_leader_that_joins_again_asks_for_a_rebalance(service: Service) -> None:
    first, second = service.stable(2)
    asked = service.joined(service.join(second))
    assert (asked.generation, asked.leader) == (2, first), "a follower is only told again"
    again = service.join(first)
    assert again not in service.answers
    service.join(second)
    assert service.joined(again).generation == 3


def test_new_subscriptions_of_a_follower_are_a_rebalance(service: Service) -> None:
    first, second = service.stable(2)
    changed = service.join(second, joining(metadata=b"other topics"))
    assert changed not in service.answers
    assert (second, None, b"other topics") in service.joined(service.join(first)).members


def test_a_lost_answer_is_told_again(service: Service) -> None:
    (first,) = service.stable()
    waiting = service.join()
    service.join(first)
    second = service.joined(waiting).member_id
    again = service.joined(service.join(second))
    assert (again.generation, again.member_id) == (2, second)
    leader = service.joined(service.join(first))
    assert len(leader.members) == 2


def test_a_repeated_join_takes_the_place_of_the_one_before(service: Service) -> None:
    first, second = service.stable(2)
    one = service.join(first)
    two = service.join(first)
    assert service.refused(one) == RebalanceInProgress.code
    service.join(second)
    assert service.joined(two).generation == 3


def test_a_repeated_sync_takes_the_place_of_the_one_before(service: Service) -> None:
    (first,) = service.stable()
    waiting = service.join()
    service.join(first)
    second = service.joined(waiting).member_id
    one = service.sync(second, 2)
    two = service.sync(second, 2)
    assert service.refused(one) == RebalanceInProgress.code
    service.sync(first, 2, {second: b"2"})
    assert service.answers[two] == Synced(b"2")


def test_who_disconnects_before_it_knows_its_id_holds_up_nobody(service: Service) -> None:
    (first,) = service.stable()
    waiting = service.join()
    service.gone(waiting)
    assert service.lost == [("c-1", "disconnected while joining")]
    assert service.joined(service.join(first)).generation == 2


def test_who_knows_its_id_may_come_back_after_it_disconnected(service: Service) -> None:
    first, second = service.stable(2)
    service.gone(service.join(second, joining(metadata=b"new")))
    assert service.lost == []
    again = service.join(second, joining(metadata=b"new"))
    service.join(first)
    assert service.joined(again).generation == 3


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ([("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "range")], "roundrobin"),
        ([("range", "roundrobin"), ("roundrobin", "range")], "range"),
        ([("range", "sticky"), ("sticky",), ("roundrobin", "sticky")], "sticky"),
    ],
)
def test_the_protocol_with_most_votes_is_chosen(
    service: Service, offers: list[tuple[str, ...]], chosen: str
) -> None:
    service.stable(0, *(joining(*each) for each in offers))
    assert service.group.protocol == chosen


@pytest.mark.parametrize(
    "brings",
    [
        joining("sticky"),
        joining(protocol_type="connect"),
        joining(protocol_type=""),
    ],
)
def test_members_have_a_protocol_in_common(service: Service, brings: object) -> None:
    service.stable()
    with pytest.raises(InconsistentGroupProtocol):
        service.join("", brings)  # type: ignore[arg-type]
    assert service.group.state is State.STABLE, "who is refused disturbs nobody"


def test_a_lone_member_may_change_its_protocol(service: Service) -> None:
    (first,) = service.stable()
    assert service.joined(service.join(first, joining("sticky"))).protocol == "sticky"


def test_generations_are_checked(service: Service) -> None:
    (first,) = service.stable()
    for generation in (0, 2):
        with pytest.raises(IllegalGeneration):
            service.heartbeat(first, generation)
        with pytest.raises(IllegalGeneration):
            service.sync(first, generation)
        with pytest.raises(IllegalGeneration):
            service.group.check_commit(service.now, first, generation)
    with pytest.raises(UnknownMemberId):
        service.sync("stranger", 1)
    with pytest.raises(UnknownMemberId):
        service.join("stranger")


def test_who_may_commit(service: Service) -> None:
    def may(member_id: str, generation: int) -> type[Exception] | None:
        try:
            service.group.check_commit(service.now, member_id, generation)
        except Exception as error:
            return type(error)
        return None

    assert may("", -1) is None, "who is no member, while there is none"
    (first,) = service.stable()
    assert may("", -1) is UnknownMemberId
    assert may(first, 1) is None
    waiting = service.join()
    assert may(first, 1) is None, "what was done before the rebalance"
    service.join(first)
    assert may(first, 2) is RebalanceInProgress
    assert may(first, 1) is IllegalGeneration
    second = service.joined(waiting).member_id
    service.sync(first, 2)
    assert may(second, 2) is None
    service.leave(second)
    service.leave(first)
    assert may("", -1) is None


def test_a_commit_is_a_sign_of_life(service: Service) -> None:
    (first,) = service.stable()
    service.wait(9)
    service.group.check_commit(service.now, first, 1)
    service.wait(9)
    assert service.group.state is State.STABLE


@pytest.mark.parametrize("again", [False, True])
def test_as_many_members_as_may_be(again: bool) -> None:
    service = Service(GroupLimits(members_max=2, bytes_max=1 << 20, initial_delay_ms=0))
    first, _ = service.stable(2)
    if again:
        service.join(first)
        return
    with pytest.raises(GroupMaxSizeReached, match=r"group\.max\.size"):
        service.join()
    assert service.group.state is State.STABLE


def test_as_many_bytes_as_may_be() -> None:
    small = Service()
    small.stable()
    own = small.group.size_bytes - len(b"c-0")
    for room, fits in ((100, True), (99, False)):
        service = Service(GroupLimits(members_max=9, bytes_max=own + room, initial_delay_ms=0))
        first = service.joined(service.join()).member_id
        if fits:
            service.sync(first, 1, {first: b"x" * 100})
            continue
        with pytest.raises(PolicyViolation, match=r"group\.max\.bytes"):
            service.sync(first, 1, {first: b"x" * 100})
        assert service.group.state is State.COMPLETING


def test_metadata_counts() -> None:
    service = Service(GroupLimits(members_max=9, bytes_max=2000, initial_delay_ms=0))
    service.join("", joining(metadata=b"x" * 900))
    with pytest.raises(PolicyViolation):
        service.join("", joining(metadata=b"x"))
    with pytest.raises(PolicyViolation):
        service.join("c-0", joining(metadata=b"x" * 1000))
    assert service.group.size_bytes < 2000


def delayed(delay_ms: int) -> Service:
    return Service(GroupLimits(members_max=9, bytes_max=1 << 20, initial_delay_ms=delay_ms))


def test_the_first_members_wait_for_others() -> None:
    service = delayed(3000)
    one = service.join()
    service.wait(2.9)
    two = service.join()
    service.wait(0.1)
    assert service.answers == {}, "somebody came, so more may be on their way"
    service.wait(3)
    assert service.joined(one).generation == service.joined(two).generation == 1
    assert len(service.joined(one).members) == 2


def test_the_first_members_do_not_wait_longer_than_a_rebalance_may_take() -> None:
    service = delayed(3000)
    brings = joining(rebalance_ms=5000)
    one = service.join("", brings)
    for _ in range(4):
        service.wait(1)
        service.join("", brings)
    service.wait(0.9)
    assert one not in service.answers
    service.wait(0.1)
    assert service.joined(one).generation == 1


def test_a_delay_is_only_for_a_group_that_was_empty() -> None:
    service = delayed(3000)
    one = service.join()
    service.wait(3)
    first = service.joined(one).member_id
    waiting = service.join()
    service.join(first)
    assert service.joined(waiting).generation == 2


def test_everybody_goes_during_the_delay() -> None:
    service = delayed(3000)
    service.gone(service.join())
    assert service.group.state is State.EMPTY
    one = service.join()
    service.wait(3)
    assert service.joined(one).members


REQUESTS: list[Callable[[Service, str], object]] = [
    lambda service, member: service.join(member),
    lambda service, member: service.sync(member, service.group.generation),
    lambda service, member: service.heartbeat(member, service.group.generation),
    lambda service, member: service.leave(member),
]


@pytest.mark.parametrize("request_of", REQUESTS)
def test_a_dropped_group_knows_nobody(
    service: Service, request_of: Callable[[Service, str], object]
) -> None:
    (first,) = service.stable()
    service.leave(first)
    service.group.drop()
    with pytest.raises(UnknownMemberId):
        request_of(service, first)
    with pytest.raises(UnknownMemberId):
        service.join()


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    assert set(RULES) == set(State)
    assert {after for rules in RULES.values() for after in rules.next} == set(State)
