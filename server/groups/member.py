"""One member of a consumer group, and its answers."""

from collections.abc import Sequence
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
