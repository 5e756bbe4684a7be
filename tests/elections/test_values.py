"""Values in etcd: what is written is read again, and what is not one of ours is a clear error."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.replication.cluster_state import (
    ClusterState,
    Halt,
    KeptMember,
    MemberInfo,
    ReplicaExtent,
)
from horolog.replication.settings import Incarnation, Member
from horolog.server.replication.etcd.client import BadValue
from horolog.server.replication.etcd.store import (
    StoredMember,
    StoredState,
    decode_leader,
    decode_member,
    decode_state,
    encode_leader,
    encode_member,
    encode_state,
)

numbers = st.integers(0, 2**63 - 1)
members = st.builds(Member, st.integers(1, 999), numbers)
runs = st.builds(Incarnation, st.integers(1, 999), numbers)
states = st.builds(
    ClusterState,
    numbers,
    st.none() | runs,
    st.frozensets(members, max_size=5),
    st.frozensets(st.builds(KeptMember, members, numbers), max_size=5),
    numbers,
    st.integers(-1, 2**62),
    st.none() | st.builds(Halt, st.integers(-1, 2**31 - 1)),
)
partitions = st.tuples(st.text(max_size=20), st.integers(0, 100_000))
logs = st.dictionaries(partitions, st.tuples(numbers, numbers), max_size=5)


@given(st.text(max_size=40), states)
def test_states(cluster_id: str, state: ClusterState) -> None:
    stored = StoredState(cluster_id, state)
    assert decode_state("state", encode_state(stored)) == stored


def test_an_earlier_release_takes_no_part_in_a_halted_cluster() -> None:
    state = ClusterState(3, None, frozenset())
    for changed, version in (
        (state, 1),
        (state._replace(settled_epoch=3), 1),
        (state._replace(halt=Halt(-1)), 2),
        (state._replace(least_epoch=4), 2),
    ):
        assert json.loads(encode_state(StoredState("x", changed)))["version"] == version


@given(runs)
def test_leaders(run: Incarnation) -> None:
    assert decode_leader("leader", encode_leader(run)) == run


@given(runs, members, st.integers(-1, 2**62), numbers, st.none() | logs, st.booleans())
def test_members(
    run: Incarnation,
    member: Member,
    epoch: int,
    lease_id: int,
    has: dict[Any, Any] | None,
    lost: bool,
) -> None:
    reach = None
    if has is not None:
        reach = ReplicaExtent(3, tuple(sorted((name, *ends) for name, ends in has.items())), lost)
    info = MemberInfo(run, member, epoch, lease_id, reach)
    stored = StoredMember(info, "a:1", "b:2")
    assert decode_member("members/1", encode_member(stored), lease_id) == stored


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"null",
        b"[" * 100_000,
        b'{"version":3}',
        b'{"version":2}',
        b'{"version":1}',
        b'{"version":1,"cluster_id":"x","epoch":true,"leader":null,"isr":[],"kept":[]}',
        b'{"version":1,"cluster_id":"x","epoch":-1,"leader":null,"isr":[],"kept":[]}',
        b'{"version":1,"cluster_id":"x","epoch":1,"leader":[1],"isr":[],"kept":[]}',
        b'{"version":1,"cluster_id":"x","epoch":1,"leader":null,"isr":[[1,"2"]],"kept":[]}',
        b'{"version":1,"cluster_id":"x","epoch":1,"leader":null,"isr":{},"kept":[]}',
        b'{"version":1,"cluster_id":7,"epoch":1,"leader":null,"isr":[],"kept":[]}',
    ],
)
def test_values_that_are_none(value: bytes) -> None:
    with pytest.raises(BadValue, match="the value of /horolog/x/state in etcd"):
        decode_state("/horolog/x/state", value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.sampled_from(["incarnation", "member", "highest_epoch", "address", "reach"]), _JSON)
def test_no_value_is_a_crash(name: str, what: object) -> None:
    info = MemberInfo(Incarnation(1, 2), Member(1, 3), 4, 5, None)
    document = json.loads(encode_member(StoredMember(info, "", "")))
    document[name] = what
    with suppress(BadValue):  # Anything else would be no clear error.
        decode_member("m", json.dumps(document).encode(), 5)
