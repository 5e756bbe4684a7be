"""Assignors: how the leader of a consumer group divides partitions among the members.

`range` gives each member consecutive partitions of every topic, as Kafka's RangeAssignor does.
`cooperative-sticky` balances the partitions of all topics, moves as few as possible, and takes a
partition from its owner in one rebalance before it gives it away in the next (KIP-429). All
functions are pure; they may be slow for many partitions, so they run in a thread.
"""

from bisect import insort
from collections.abc import Mapping
from typing import Final, Protocol

from ....protocol.consumer_protocol import MemberSubscription, TopicPartition
from ....values import value_class

RANGE: Final = "range"
COOPERATIVE_STICKY: Final = "cooperative-sticky"


@value_class
class GroupMemberInfo:
    """A member as the leader sees it."""

    member_id: str
    subscription: MemberSubscription
    instance_id: str | None = None

    @property
    def rank(self) -> tuple[bool, str]:
        """Order of members that lasts over restarts: static members first, by their ids."""
        return self.instance_id is None, self.instance_id or self.member_id


Assignments = dict[str, list[TopicPartition]]
"""Partitions by member id; every member has an entry."""


class Assignor(Protocol):
    """Divides the partitions of topics, whose counts are given, among members."""

    def __call__(
        self, members: list[GroupMemberInfo], counts: Mapping[str, int]
    ) -> Assignments: ...


def assign_ranges(members: list[GroupMemberInfo], counts: Mapping[str, int]) -> Assignments:
    """Divide each topic by itself: the first members, by `rank`, get one partition more if they do
    not come out even."""
    ranked = sorted(members, key=lambda member: member.rank)
    found: Assignments = {member.member_id: [] for member in ranked}
    for topic, count in sorted(counts.items()):
        readers = [one.member_id for one in ranked if topic in one.subscription.topics]
        first = 0
        for place, member_id in enumerate(readers):
            share = count // len(readers) + (place < count % len(readers))
            found[member_id] += [(topic, number) for number in range(first, first + share)]
            first += share
    return found


def assign_stickily(members: list[GroupMemberInfo], counts: Mapping[str, int]) -> Assignments:
    """Return the next step to a balanced assignment: a partition that moves is first revoked
    from its owner, and assigned once it has no owner."""
    target = balance(members, counts)
    owners = owners_of(members, counts)
    return {
        member_id: [key for key in keys if owners.get(key, member_id) == member_id]
        for member_id, keys in target.items()
    }


def balance(members: list[GroupMemberInfo], counts: Mapping[str, int]) -> Assignments:
    """Return a balanced assignment that keeps as many partitions as possible at their owners.

    Balanced: no partition can move from its member to another one, which also reads that topic and
    has at least two partitions fewer.
    """
    sticky = _Balance(members, counts)
    sticky.keep(owners_of(members, counts))
    sticky.place_others(counts)
    sticky.level()
    return {member_id: sorted(keys) for member_id, keys in sticky.shares.items()}


def owners_of(
    members: list[GroupMemberInfo], counts: Mapping[str, int]
) -> dict[TopicPartition, str]:
    """Return the owner of each partition. A partition that two members claim belongs to the
    member with the later generation. If both have the same generation, it has no owner."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        generation = member.subscription.generation
        for key in member.subscription.owned:
            if key[1] >= counts.get(key[0], 0) or key[0] not in member.subscription.topics:
                continue
            before = best.get(key)
            if before is None or generation > before[0]:
                best[key] = generation, member.member_id
            elif generation == before[0]:
                best[key] = generation, None
    return {key: owner for key, (_, owner) in best.items() if owner is not None}


class _Balance:
    """An assignment in progress."""

    def __init__(self, members: list[GroupMemberInfo], counts: Mapping[str, int]) -> None:
        ranked = sorted(members, key=lambda member: member.rank)
        self.shares: dict[str, set[TopicPartition]] = {one.member_id: set() for one in ranked}
        self._readers: dict[str, list[str]] = {
            topic: [one.member_id for one in ranked if topic in one.subscription.topics]
            for topic in counts
        }

    def keep(self, owners: Mapping[TopicPartition, str]) -> None:
        for key, member_id in owners.items():
            self.shares[member_id].add(key)

    def place_others(self, counts: Mapping[str, int]) -> None:
        """Give each partition without an owner to the member with the fewest. Topics with few
        readers come first, because they have the least choice."""
        owned = set().union(*self.shares.values())
        topics = sorted(counts, key=lambda topic: (len(self._readers[topic]), topic))
        for topic in topics:
            # Readers by number of partitions; the first one gets the next partition.
            order = sorted(
                (len(self.shares[member_id]), place)
                for place, member_id in enumerate(self._readers[topic])
            )
            for number in range(counts[topic]):
                if order and (topic, number) not in owned:
                    held, place = order.pop(0)
                    self.shares[self._readers[topic][place]].add((topic, number))
                    insort(order, (held + 1, place))

    def level(self) -> None:
        """Move partitions, one at a time from the member with the most, until it is balanced. Each
        move makes the sum of squares smaller, so this ends."""
        while (move := self._next_move()) is not None:
            key, giver, taker = move
            self.shares[giver].remove(key)
            self.shares[taker].add(key)

    def _next_move(self) -> tuple[TopicPartition, str, str] | None:
        """Return a partition that can move, its member and the one that gets it; None if it is
        balanced."""
        least_load = min(map(len, self.shares.values()), default=0)
        for giver in sorted(self.shares, key=self._load, reverse=True):
            load = self._load(giver)
            if load - least_load < 2:
                return None
            for topic in sorted({topic for topic, _ in self.shares[giver]}):
                taker = min(self._readers[topic], key=self._load)
                if load - self._load(taker) >= 2:
                    key = max(one for one in self.shares[giver] if one[0] == topic)
                    return key, giver, taker
        return None

    def _load(self, member_id: str) -> int:
        return len(self.shares[member_id])


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    RANGE: assign_ranges,
    COOPERATIVE_STICKY: assign_stickily,
}

COOPERATIVE: Final = frozenset((COOPERATIVE_STICKY,))
"""Assignors that let members keep their partitions during a rebalance."""
