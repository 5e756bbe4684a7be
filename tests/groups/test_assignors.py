"""Assignors against what they promise: balanced, sticky, nothing twice."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from horolog.client.consume.groups.assignors import (
    Assignments,
    GroupMemberInfo,
    assign_ranges,
    assign_stickily,
    balance,
    owners_of,
)
from horolog.protocol.consumer_protocol import MemberSubscription, TopicPartition

TOPICS = ("a", "b", "c")

Members = list[GroupMemberInfo]


@st.composite
def counts_of(draw: st.DrawFn) -> dict[str, int]:
    names = draw(st.sets(st.sampled_from(TOPICS), min_size=1))
    return {name: draw(st.integers(0, 9)) for name in sorted(names)}


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[Members, dict[str, int]]:
    """Members, which own whatever they say, and the topics that exist. `alike`: all read the
    same."""
    counts = draw(counts_of())
    keys = [(topic, number) for topic in TOPICS for number in range(11)]
    size = draw(st.integers(1, 6))
    topics = draw(st.lists(st.sampled_from(TOPICS), unique=True))
    members = []
    for number in range(size):
        if not alike:
            topics = draw(st.lists(st.sampled_from(TOPICS), unique=True))
        owned = draw(st.frozensets(st.sampled_from(keys), max_size=8))
        generation = draw(st.integers(-1, 2))
        instance_id = draw(st.none() | st.just(f"i{number}"))
        subscription = MemberSubscription(tuple(topics), owned, generation)
        members.append(GroupMemberInfo(f"m{number}", subscription, instance_id))
    return draw(st.permutations(members)), counts


def readable(members: Members, counts: Mapping[str, int]) -> set[TopicPartition]:
    """All partitions that some member reads."""
    read = {topic for member in members for topic in member.subscription.topics}
    return {(topic, n) for topic in read for n in range(counts.get(topic, 0))}


def check_each_once(members: Members, counts: Mapping[str, int], found: Assignments) -> None:
    topics = {member.member_id: set(member.subscription.topics) for member in members}
    assert found.keys() == topics.keys()
    assert all(topic in topics[one] for one, keys in found.items() for topic, _ in keys)
    numbers = Counter(key for keys in found.values() for key in keys)
    assert numbers.keys() == readable(members, counts)
    assert set(numbers.values()) <= {1}


def check_balanced(members: Members, found: Assignments) -> None:
    readers = {
        topic: [one.member_id for one in members if topic in one.subscription.topics]
        for topic in TOPICS
    }
    for keys in found.values():
        for topic, _ in keys:
            assert all(len(keys) - len(found[other]) < 2 for other in readers[topic])


@given(groups())
def test_ranges_are_of_every_topic_by_itself(given_: tuple[Members, dict[str, int]]) -> None:
    members, counts = given_
    found = assign_ranges(members, counts)
    check_each_once(members, counts, found)
    for topic, count in counts.items():
        readers = [one for one in members if topic in one.subscription.topics]
        shares = [[n for name, n in found[one.member_id] if name == topic] for one in readers]
        # Consecutive, and in the order of the members by id, the first ones with one more.
        assert all(share == list(range(share[0], share[-1] + 1)) for share in shares if share)
        by_rank = sorted(zip(readers, shares, strict=True), key=lambda one: one[0].rank)
        joined = [number for _, share in by_rank for number in share]
        assert joined == (list(range(count)) if readers else [])
        sizes = [len(share) for _, share in by_rank]
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1


@given(groups())
def test_a_sticky_target_is_balanced(given_: tuple[Members, dict[str, int]]) -> None:
    members, counts = given_
    found = balance(members, counts)
    check_each_once(members, counts, found)
    check_balanced(members, found)


@given(groups(alike=True))
def test_where_all_read_the_same_no_partition_moves_without_need(
    given_: tuple[Members, dict[str, int]],
) -> None:
    members, counts = given_
    found, owners = balance(members, counts), owners_of(members, counts)
    held = Counter(owners.values())
    total = sum(map(len, found.values()))
    least, more = divmod(total, len(members))
    # Nobody can keep more than the least share, and only `more` of them one above it.
    at_most = sum(min(held[one.member_id], least) for one in members)
    at_most += min(sum(held[one.member_id] > least for one in members), more)
    kept = sum(owners.get(key) == member_id for member_id, keys in found.items() for key in keys)
    assert kept == at_most


@given(groups())
def test_a_partition_goes_when_its_owner_has_given_it_back(
    given_: tuple[Members, dict[str, int]],
) -> None:
    members, counts = given_
    owners = owners_of(members, counts)
    first = assign_stickily(members, counts)
    for member_id, keys in first.items():
        assert all(owners.get(key, member_id) == member_id for key in keys)
    # Two rebalances are enough: the second one has the target of the first.
    again = [
        GroupMemberInfo(
            one.member_id,
            MemberSubscription(one.subscription.topics, frozenset(first[one.member_id]), 3),
            one.instance_id,
        )
        for one in members
    ]
    second = assign_stickily(again, counts)
    check_each_once(members, counts, second)
    check_balanced(members, second)
    for member_id, keys in first.items():
        assert set(keys) <= set(second[member_id])
    third = [
        GroupMemberInfo(
            one.member_id,
            MemberSubscription(one.subscription.topics, frozenset(second[one.member_id]), 4),
            one.instance_id,
        )
        for one in members
    ]
    assert assign_stickily(third, counts) == second, "a group that is balanced stays"


@given(groups())
def test_two_members_that_claim_one_partition(given_: tuple[Members, dict[str, int]]) -> None:
    members, counts = given_
    owners = owners_of(members, counts)
    for key in {key for one in members for key in one.subscription.owned}:
        claims = [
            (one.subscription.generation, one.member_id)
            for one in members
            if key in one.subscription.owned and key[0] in one.subscription.topics
        ]
        if key[1] >= counts.get(key[0], 0) or not claims:
            assert key not in owners
            continue
        latest = max(generation for generation, _ in claims)
        of_latest = [member_id for generation, member_id in claims if generation == latest]
        assert owners.get(key) == (of_latest[0] if len(of_latest) == 1 else None)
