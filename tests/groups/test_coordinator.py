"""Many groups: which there may be, how much they take, and whose deadline is next."""

import itertools
from collections.abc import Callable

import pytest

from horolog.protocol.errors import PolicyViolation
from horolog.server.groups.coordinator import LEFT_OVER_MAX, Coordinator, CoordinatorLimits
from horolog.server.groups.group import GroupLimits
from horolog.server.groups.member import Joined
from horolog.server.groups.states import State

from .conftest import joining


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
