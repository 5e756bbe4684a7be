"""One member of a consumer group and its answers; all members of a group with what they have in
common, kept up to date as they come and go."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, ValuesView
from dataclasses import KW_ONLY, dataclass
from typing import Final

from ...values import value_class
from .states import Refusal

Token = object
"""Identifies one waiting request."""

MEMBER_BYTES: Final = 1_000
"""Approximate memory of a member with one protocol in bytes, in addition to its texts and bytes."""

PROTOCOL_BYTES: Final = 250
"""Approximate memory of each further protocol in bytes."""


@value_class
class Protocol:
    """Assignment protocol that a member offers."""

    name: str
    metadata: bytes


@value_class
class Joining:
    """What a member states when it joins."""

    _: KW_ONLY

    protocol_type: str
    protocols: tuple[Protocol, ...]
    """Offered protocols, in order of preference."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str = ""
    client_host: str = ""
    user: str = ""
    """Principal of the connection; empty without login."""
    instance_id: str | None = None
    """`group.instance.id` of a static member; None for a dynamic one."""

    @property
    def size_bytes(self) -> int:
        """Approximate memory of these fields in bytes."""
        texts = len(self.client_id) + len(self.client_host) + len(self.user)
        texts += len(self.instance_id or "")
        objects = PROTOCOL_BYTES * max(len(self.protocols) - 1, 0)
        return texts + objects + sum(len(one.name) + len(one.metadata) for one in self.protocols)


@value_class
class IdGiven:
    """Answer to a join: the client must join again with this member id."""

    member_id: str


@value_class
class Joined:
    """Answer to a join: the member belongs to this generation."""

    member_id: str
    generation: int
    protocol: str
    leader: str
    members: Sequence[tuple[str, str | None, bytes]]
    """Member ids, instance ids and metadata of all members, for the leader; empty for other
    members."""


@value_class
class Synced:
    """Answer to a sync: the member's assignment."""

    assignment: bytes


@value_class
class Refused:
    """Answer to a join or sync request that waited and failed."""

    error: Refusal
    why: str


Outcome = IdGiven | Joined | Synced | Refused


@dataclass(slots=True)
class GroupMember:
    """A member of a group. Times are seconds on a monotonic clock."""

    member_id: str
    joining: Joining
    expires_at: float = 0.0
    """End of the member's session. It does not count while a request of the member waits."""
    join_token: Token | None = None
    sync_token: Token | None = None
    assignment: bytes = b""
    synced: bool = False
    """Whether the member got its assignment of this generation."""
    answered: bool = False
    """Whether a join of the member was answered, so that the client may know its id."""

    @property
    def is_static(self) -> bool:
        """Whether the member is static: it is removed only at the end of its session or when it
        leaves."""
        return self.joining.instance_id is not None

    @property
    def waits(self) -> bool:
        return self.join_token is not None or self.sync_token is not None

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the member in bytes."""
        own = MEMBER_BYTES + len(self.member_id) + len(self.assignment)
        return own + self.joining.size_bytes

    def seen(self, now: float) -> None:
        """Extend the session after a request of the member."""
        self.expires_at = now + self.joining.session_timeout_ms / 1000

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for `protocol`; empty if it does not offer the protocol."""
        for each in self.joining.protocols:
            if each.name == protocol:
                return each.metadata
        return b""


class Roster:
    """Members by id, in the order in which they joined.

    Only this class changes a member's `joining` and `assignment`. So the total size and the common
    protocols are updated per change, and are not recomputed for each of a thousand members that
    join at the same time.
    """

    def __init__(self, on_size: Callable[[Joining, int], None]) -> None:
        """`on_size` is called with a client and the change of its member's size in bytes."""
        self._on_size = on_size
        self._members: dict[str, GroupMember] = {}
        self._offers: Counter[str] = Counter()
        self._static: dict[str, GroupMember] = {}
        """Static members by instance id."""
        self.size_bytes = 0
        """Approximate memory of all members in bytes."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> GroupMember | None:
        return self._members.get(member_id)

    def of_instance(self, instance_id: str) -> GroupMember | None:
        """Return the static member with this `group.instance.id`; None if there is none."""
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
        """Replace a static member by the new member with its instance id, at the same place of the
        order."""
        order = list(self._members)
        self.remove(member)
        self.add(by)
        renamed = (by.member_id if each == member.member_id else each for each in order)
        self._members = {each: self._members[each] for each in renamed}

    def renew(self, member: GroupMember, joining: Joining) -> None:
        """Replace what a member stated when it joined, because it joined again."""
        assert member.joining.instance_id == joining.instance_id, "a member stays what it is"
        self._count(member, -1)
        member.joining = joining
        self._count(member, 1)

    def assign(self, member: GroupMember, assignment: bytes) -> None:
        self._count_bytes(member, len(assignment) - len(member.assignment))
        member.assignment = assignment

    def common_protocols(self, but: GroupMember | None = None) -> set[str]:
        """Return the protocols that all members, except `but`, offer; empty if there are no such
        members."""
        others = len(self._members) - (but is not None)
        own = _names(but) if but is not None else set()
        return {
            name
            for name, number in self._offers.items()
            if others and number - (name in own) == others
        }

    def choose_protocol(self, first: GroupMember) -> str:
        """Return the common protocol that most members prefer.

        Among equals, the one that `first` prefers. There must be a common protocol.
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
