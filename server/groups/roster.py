"""The members of a group with what they have in common, kept up to date as they come and go."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, ValuesView

from .member import GroupMember, Joining


class Roster:
    """Members by id, in the order in which they came.

    A member's `joining` and `assignment` are changed here and nowhere else. So neither how much
    they take nor which protocols all of them offer has to be counted anew for each of a thousand
    members that join at a time.
    """

    def __init__(self, on_size: Callable[[Joining, int], None]) -> None:
        """`on_size` is called with how many bytes more a client's member takes, or less."""
        self._on_size = on_size
        self._members: dict[str, GroupMember] = {}
        self._offers: Counter[str] = Counter()
        self._static: dict[str, GroupMember] = {}
        """Static members by their instance ids."""
        self.size_bytes = 0
        """What it takes to keep them all, about."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> GroupMember | None:
        return self._members.get(member_id)

    def of_instance(self, instance_id: str) -> GroupMember | None:
        """The static member with this `group.instance.id`."""
        return self._static.get(instance_id)

    def values(self) -> ValuesView[GroupMember]:
        return self._members.values()

    def add(self, member: GroupMember) -> None:
        assert member.member_id not in self._members, "member ids are made anew"
        self._members[member.member_id] = member
        if member.joining.instance_id is not None:
            assert member.joining.instance_id not in self._static, "the first one is replaced"
            self._static[member.joining.instance_id] = member
        self._count(member, 1)

    def remove(self, member: GroupMember) -> None:
        del self._members[member.member_id]
        if member.joining.instance_id is not None:
            del self._static[member.joining.instance_id]
        self._count(member, -1)

    def replace(self, member: GroupMember, by: GroupMember) -> None:
        """Put a static member in the place of the one that had its instance id."""
        order = list(self._members)
        self.remove(member)
        self.add(by)
        renamed = (by.member_id if each == member.member_id else each for each in order)
        self._members = {each: self._members[each] for each in renamed}

    def renew(self, member: GroupMember, joining: Joining) -> None:
        """The member joined again, perhaps with other things than before."""
        assert member.joining.instance_id == joining.instance_id, "a member stays what it is"
        self._count(member, -1)
        member.joining = joining
        self._count(member, 1)

    def assign(self, member: GroupMember, assignment: bytes) -> None:
        self._count_bytes(member, len(assignment) - len(member.assignment))
        member.assignment = assignment

    def common_protocols(self, but: GroupMember | None = None) -> set[str]:
        """What all members, or all of them `but` one, offer; empty when there are none."""
        others = len(self._members) - (but is not None)
        own = _names(but) if but is not None else set()
        return {
            name
            for name, number in self._offers.items()
            if others and number - (name in own) == others
        }

    def choose_protocol(self, first: GroupMember) -> str:
        """Of the protocols that all offer, the one that most of them like best.

        Between equals it is the one that `first` prefers. There must be a common one.
        """
        common = self.common_protocols()
        assert common, "a member without a protocol in common is not let in"
        votes = Counter(_best(member, common) for member in self._members.values())
        order = [each.name for each in first.joining.protocols if each.name in common]
        return max(order, key=lambda name: votes[name])

    def _count(self, member: GroupMember, number: int) -> None:
        self._count_bytes(member, number * member.size_bytes)
        for name in _names(member):
            self._offers[name] += number
            if not self._offers[name]:
                del self._offers[name]

    def _count_bytes(self, member: GroupMember, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._on_size(member.joining, size_bytes)


def _names(member: GroupMember) -> set[str]:
    return {each.name for each in member.joining.protocols}


def _best(member: GroupMember, common: Iterable[str]) -> str:
    return next(each.name for each in member.joining.protocols if each.name in common)
