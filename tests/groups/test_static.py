"""Static members (KIP-345): those with a `group.instance.id`."""

import itertools
from typing import Any

import pytest

from horolog.protocol.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from horolog.server.groups.coordinator import Coordinator, CoordinatorLimits
from horolog.server.groups.group import COMPARED_BYTES, GroupLimits
from horolog.server.groups.member import Joined, Joining, Synced
from horolog.server.groups.states import State

from .conftest import Service, joining


def static(name: str, *protocols: str, **more: Any) -> Joining:
    return joining(*protocols, instance_id=name, **more)


def subscription(*topics: str) -> bytes:
    """What a consumer brings along."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def test_a_restart_within_the_session_is_no_rebalance(service: Service) -> None:
    leader, follower = service.stable(2, static("a"), static("b"))
    began = service.states.count(State.PREPARING)
    service.wait(9)
    service.heartbeat(leader, 2)
    again = service.joined(service.join("", static("b")))
    assert (again.generation, again.leader, again.members) == (2, leader, ())
    assert again.member_id not in (leader, follower)
    assert service.answers[service.sync(again.member_id, 2)] == Synced(follower.encode())
    service.heartbeat(leader, 2)
    assert service.states.count(State.PREPARING) == began
    service.wait(9)
    service.heartbeat(leader, 2)
    service.heartbeat(again.member_id, 2, "b")
    assert [why for _, why in service.lost] == ["replaced by a member with its instance id"]


def test_a_leader_that_was_restarted_does_not_share_out_the_work(service: Service) -> None:
    leader, follower = service.stable(2, static("a"), static("b"))
    again = service.joined(service.join("", static("a")))
    assert (again.generation, again.leader, again.members) == (2, leader, ())
    assert service.group.leader == again.member_id
    assert service.answers[service.sync(again.member_id, 2)] == Synced(leader.encode())
    service.heartbeat(follower, 2, "b")


def test_a_second_member_with_the_same_id_fences_the_first(service: Service) -> None:
    leader, first = service.stable(2, static("a"), static("b"))
    second = service.joined(service.join("", static("b"))).member_id
    with pytest.raises(FencedInstanceId, match=r"group\.instance\.id 'b'"):
        service.heartbeat(first, 2, "b")
    with pytest.raises(FencedInstanceId):
        service.join(first, static("b"))
    with pytest.raises(FencedInstanceId):
        service.sync(first, 2, instance_id="b")
    with pytest.raises(FencedInstanceId):
        service.commit(first, 2, "b")
    with pytest.raises(FencedInstanceId):
        service.leave(first, "b")
    with pytest.raises(UnknownMemberId):
        service.heartbeat(first, 2)
    service.heartbeat(second, 2, "b")
    service.commit(second, 2, "b")
    with pytest.raises(IllegalGeneration):
        service.heartbeat(second, 1, "b")
    service.heartbeat(leader, 2, "a")


def test_requests_of_the_first_that_wait_are_fenced(service: Service) -> None:
    service.stable(1, static("a"))
    waiting = service.join("", static("b"))
    instead = service.join("", static("b"))
    assert service.refused(waiting) == FencedInstanceId.code
    assert instead not in service.answers
    leader = next(iter(service.group.members))
    service.join(leader, static("a"))
    second = service.joined(instead)
    syncing = service.sync(second.member_id, 2, instance_id="b")
    third = service.join("", static("b"))
    assert service.refused(syncing) == FencedInstanceId.code
    with pytest.raises(RebalanceInProgress):
        service.heartbeat(leader, 2, "a")
    assert service.joined(service.join(leader, static("a"))).generation == 3
    assert service.joined(third).generation == 3


def test_an_instance_id_that_is_not_known_is_that_of_no_member(service: Service) -> None:
    """As Kafka: such a member begins anew, and is not fenced."""
    (dynamic,) = service.stable()
    for ask in (
        lambda: service.heartbeat(dynamic, 1, "a"),
        lambda: service.join(dynamic, static("a")),
        lambda: service.sync(dynamic, 1, instance_id="a"),
        lambda: service.commit(dynamic, 1, "a"),
        lambda: service.leave(dynamic, "a"),
        lambda: service.leave("", "a"),
    ):
        with pytest.raises(UnknownMemberId):
            ask()
    service.heartbeat(dynamic, 1)


def test_a_client_that_does_not_say_its_instance_id_stays_static(service: Service) -> None:
    (member,) = service.stable(1, static("a"))
    service.heartbeat(member, 1)
    again = service.joined(service.join(member, joining()))
    assert again.members == [(member, "a", b"range")]
    assert service.joined(service.join("", static("a"))).member_id != member


def test_a_static_member_is_lost_when_its_session_is_over(service: Service) -> None:
    (member,) = service.stable(1, static("a"))
    service.wait(10)
    assert service.lost == [(member, "session timed out")]
    assert service.group.state is State.EMPTY
    assert service.joined(service.join("", static("a"))).generation == 3


def test_a_static_member_keeps_its_place_in_a_rebalance_that_it_missed(service: Service) -> None:
    leader, away = service.stable(
        2,
        static("a", rebalance_ms=5000, session_ms=30_000),
        static("b", rebalance_ms=5000, session_ms=30_000),
    )
    new = service.join("", joining(rebalance_ms=5000, session_ms=30_000))
    again = service.join(leader, static("a", rebalance_ms=5000, session_ms=30_000))
    service.wait(4.9)
    assert again not in service.answers
    service.wait(0.1)
    shared = service.joined(again)
    assert {each: instance for each, instance, _ in shared.members} == {
        leader: "a",
        away: "b",
        service.joined(new).member_id: None,
    }
    assert service.lost == []
    service.sync(leader, 3, {leader: b"1", away: b"2"})
    service.sync(service.joined(new).member_id, 3)
    service.wait(6)
    assert service.lost == [], "who is late to sync keeps its share, too"
    with pytest.raises(IllegalGeneration):
        service.heartbeat(away, 2, "b")
    back = service.joined(service.join(away, static("b", rebalance_ms=5000, session_ms=30_000)))
    assert back.generation == 3
    assert service.answers[service.sync(away, 3, instance_id="b")] == Synced(b"2")


def test_a_leader_that_missed_a_rebalance_leads_no_more(service: Service) -> None:
    brings: dict[str, Any] = {"rebalance_ms": 5000, "session_ms": 30_000}
    away, other = service.stable(2, static("a", **brings), static("b", **brings))
    service.join("", joining(**brings))
    again = service.join(other, static("b", **brings))
    service.wait(5)
    assert service.joined(again).leader == other
    assert away in service.group.members


def test_a_rebalance_that_no_member_joins_goes_on_until_their_sessions_are_over(
    service: Service,
) -> None:
    brings: dict[str, Any] = {"rebalance_ms": 1000, "session_ms": 10_000}
    service.stable(2, static("a", **brings), static("b", **brings))
    new = service.join("", joining(**brings))
    service.leave(next(reversed(list(service.group.members))))
    assert service.refused(new) == UnknownMemberId.code
    service.wait(3)
    assert (service.group.state, len(service.group.members)) == (State.PREPARING, 2)
    service.wait(7)
    assert (service.group.state, len(service.group.members)) == (State.EMPTY, 0)


def test_a_static_leader_that_does_not_sync_is_left_out(service: Service) -> None:
    """Else the others would wait for their shares until its session is over."""
    brings: dict[str, Any] = {"rebalance_ms": 5000, "session_ms": 60_000}
    leader, follower = service.stable(2, static("a", **brings), static("b", **brings))
    service.join(leader, static("a", **brings))
    service.join(follower, static("b", **brings))
    parked = service.sync(follower, 3, instance_id="b")
    service.wait(5)
    assert service.refused(parked) == RebalanceInProgress.code
    assert service.lost == [(leader, "did not sync in time")]


def test_leaving_ends_a_static_member(service: Service) -> None:
    leader, follower = service.stable(2, static("a"), static("b"))
    service.leave("", "b")
    assert service.lost == [(follower, "left")]
    with pytest.raises(UnknownMemberId):
        service.leave("", "b")
    service.leave(leader, "a")
    assert service.group.state is State.EMPTY


def test_a_connection_that_ends_does_not_end_a_static_member(service: Service) -> None:
    service.stable(1, static("a"))
    waiting = service.join("", static("b"))
    service.gone(waiting)
    assert service.lost == []
    assert len(service.group.members) == 2


def test_other_topics_after_a_restart_are_a_rebalance(service: Service) -> None:
    brings = static("a", metadata=subscription("x", "y"))
    leader, _ = service.stable(2, brings, static("b", metadata=subscription("x")))
    owned = subscription("x") + b"\0\0\0\1what it owned"
    again = service.join("", static("b", metadata=owned))
    assert service.joined(again).generation == 2, "the topics are the same"
    changed = service.join("", static("b", metadata=subscription("z")))
    assert changed not in service.answers
    service.join(leader, brings)
    assert service.joined(changed).generation == 3


@pytest.mark.parametrize("metadata", [b"\0", b"\0\1\0\0\0\1\0\5a", subscription("x") * 2])
def test_what_is_no_subscription_is_compared_byte_by_byte(
    service: Service, metadata: bytes
) -> None:
    service.stable(1, static("a", metadata=metadata))
    assert service.joined(service.join("", static("a", metadata=metadata))).generation == 1
    other = service.join("", static("a", metadata=metadata[:-1] + b"!"))
    whole = metadata.startswith(subscription("x"))
    assert service.joined(other).generation == (1 if whole else 2)


def test_long_subscriptions_are_compared_byte_by_byte(service: Service) -> None:
    long = subscription("x") + bytes(COMPARED_BYTES)
    service.stable(1, static("a", metadata=long))
    assert service.joined(service.join("", static("a", metadata=long))).generation == 1
    assert service.joined(service.join("", static("a", metadata=long + b"!"))).generation == 2


def test_another_protocol_after_a_restart_is_a_rebalance(service: Service) -> None:
    leader, _ = service.stable(2, static("a", "range", "sticky"), static("b", "range", "sticky"))
    with pytest.raises(InconsistentGroupProtocol):
        service.join("", static("b", "other"))
    changed = service.join("", static("b", "sticky"))
    service.join(leader, static("a", "range", "sticky"))
    assert service.joined(changed).protocol == "sticky"


def test_a_restart_takes_no_more_room() -> None:
    service = Service(GroupLimits(members_max=2, bytes_max=1 << 20, initial_delay_ms=0))
    service.stable(2, static("a"), static("b"))
    size_bytes = service.group.size_bytes
    with pytest.raises(GroupMaxSizeReached):
        service.join("", static("c"))
    service.join("", static("b"))
    assert (service.group.size_bytes, len(service.group.members)) == (size_bytes, 2)


def test_after_a_failover_static_members_rejoin_with_one_rebalance() -> None:
    """The new leader knows no members and tells them so. The first that joins waits for the
    others."""
    numbers = itertools.count()
    groups = Coordinator(
        CoordinatorLimits(
            group=GroupLimits(members_max=10, bytes_max=1 << 20, initial_delay_ms=0),
            groups_max=10,
            bytes_max=1 << 30,
            session_timeout_min_ms=1,
            session_timeout_max_ms=1 << 30,
        ),
        lambda brings: f"{brings.instance_id}-{next(numbers)}",
    )
    groups.join(0, "a", "g", "", static("a"))
    ((_, before),) = groups.take_replies()
    assert isinstance(before, Joined)
    groups.forget_all()
    groups.begin(10)
    with pytest.raises(UnknownMemberId):
        groups.heartbeat(10, "g", before.member_id, 1, "a")
    groups.join(10.5, "c", "g", "", static("c"))
    groups.join(11, "a", "g", "", static("a"))
    groups.join(13, "b", "g", "", static("b"))
    assert groups.take_replies() == []
    groups.time_passed(13.5)
    groups.time_passed(16.5)
    joined = [answer for _, answer in groups.take_replies()]
    assert [each.generation for each in joined if isinstance(each, Joined)] == [1, 1, 1]
    groups.join(17, "d", "other", "", joining())
    assert len(groups.take_replies()) == 1, "dynamic members are not waited for"
    groups.join(20, "e", "third", "", static("e"))
    assert len(groups.take_replies()) == 1, "all sessions of before are over"
