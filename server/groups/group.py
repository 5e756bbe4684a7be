"""State machine of one consumer group: joins, syncs, heartbeats, rebalances.

No I/O and no clock. Each call gets the time in seconds on a monotonic clock. Answers to waiting
requests are collected in `replies`; the caller takes them from there after each call, and calls
`time_passed` when `next_deadline` is reached.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, replace
from math import inf
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Final

from ...protocol.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    PolicyViolation,
    RebalanceInProgress,
    UnknownMemberId,
)
from ...values import value_class
from .member import GroupMember, Joined, Joining, Outcome, Refused, Roster, Synced, Token
from .states import RULES, Rejoin, State, Sync

CONSUMER: Final = "consumer"
"""Protocol type of groups whose members send subscriptions."""

_HEAD: Final = Struct(">hi")
_LENGTH: Final = Struct(">h")

COMPARED_BYTES: Final = 64 * 1024
"""Largest subscription that is compared by its topics. A larger one counts as changed unless its
bytes are equal, because parsing it takes long."""


class NoSubscription(ValueError):
    """The metadata bytes are not a subscription."""


def topics_of(metadata: bytes) -> Iterator[str]:
    """Yield the topics of a subscription. Raises `NoSubscription`."""
    try:
        _, count = _HEAD.unpack_from(metadata)
        at = _HEAD.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            begin = at + _LENGTH.size
            at = begin + length
            if length < 0 or at > len(metadata):
                raise NoSubscription(f"a topic's name has {length} bytes")
            yield str(metadata[begin:at], "utf-8")
    except (StructError, UnicodeDecodeError) as error:
        raise NoSubscription(str(error)) from error


def same_topics(metadata: bytes, other: bytes, most_bytes: int) -> bool:
    """Whether two subscriptions name the same topics. Invalid subscriptions, and those above
    `most_bytes`, only match if their bytes are equal."""
    if metadata == other:
        return True
    if max(len(metadata), len(other)) > most_bytes:
        return False
    try:
        return set(topics_of(metadata)) == set(topics_of(other))
    except NoSubscription:
        return False


@value_class
class GroupLimits:
    """Limits of one group's size, and the wait of its first members for others."""

    _: KW_ONLY

    members_max: int
    bytes_max: int
    initial_delay_ms: int


class Group:
    """State of one group: members, generation, and the rebalance in progress."""

    def __init__(
        self,
        name: str,
        limits: GroupLimits,
        new_member_id: Callable[[Joining], str],
        *,
        on_change: Callable[["Group", State], None] = lambda group, before: None,
        on_lost: Callable[["Group", GroupMember, str], None] = lambda group, member, why: None,
        on_size: Callable[[Joining, int], None] = lambda client, size_bytes: None,
        first_delay_ms: int = 0,
    ) -> None:
        """`on_change` is called with every transition, `on_lost` when a member is removed, with the
        reason, and `on_size` as in `Roster`. The first generation waits at least `first_delay_ms`
        for members."""
        self.name = name
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        """Protocol chosen for this generation."""
        self.leader: str | None = None
        self.empty_since = inf
        """When the last member left, in seconds; `inf` if there was none yet."""
        self.members = Roster(on_size)
        self.replies: list[tuple[Token, Outcome]] = []
        self._limits = limits
        self._new_member_id = new_member_id
        self._on_change = on_change
        self._on_lost = on_lost
        self._delay_ms = max(limits.initial_delay_ms, first_delay_ms)
        """How long the first members wait for others."""
        self._phase_ends_at = inf
        """Deadline for members: while preparing, to join; afterwards, to sync. Late members are
        removed."""
        self._delay_left_ms: int | None = None
        """How much longer the wait of the first members may be extended; None when they do not
        wait."""
        self._newcomers = False
        """Whether a member joined since the wait was last extended."""

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the group in bytes."""
        return self.members.size_bytes

    # Requests of members.

    def join(
        self,
        now: float,
        token: Token,
        member_id: str,
        joining: Joining,
        *,
        given: bool = False,
    ) -> None:
        """Add a new member, or let a member join again; `token` gets `Joined`.

        A new member has no id, or one that it was `given` before. A static member without an id
        replaces the member with its instance id. Raises `UnknownMemberId`, `FencedInstanceId`,
        `InconsistentGroupProtocol`, `GroupMaxSizeReached`, `PolicyViolation`; the group is then
        unchanged.
        """
        new = (given or not member_id) and self.state is not State.DEAD
        known = None if new else self.known(member_id, joining.instance_id)
        before = self.to_replace(joining) if new else known
        self._check_protocols(joining, before)
        self._check_room(joining, before)
        if known is not None:
            self._join_again(now, token, known, joining)
        elif before is not None:
            self._take_over(now, token, before, joining)
        else:
            self._take_in(now, token, member_id, joining)

    def known(self, member_id: str, instance_id: str | None = None) -> GroupMember:
        """Return the member with these ids. Raises `UnknownMemberId`, `FencedInstanceId`."""
        if instance_id is not None and self._static(instance_id).member_id != member_id:
            raise FencedInstanceId(
                f"another member of group {self.name!r} has group.instance.id "
                f"{instance_id[:80]!r}: each may be used by one consumer only"
            )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.name!r} has no member {member_id[:80]!r}")
        return member

    def to_replace(self, joining: Joining) -> GroupMember | None:
        """Return the static member that a client without a member id replaces; None if there is
        none."""
        if joining.instance_id is None:
            return None
        return self.members.of_instance(joining.instance_id)

    def check_new(self, joining: Joining) -> None:
        """Raise the errors that `join` of such a new member would raise."""
        self._check_protocols(joining, None)
        self._check_room(joining, None)

    def _join_again(self, now: float, token: Token, known: GroupMember, joining: Joining) -> None:
        rejoin = RULES[self.state].rejoin
        changed = known.joining.protocols != joining.protocols
        # A client that does not send its instance id stays the static member that it is.
        self.members.renew(known, replace(joining, instance_id=known.joining.instance_id))
        known.seen(now)
        again = rejoin is Rejoin.ANSWERED or (
            rejoin is Rejoin.LEADER_REBALANCES and known.member_id != self.leader
        )
        if again and not changed:
            self.replies.append((token, self._joined(known)))
            return
        self._wait_to_join(known, token)
        self._rebalance(now)

    def _take_over(self, now: float, token: Token, before: GroupMember, joining: Joining) -> None:
        """Let a client, restarted or a second one, take over a static member.

        In a stable group no member has to rejoin, unless the chosen protocol or the client's topics
        have changed. The answer names the old leader, so that a client which was the leader does
        not assign partitions again.
        """
        why = "a later member has the same group.instance.id"
        for waiting in (before.join_token, before.sync_token):
            if waiting is not None:
                self.replies.append((waiting, Refused(FencedInstanceId, why)))
        member = GroupMember(
            self._new_member_id(joining), joining, answered=True, synced=before.synced
        )
        self.members.replace(before, member)
        self.members.assign(member, before.assignment)
        member.seen(now)
        leader = self.leader
        if leader == before.member_id:
            self.leader = member.member_id
        self._on_lost(self, before, "replaced by a member with its instance id")
        if self.state is State.STABLE and self._same_work(before, member):
            assert leader is not None
            joined = Joined(member.member_id, self.generation, self.protocol, leader, ())
            self.replies.append((token, joined))
            return
        self._wait_to_join(member, token)
        self._rebalance(now)

    def _same_work(self, before: GroupMember, member: GroupMember) -> bool:
        """Whether the group's assignments stay valid when `member` replaces `before`."""
        first = self.members.get(self.leader or "")
        assert first is not None
        if self.members.choose_protocol(first) != self.protocol:
            return False
        brought, brings = before.metadata(self.protocol), member.metadata(self.protocol)
        return same_topics(brought, brings, COMPARED_BYTES)

    def sync(
        self,
        now: float,
        token: Token,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        instance_id: str | None = None,
    ) -> None:
        """Give `token` its assignment as `Synced`; the leader's sync brings the assignments of all
        members.

        Raises `UnknownMemberId`, `FencedInstanceId`, `IllegalGeneration`, `RebalanceInProgress`,
        `PolicyViolation`.
        """
        member = self._in_generation(member_id, generation, instance_id)
        member.seen(now)
        match RULES[self.state].sync:
            case Sync.ANSWERED:
                self._answer_sync(now, member, token)
            case Sync.WAITS if member_id == self.leader:
                self._assign(now, member, token, assignments)
            case Sync.WAITS:
                self._refuse_sync(member)
                member.sync_token = token
            case refusal:
                raise refusal(f"group {self.name!r} is in state {self.state}: join it again")

    def heartbeat(
        self, now: float, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """Extend a member's session.

        Raises `UnknownMemberId`, `FencedInstanceId`, `IllegalGeneration`, and `RebalanceInProgress`
        when the member must join again.
        """
        member = self._in_generation(member_id, generation, instance_id)
        member.seen(now)
        refusal = RULES[self.state].heartbeat
        if refusal is not None:
            raise refusal(f"group {self.name!r} is in state {self.state}: join it again")

    def leave(self, now: float, member_id: str, instance_id: str | None = None) -> None:
        """Remove a member that leaves. A static member may be named by its instance id alone.

        Raises `UnknownMemberId`, `FencedInstanceId`.
        """
        if instance_id is not None and not member_id:
            member = self._static(instance_id)
        else:
            member = self.known(member_id, instance_id)
        self._remove(now, [member], "left")

    def check_commit(
        self, now: float, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """Check that a member may commit positions, and extend its session.

        A client that is no member (`generation` below 0) may commit while the group is empty.
        Raises `UnknownMemberId`, `FencedInstanceId`, `IllegalGeneration`, `RebalanceInProgress`.
        """
        if generation < 0:
            if self.state is State.EMPTY:
                return
            if not member_id:
                raise UnknownMemberId(
                    f"group {self.name!r} has {len(self.members)} members: only they may commit "
                    "for it; others may while it has none"
                )
        member = self._in_generation(member_id, generation, instance_id)
        refusal = RULES[self.state].commit
        if refusal is not None:
            raise refusal(f"group {self.name!r} is in state {self.state}: sync first")
        member.seen(now)

    # Events without a request.

    def gone(self, now: float, token: Token) -> None:
        """Handle a closed connection: no client waits for the answer to `token` any more.

        A dynamic member that never got its id can never return. It is removed at once, so that it
        does not delay rebalances until its session expires. Other members may join again.
        """
        for member in list(self.members.values()):
            if member.join_token is token and not (member.answered or member.is_static):
                member.join_token = None
                self._remove(now, [member], "disconnected while joining")

    def next_deadline(self) -> float:
        """Return the earliest time at which `time_passed` has something to do."""
        sessions = (each.expires_at for each in self.members.values() if not each.waits)
        return min(self._phase_ends_at, min(sessions, default=inf))

    def time_passed(self, now: float) -> None:
        """Remove members whose session has expired, and end phases whose time is over."""
        silent = [
            each for each in self.members.values() if not each.waits and each.expires_at <= now
        ]
        if silent:
            self._remove(now, silent, "session timed out")
        if self._phase_ends_at > now:
            return
        if self.state is State.PREPARING:
            self._end_joining(now)
        else:
            self._phase_ends_at = inf
            late = [
                each
                for each in self.members.values()
                if not each.synced and each.sync_token is None and self._is_needed(each)
            ]
            self._remove(now, late, "did not sync in time")

    def drop(self) -> None:
        """End a group without members."""
        self._go_to(State.DEAD)

    # Transitions.

    def _static(self, instance_id: str) -> GroupMember:
        member = self.members.of_instance(instance_id)
        if member is None:
            raise UnknownMemberId(
                f"group {self.name!r} has no member with group.instance.id {instance_id[:80]!r}"
            )
        return member

    def _in_generation(
        self, member_id: str, generation: int, instance_id: str | None
    ) -> GroupMember:
        member = self.known(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGeneration(
                f"group {self.name!r} is in generation {self.generation}, not in {generation}"
            )
        return member

    def _check_protocols(self, joining: Joining, known: GroupMember | None) -> None:
        if not joining.protocol_type or not joining.protocols:
            raise InconsistentGroupProtocol("a member has to have a protocol type and protocols")
        common = self.members.common_protocols(but=known)
        if not common:
            return  # there is no other member
        if joining.protocol_type != self.protocol_type:
            raise InconsistentGroupProtocol(
                f"group {self.name!r} has protocol type {self.protocol_type!r}, "
                f"not {joining.protocol_type[:80]!r}"
            )
        if common.isdisjoint(each.name for each in joining.protocols):
            raise InconsistentGroupProtocol(
                f"the members of group {self.name!r} can all use {sorted(common)}; "
                "this one offers none of these"
            )

    def _check_room(self, joining: Joining, known: GroupMember | None) -> None:
        limits = self._limits
        if known is None and len(self.members) >= limits.members_max:
            raise GroupMaxSizeReached(
                f"group {self.name!r} has {len(self.members)} members; the limit is "
                f"{limits.members_max} (group.max.size)"
            )
        candidate = GroupMember(known.member_id if known else self.name, joining)
        size = self.size_bytes + candidate.size_bytes - (known.size_bytes if known else 0)
        self._check_size(size)

    def _check_size(self, size_bytes: int) -> None:
        limit = self._limits.bytes_max
        if size_bytes > limit:
            raise PolicyViolation(
                f"group {self.name!r} would take {size_bytes} bytes; the limit is {limit} "
                "(group.max.bytes)"
            )

    def _take_in(self, now: float, token: Token, given_id: str, joining: Joining) -> None:
        member = GroupMember(given_id or self._new_member_id(joining), joining, join_token=token)
        member.seen(now)
        self.members.add(member)
        self._newcomers = True
        if len(self.members) == 1:
            self.leader = member.member_id
        self.protocol_type = joining.protocol_type
        self._rebalance(now)

    def _wait_to_join(self, member: GroupMember, token: Token) -> None:
        if member.join_token is not None:
            why = "another request of the same member to join took its place"
            self.replies.append((member.join_token, Refused(RebalanceInProgress, why)))
        member.join_token = token
        self.protocol_type = member.joining.protocol_type

    def _rebalance(self, now: float) -> None:
        """Start a rebalance unless one is in progress, and complete it if all members have
        joined."""
        if self.state is not State.PREPARING:
            for member in self.members.values():
                self._refuse_sync(member)
                member.synced = False
            self._begin_to_prepare(now)
            self._go_to(State.PREPARING)
        self._complete_if_all_joined(now)

    def _begin_to_prepare(self, now: float) -> None:
        longest_ms = self._rebalance_timeout_ms()
        delay_ms = min(self._delay_ms, longest_ms)
        if self.state is State.EMPTY and delay_ms > 0:
            self._delay_left_ms = longest_ms - delay_ms
            self._newcomers = False
            self._phase_ends_at = now + delay_ms / 1000
        else:
            self._phase_ends_at = now + longest_ms / 1000

    def _rebalance_timeout_ms(self) -> int:
        timeouts = (each.joining.rebalance_timeout_ms for each in self.members.values())
        return max(timeouts, default=0)

    def _end_joining(self, now: float) -> None:
        left_ms = self._delay_left_ms
        if left_ms and self._newcomers:
            # More members are arriving: extend the wait. All waits together last no longer than a
            # rebalance may take.
            self._newcomers = False
            delay_ms = min(self._delay_ms, left_ms)
            self._delay_left_ms = left_ms - delay_ms
            self._phase_ends_at = now + delay_ms / 1000
            return
        self._delay_left_ms = None
        late = [each for each in self.members.values() if each.join_token is None]
        self._remove(now, [each for each in late if not each.is_static], "did not join in time")
        if self.state is not State.PREPARING:
            return
        if any(each.join_token is not None for each in self.members.values()):
            self._complete(now)  # late static members keep their places
        else:
            self._phase_ends_at = now + self._rebalance_timeout_ms() / 1000

    def _complete_if_all_joined(self, now: float) -> None:
        if self._delay_left_ms is not None and self.members:
            return
        if all(each.join_token is not None for each in self.members.values()):
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Start a new generation with the members that joined, and the static members that have not
        yet."""
        self._delay_left_ms = None
        self._delay_ms = self._limits.initial_delay_ms
        self.generation += 1
        if not self.members:
            self.leader = None
            self.protocol = ""
            self._phase_ends_at = inf
            self.empty_since = now
            self._go_to(State.EMPTY)
            return
        first = self._elect()
        self.leader = first.member_id
        self.protocol = self.members.choose_protocol(first)
        self._phase_ends_at = now + self._rebalance_timeout_ms() / 1000
        self._go_to(State.COMPLETING)
        for member in self.members.values():
            token, member.join_token = member.join_token, None
            self.members.assign(member, b"")
            if token is None:
                assert member.is_static, "only who joined is in a new generation"
                continue
            member.answered = True
            member.seen(now)
            self.replies.append((token, self._joined(member)))

    def _elect(self) -> GroupMember:
        """Return the leader of the new generation: the previous leader if it joined, else the first
        that joined."""
        joined = (each for each in self.members.values() if each.join_token is not None)
        first = self.members.get(self.leader or "")
        return first if first is not None and first.join_token is not None else next(joined)

    def _is_needed(self, member: GroupMember) -> bool:
        """Whether a member that does not sync in time delays the others. A late static member keeps
        its assignment until its session expires, unless it is the leader that must assign
        partitions."""
        shares_out = self.state is State.COMPLETING and member.member_id == self.leader
        return shares_out or not member.is_static

    def _joined(self, member: GroupMember) -> Joined:
        assert self.leader is not None
        members = []
        if member.member_id == self.leader:
            members = [
                (each.member_id, each.joining.instance_id, each.metadata(self.protocol))
                for each in self.members.values()
            ]
        return Joined(member.member_id, self.generation, self.protocol, self.leader, members)

    def _assign(
        self, now: float, leader: GroupMember, token: Token, assignments: Mapping[str, bytes]
    ) -> None:
        # Earlier assignments were cleared when the generation began.
        added = sum(len(assignments.get(member_id, b"")) for member_id in self.members)
        self._check_size(self.size_bytes + added)
        self._refuse_sync(leader)
        leader.sync_token = token
        for member in self.members.values():
            self.members.assign(member, assignments.get(member.member_id, b""))
        self._go_to(State.STABLE)
        for member in self.members.values():
            if member.sync_token is not None:
                waiting, member.sync_token = member.sync_token, None
                self._answer_sync(now, member, waiting)

    def _answer_sync(self, now: float, member: GroupMember, token: Token) -> None:
        member.synced = True
        member.seen(now)
        self.replies.append((token, Synced(member.assignment)))
        if all(each.synced for each in self.members.values()):
            self._phase_ends_at = inf

    def _refuse_sync(self, member: GroupMember) -> None:
        if member.sync_token is not None:
            why = "the group is rebalanced: join it again"
            self.replies.append((member.sync_token, Refused(RebalanceInProgress, why)))
            member.sync_token = None

    def _remove(self, now: float, members: list[GroupMember], why: str) -> None:
        """Remove `members`, refuse their waiting requests, and rebalance the rest."""
        for member in members:
            for token in (member.join_token, member.sync_token):
                if token is not None:
                    self.replies.append((token, Refused(UnknownMemberId, f"the member {why}")))
            self.members.remove(member)
            if self.leader == member.member_id:
                self.leader = next(iter(self.members), None)
            self._on_lost(self, member, why)
        if members:
            self._rebalance(now)

    def _go_to(self, state: State) -> None:
        assert state in RULES[self.state].next, f"{self.state} -> {state}"
        before, self.state = self.state, state
        self._on_change(self, before)
