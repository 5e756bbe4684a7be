"""Kafka's ConsumerProtocol, beside another implementation of it."""

from contextlib import suppress

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import given
from hypothesis import strategies as st

from horolog import ProtocolError
from horolog.protocol.consumer_protocol import (
    NO_GENERATION,
    MemberSubscription,
    encode_assignment,
    read_assignment,
    read_subscription,
)

NAMES = st.text(min_size=1, max_size=20)
PARTITIONS = st.sets(st.tuples(NAMES, st.integers(0, 2**31 - 1)), max_size=20)


@given(
    st.builds(
        MemberSubscription,
        st.lists(NAMES, max_size=5).map(tuple),
        PARTITIONS.map(frozenset),
        st.integers(-1, 2**31 - 1),
    )
)
def test_a_subscription_is_read_as_it_was_written(subscription: MemberSubscription) -> None:
    data = subscription.encode()
    assert read_subscription(data) == subscription
    assert read_subscription(data + b"what a later version adds") == subscription
    theirs = ConsumerProtocolMemberMetadata.decode(data)
    assert tuple(theirs.subscription) == subscription.topics


@given(PARTITIONS)
def test_an_assignment_is_read_as_it_was_written(partitions: set[tuple[str, int]]) -> None:
    data = encode_assignment(partitions)
    assert read_assignment(data) == sorted(partitions)
    theirs = ConsumerProtocolMemberAssignment.decode(data)
    assert {(name, n) for name, numbers in theirs.assignment for n in numbers} == partitions


@given(st.lists(NAMES, max_size=5), st.binary(max_size=9))
def test_version_0_says_nothing_of_what_a_member_has(topics: list[str], user_data: bytes) -> None:
    data = ConsumerProtocolMemberMetadata(0, topics, user_data).encode()
    assert read_subscription(data) == MemberSubscription(tuple(topics), frozenset(), NO_GENERATION)


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_or_read(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        with suppress(ProtocolError):
            read(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\1\x7f\xff\xff\xff", "items in 6 bytes"),
        (b"\0\1\0\0\0\1\0\1t\0\0\0\1\xff\xff\xff\xff", "partition -1 of t"),
        (b"\0\1\0\0\0\1\0\1\xff\0\0\0\0", "not UTF-8"),
        (b"\0", "too few bytes"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        read_assignment(data)


def test_no_bytes_assign_nothing() -> None:
    assert read_assignment(b"") == []
