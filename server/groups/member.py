"""One member of a consumer group and its answers; all members of a group with what they have in
common, kept up to date as they come and go."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, ValuesView
from dataclasses import KW_ONLY, dataclass
from typing import Final

from ...values import value_class
from .states import Refusal

Token = object
"""Stands for one request that waits for its answer."""

MEMBER_BYTES: Final = 1_000
"""What a member with one protocol takes beside its texts and bytes, about."""

PROTOCOL_BYTES: Final = 250
"""What each further protocol takes."""


@value_class
class Protocol:
    """A way to share out the work that a member offers."""

    name: str
    metadata: bytes


@value_class
class Joining:
    """What a member brings when it joins."""

    _: KW_ONLY

    protocol_type: str
    protocols: tuple[Protocol, ...]
    """The one it likes best first."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str = ""
    client_host: str = ""
    user: str = ""
    """The principal that logged in; empty for none."""
    instance_id: str | None = None
    """`group.instance.id` of a static member; `None` for a dynamic one."""

    @property
    def size_bytes(self) -> int:
        """What it takes to keep it, about."""
        texts = len(self.client_id) + len(self.client_host) + len(self.user)
        texts += len(self.instance_id or "")
        objects = PROTOCOL_BYTES * max(len(self.protocols) - 1, 0)
        return texts + objects + sum(len(one.name) + len(one.metadata) for one in self.protocols)


@value_class
class IdGiven:
    """Answer to a join: the client joins again with this member id."""

    member_id: str


@value_class
class Joined:
    """Answer to a join: the member is in this generation."""

    member_id: str
    generation: int
    protocol: str
    leader: str
    members: Sequence[tuple[str, str | None, bytes]]
    """Ids, instance ids and metadata of all members, for the leader; empty for others."""


@value_class
class Synced:
    """Answer to a sync: the member's share of the work."""

    assignment: bytes


@value_class
class Refused:
    """Answer to a join or a sync that has waited in vain."""

    error: Refusal
    why: str


Outcome = IdGiven | Joined | Synced | Refused


@dataclass(slots=True)
class GroupMember:
    """A member as its group sees it. Times are seconds on a monotonic clock."""

    member_id: str
    joining: Joining
    expires_at: float = 0.0
    """When it is lost unless it sends something; does not count while a request of its waits."""
    join_token: Token | None = None
    sync_token: Token | None = None
    assignment: bytes = b""
    synced: bool = False
    """Whether it got its assignment of this generation."""
    answered: bool = False
    """Whether a join of its was answered, so that it may know its id."""

    @property
    def is_static(self) -> bool:
        """Whether only the end of its session, or a request to leave, ends it."""
        return self.joining.instance_id is not None

    @property
    def waits(self) -> bool:
        return self.join_token is not None or self.sync_token is not None

    @property
    def size_bytes(self) -> int:
        """What it takes to keep it, about."""
        own = MEMBER_BYTES + len(self.member_id) + len(self.assignment)
        return own + self.joining.size_bytes

    def seen(self, now: float) -> None:
        """It gave a sign of life."""
        self.expires_at = now + self.joining.session_timeout_ms / 1000

    def metadata(self, protocol: str) -> bytes:
        """What it brought for `protocol`; empty when it does not offer it."""
        for each in self.joining.protocols:
            if each.name == protocol:
                return each.metadata
        return b""


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
