"""Many groups: which there may be, how much they take, and whose deadline is next."""

import itertools
from collections.abc import Callable

import pytest

from horolog.protocol.errors import InconsistentGroupProtocol, PolicyViolation, UnknownMemberId
from horolog.server.groups.coordinator import LEFT_OVER_MAX, Coordinator, CoordinatorLimits
from horolog.server.groups.group import GroupLimits
from horolog.server.groups.member import IdGiven, Joined, Joining
from horolog.server.groups.states import State

from .conftest import joining

ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
KIB = 1 << 10


def coordinator(groups_max: int = 3, bytes_max: int = 1 << 30) -> Coordinator:
    numbers = itertools.count()
    limits = CoordinatorLimits(
        group=GroupLimits(members_max=10, bytes_max=1 << 20, initial_delay_ms=0),
        groups_max=groups_max,
        bytes_max=bytes_max,
        session_timeout_min_ms=1,
        session_timeout_max_ms=1 << 30,
    )
    return Coordinator(limits, lambda brings: f"m-{next(numbers)}")


def enter(groups: Coordinator, name: str, now: float = 0.0, session_ms: int = 10_000) -> str:
    """Become a group's only member, in `Stable`; returns its id."""
    groups.join(now, "join", name, "", joining(session_ms=session_ms))
    ((_, joined),) = groups.take_replies()
    assert isinstance(joined, Joined)
    groups.sync(now, "sync", name, joined.member_id, joined.generation, {})
    groups.take_replies()
    return joined.member_id


def test_the_next_deadline_is_that_of_the_group_that_is_due_first() -> None:
    groups = coordinator()
    enter(groups, "late", session_ms=30_000)
    enter(groups, "early", session_ms=10_000)
    assert groups.next_deadline() == 10
    groups.time_passed(10)
    assert [group.state for group in groups.groups.values()] == [State.STABLE, State.EMPTY]
    assert groups.next_deadline() == 30
    groups.time_passed(30)
    assert groups.next_deadline() == float("inf")


def test_a_deadline_that_heartbeats_have_moved_is_looked_at_again() -> None:
    groups = coordinator()
    member_id = enter(groups, "g")
    groups.heartbeat(8, "g", member_id, 1)
    groups.time_passed(groups.next_deadline())
    assert groups.next_deadline() == 18
    assert len(groups.groups["g"].members) == 1
    groups.time_passed(18)
    assert len(groups.groups["g"].members) == 0


def test_groups_without_members_make_room_for_others() -> None:
    groups = coordinator(groups_max=2)
    member_id = enter(groups, "one")
    enter(groups, "two")
    with pytest.raises(PolicyViolation, match=r"max\.groups"):
        enter(groups, "three")
    groups.leave(1, "one", member_id)
    enter(groups, "three")
    assert groups.groups.keys() == {"two", "three"}


def test_the_bytes_of_all_groups_are_those_of_each() -> None:
    groups = coordinator()
    ids = {name: enter(groups, name) for name in ("a", "b", "c")}
    assert groups.size_bytes == sum(group.size_bytes for group in groups.groups.values()) > 0
    groups.leave(1, "a", ids["a"])
    groups.time_passed(100)
    assert groups.size_bytes == 0


@pytest.mark.parametrize(
    "refused", [lambda: joining(protocol_type=""), lambda: joining("x" * 2**20)]
)
def test_who_is_refused_leaves_no_group(refused: Callable[[], object]) -> None:
    groups = coordinator()
    with pytest.raises(Exception, match=r"protocol type|group\.max\.bytes"):
        groups.join(0, "join", "g", "", refused())  # type: ignore[arg-type]
    assert not groups.groups
    assert groups.size_bytes == 0


def test_coming_and_going_leaves_nothing_behind() -> None:
    groups = coordinator()
    for _ in range(10 * LEFT_OVER_MAX):
        groups.leave(0, "g", enter(groups, "g", session_ms=1 << 30))
    assert len(groups._due) <= LEFT_OVER_MAX + 2
    assert not groups._waiting_in


def fill(groups: Coordinator, user: str, host: str, size: int = KIB) -> int:
    """Join groups as a client until that is refused; how many there were."""
    for number in itertools.count():
        name = f"{user}-{host}-{number}"
        try:
            brings = joining(metadata=b"x" * size, user=user, host=host)
            groups.join(0, "join", name, "", brings)
        except PolicyViolation:
            assert name not in groups.groups
            return number
        groups.take_replies()
    raise AssertionError


def test_a_user_leaves_bytes_to_others_wherever_it_comes_from() -> None:
    groups = coordinator(groups_max=10_000, bytes_max=200 * KIB)
    assert fill(groups, ALICE, "10.0.0.1") > 50
    assert fill(groups, ALICE, "10.0.0.2") == 0
    assert 0.75 < groups.size_bytes / (200 * KIB) <= 0.8
    enter(groups, "another address")
    assert fill(groups, BOB, "10.0.0.1") > 5, "from where the other one came, too"
    assert fill(groups, CAROL, "10.0.0.3") > 0


def test_an_address_without_a_login_leaves_bytes_to_others() -> None:
    groups = coordinator(groups_max=10_000, bytes_max=200 * KIB)
    assert fill(groups, "", "10.0.0.1") > 50
    assert fill(groups, "", "10.0.0.2") > 3
    assert fill(groups, "", "10.0.0.3", size=0) > 0


def test_what_a_member_took_is_there_again_when_it_is_gone() -> None:
    groups = coordinator(groups_max=10_000, bytes_max=200 * KIB)
    count = fill(groups, ALICE, "10.0.0.1")
    groups.time_passed(1_000)
    assert groups.size_bytes == 0
    assert fill(groups, ALICE, "10.0.0.1") == count
    groups.forget_all()
    assert fill(groups, ALICE, "10.0.0.1") == count


def test_assignments_count_for_the_members_that_get_them() -> None:
    groups = coordinator(bytes_max=20 * KIB)
    brings = joining(user=ALICE)
    groups.join(0, "join", "g", "", brings)
    ((_, joined),) = groups.take_replies()
    assert isinstance(joined, Joined)
    with pytest.raises(PolicyViolation, match=r"User:alice take .* at most 4 times"):
        groups.sync(0, "sync", "g", joined.member_id, 1, {joined.member_id: b"x" * 16 * KIB})
    groups.sync(0, "sync", "g", joined.member_id, 1, {joined.member_id: b"x" * 14 * KIB})
    with pytest.raises(PolicyViolation, match="User:alice"):
        groups.join(0, "join", "h", "", brings)


def test_a_user_leaves_groups_to_others() -> None:
    """What each of them takes in bytes is next to nothing."""
    groups = coordinator(groups_max=100)
    assert fill(groups, ALICE, "10.0.0.1") == 81
    assert fill(groups, ALICE, "10.0.0.2") == 0
    assert fill(groups, BOB, "10.0.0.2") == 16
    assert fill(groups, CAROL, "10.0.0.3") == 3
    with pytest.raises(PolicyViolation, match=r"groups of User:alice take 81 groups"):
        groups.join(0, "join", "g", "", joining(user=ALICE))
    groups.time_passed(1_000)
    assert fill(groups, ALICE, "10.0.0.1") == 81


def test_many_protocols_are_counted_as_what_they_take() -> None:
    many = joining(*[str(number) for number in range(100)])
    assert many.size_bytes > 100 * 200


def give(groups: Coordinator, name: str, brings: Joining | None = None, now: float = 0.0) -> str:
    """The member id that a client of join-group 4 or later gets first."""
    groups.join(now, "ask", name, "", brings or joining(), gives_id=True)
    ((token, given),) = groups.take_replies()
    assert token == "ask"
    assert isinstance(given, IdGiven)
    return given.member_id


def test_a_client_joins_with_the_id_that_it_got() -> None:
    groups = coordinator()
    member_id = give(groups, "g")
    assert groups.groups == {}, "it is no member yet"
    groups.join(1, "join", "g", member_id, joining())
    ((_, joined),) = groups.take_replies()
    assert isinstance(joined, Joined)
    assert (joined.member_id, joined.leader) == (member_id, member_id)
    before = groups.size_bytes
    groups.leave(2, "g", member_id)
    assert (before > 0, groups.size_bytes) == (True, 0)


def test_an_id_counts_for_one_member_of_its_group_until_its_session_would_be_over() -> None:
    groups = coordinator()
    used, left, late = (give(groups, "g") for _ in range(3))
    with pytest.raises(UnknownMemberId):
        groups.join(1, "join", "other", used, joining())
    groups.join(1, "join", "g", used, joining())
    groups.leave(1, "g", used)
    with pytest.raises(UnknownMemberId):
        groups.join(1, "again", "g", used, joining())
    groups.leave(1, "g", left)
    with pytest.raises(UnknownMemberId):
        groups.join(1, "join", "g", left, joining())
    assert groups.next_deadline() == 10
    assert groups.size_bytes > 0
    groups.time_passed(10)
    assert (groups.size_bytes, groups.next_deadline()) == (0, float("inf"))
    with pytest.raises(UnknownMemberId):
        groups.join(10, "join", "g", late, joining())


def test_an_id_only_is_no_member() -> None:
    groups = coordinator()
    member_id = give(groups, "g")
    with pytest.raises(UnknownMemberId):
        groups.heartbeat(0, "g", member_id, 1)
    with pytest.raises(UnknownMemberId):
        groups.sync(0, "sync", "g", member_id, 1, {})


def test_a_static_member_joins_at_once() -> None:
    groups = coordinator()
    groups.join(0, "join", "g", "", joining(instance_id="a"), gives_id=True)
    ((_, joined),) = groups.take_replies()
    assert isinstance(joined, Joined)


def test_no_id_is_given_to_a_client_that_may_not_join() -> None:
    groups = coordinator()
    enter(groups, "g")
    with pytest.raises(InconsistentGroupProtocol):
        give(groups, "g", joining("other"))
    assert groups.next_deadline() == 10


def test_ids_take_room_of_groups() -> None:
    groups = coordinator(bytes_max=4000)
    for _ in range(3):
        give(groups, "g", joining(user=ALICE))
    with pytest.raises(PolicyViolation, match=r"max\.groups\.bytes"):
        give(groups, "g", joining(user=BOB))
    groups.time_passed(10)
    give(groups, "g", joining(user=BOB), now=10)
    groups.forget_all()
    assert (groups.size_bytes, groups.next_deadline()) == (0, float("inf"))
    for _ in range(3):
        give(groups, "g", joining(user=BOB), now=10)


def test_ids_that_were_used_leave_nothing_behind() -> None:
    groups = coordinator()
    last = give(groups, "g", joining(session_ms=100))
    for _ in range(3 * LEFT_OVER_MAX):
        groups.leave(0, "g", give(groups, "g"))
    assert len(groups._given._due) <= LEFT_OVER_MAX + 2
    groups.time_passed(0.1)
    with pytest.raises(UnknownMemberId):
        groups.join(0.1, "join", "g", last, joining())
    assert (groups.size_bytes, groups.next_deadline()) == (0, float("inf"))


def test_an_unknown_member_is_told_so_where_all_groups_take_all_room() -> None:
    groups = coordinator(bytes_max=1000)
    with pytest.raises(UnknownMemberId):
        groups.join(0, "join", "g", "made up", joining())
    with pytest.raises(PolicyViolation):
        groups.join(0, "join", "g", "", joining())
