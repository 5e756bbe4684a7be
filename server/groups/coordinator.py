"""All consumer groups: which there may be, and when something becomes due in one of them.

Like a single group, it does no I/O and gets the time as an argument. `take_replies` returns the
answers to waiting requests; `next_deadline` says when to call `time_passed`.

A client repeats its first request to join if the answer got lost, and would leave behind a member
that no client knows. So it is given an id first (MEMBER_ID_REQUIRED, KIP-394). Unlike in Kafka, a
rebalance does not wait for clients that only have an id.

A client is a logged-in user, or an address. It may have at most a multiple of what is still free:
a single client gets nearly all, several get about the same, and some is left for the next client,
however many came before.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY
from math import inf
from typing import Final

from ...protocol.errors import (
    GroupIdNotFound,
    HorologError,
    IllegalGeneration,
    InvalidSessionTimeout,
    NonEmptyGroup,
    PolicyViolation,
    UnknownMemberId,
)
from ...values import value_class
from .group import Group, GroupLimits
from .member import MEMBER_BYTES, GroupMember, IdGiven, Joining, Outcome, Token
from .states import State

_OF_USER: Final = 4
"""Multiple of the free amount that a user may have. A single user gets four fifths of all."""

_OF_ADDRESS: Final = 8
"""Multiple for an address. It is larger than a user's, because several users may log in from
there."""

LEFT_OVER_MAX: Final = 100
"""Number of stale deadlines that are tolerated before they are removed."""

Key = tuple[str, str]
"""Group name and member id."""

RETURN_DELAY_MS: Final = 3_000
"""How long the first static member of a group waits for others that may return from an earlier
coordinator. They find the new one by a heartbeat, which clients send every three seconds. Kafka
makes every group wait that long by default."""


class GroupShares:
    """Usage by client of a limit, counted in `unit` and set by `setting`."""

    def __init__(self, limit: int, unit: str, setting: str) -> None:
        self._limit = limit
        self._unit = unit
        self._setting = setting
        self._taken: Counter[str] = Counter()

    def add(self, client: Joining, amount: int) -> None:
        """Add to a client's usage; a negative amount reduces it."""
        for name in _multiples(client):
            self._taken[name] += amount
            if not self._taken[name]:
                del self._taken[name]

    def check(self, client: Joining, amount: int, free: int) -> None:
        """Raise `PolicyViolation` if a client may not use `amount` more, after which `free` would
        stay free."""
        for name, multiple in _multiples(client).items():
            taken = self._taken[name]
            if taken + amount > multiple * free:
                raise PolicyViolation(
                    f"groups of {name} take {taken} {self._unit}, and {amount} more would leave "
                    f"{max(free, 0)} of {self._limit} ({self._setting}) to others; {name} may take "
                    f"at most {multiple} times what is left"
                )

    def clear(self) -> None:
        """Forget all usage."""
        self._taken.clear()


def _multiples(client: Joining) -> dict[str, int]:
    """Return the names under which a client is charged, each with its multiple of the free
    amount."""
    known = {}
    if client.user:
        known[client.user] = _OF_USER
    if client.client_host:
        known[f"address {client.client_host}"] = _OF_ADDRESS
    return known


class GivenIds:
    """Given ids of all groups. An id expires after the session timeout."""

    def __init__(self, on_size: Callable[[Joining, int], None]) -> None:
        """`on_size` is called with a client and the change of its ids' size in bytes."""
        self._on_size = on_size
        self._given: dict[Key, tuple[float, Joining]] = {}
        self._due: list[tuple[float, Key]] = []
        """Heap of expiry times. Entries of used ids are stale."""

    def give(self, now: float, key: Key, joining: Joining) -> None:
        expires_at = now + joining.session_timeout_ms / 1000
        self._given[key] = expires_at, joining
        heapq.heappush(self._due, (expires_at, key))
        if len(self._due) > LEFT_OVER_MAX + 2 * len(self._given):
            self._due = [(each[0], one) for one, each in self._given.items()]
            heapq.heapify(self._due)
        self._on_size(joining, size_bytes(joining))

    def has(self, key: Key) -> bool:
        return key in self._given

    def take(self, key: Key) -> bool:
        """Remove an id that was used or given up. Returns whether it existed."""
        found = self._given.pop(key, None)
        if found is None:
            return False
        self._on_size(found[1], -size_bytes(found[1]))
        return True

    def next_deadline(self) -> float:
        """Return the earliest time at which `time_passed` has something to do."""
        while self._due and self._due[0][1] not in self._given:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else inf

    def time_passed(self, now: float) -> None:
        """Remove the ids that were not used in time."""
        while self.next_deadline() <= now:
            self.take(heapq.heappop(self._due)[1])

    def clear(self) -> None:
        """Remove all ids."""
        self._given.clear()
        self._due.clear()


def size_bytes(joining: Joining) -> int:
    """Return the approximate memory of a given id in bytes, counted as that of the member it will
    become."""
    return MEMBER_BYTES + joining.size_bytes


@value_class
class CoordinatorLimits:
    """Limits of each group, and of all groups together."""

    _: KW_ONLY

    group: GroupLimits
    groups_max: int
    bytes_max: int
    session_timeout_min_ms: int
    session_timeout_max_ms: int


class Coordinator:
    """Groups by name. Members are kept only in this process and are lost with it."""

    def __init__(
        self,
        limits: CoordinatorLimits,
        new_member_id: Callable[[Joining], str],
        *,
        on_change: Callable[[Group, State], None] = lambda group, before: None,
        on_lost: Callable[[Group, GroupMember, str], None] = lambda group, member, why: None,
    ) -> None:
        """`on_change` and `on_lost` are passed to each `Group`."""
        self.groups: dict[str, Group] = {}
        self._limits = limits
        self._new_member_id = new_member_id
        self._on_change = on_change
        self._on_lost = on_lost
        self._began = -inf
        self._bytes = 0
        self._byte_shares = GroupShares(limits.bytes_max, "bytes", "max.groups.bytes")
        self._group_shares = GroupShares(limits.groups_max, "groups", "max.groups")
        self._given = GivenIds(self._id_resized)
        self._begun_by: dict[str, Joining] = {}
        """First member of each group that is not empty: its client is charged for the group."""
        self._replies: list[tuple[Token, Outcome]] = []
        self._waiting_in: dict[Token, Group] = {}
        self._due: list[tuple[float, str]] = []
        """Heap of deadlines. Only an entry that agrees with `_due_at` is valid; the others are
        stale."""
        self._due_at: dict[str, float] = {}
        self._empty: dict[str, None] = {}
        """Empty groups, in the order in which they became empty."""

    def begin(self, now: float) -> None:
        """Start to coordinate the groups. For the length of their session, static members of an
        earlier coordinator return, and share one rebalance."""
        self._began = now

    @property
    def size_bytes(self) -> int:
        """Approximate memory of all groups in bytes."""
        return self._bytes

    def take_replies(self) -> list[tuple[Token, Outcome]]:
        """Return the answers since the last call."""
        replies, self._replies = self._replies, []
        return replies

    def join(
        self,
        now: float,
        token: Token,
        name: str,
        member_id: str,
        joining: Joining,
        *,
        gives_id: bool = False,
    ) -> None:
        """Join a group as `Group.join` does; the first member creates the group.

        With `gives_id`, a new dynamic member gets `IdGiven` at once and must join with that id.
        Also raises `InvalidSessionTimeout` and `PolicyViolation`.
        """
        self._check_session(joining)
        group = self.groups.get(name)
        if gives_id and not member_id and joining.instance_id is None:
            self._give_id(now, token, name, joining)
            return
        given = bool(member_id) and self._given.has((name, member_id))
        if given:
            self._given.take((name, member_id))
        member: GroupMember | None
        if member_id and not given:
            member = self._of_member(name, member_id).known(member_id, joining.instance_id)
        else:
            member = None if group is None else group.to_replace(joining)
        self._check_bytes(
            joining,
            joining.size_bytes + (MEMBER_BYTES if member is None else -member.joining.size_bytes),
        )
        begins = name not in self._begun_by
        if begins:
            self._group_shares.check(joining, 0, self._limits.groups_max - len(self._begun_by))
        if group is None:
            group = self._create(name, self._first_delay_ms(now, joining))
        self._waiting_in[token] = group
        try:
            with self._step(group, token):
                group.join(now, token, member_id, joining, given=given)
            if begins and group.state is not State.EMPTY:
                self._begun_by[name] = joining
                self._group_shares.add(joining, 1)
        except HorologError:
            if not group.generation and group.state is State.EMPTY:
                self.delete(name)  # it was created for this member
            raise

    def _give_id(self, now: float, token: Token, name: str, joining: Joining) -> None:
        group = self.groups.get(name)
        if group is not None:
            group.check_new(joining)
        self._check_bytes(joining, size_bytes(joining))
        member_id = self._new_member_id(joining)
        self._given.give(now, (name, member_id), joining)
        self._replies.append((token, IdGiven(member_id)))

    def _id_resized(self, client: Joining, more_bytes: int) -> None:
        self._bytes += more_bytes
        self._byte_shares.add(client, more_bytes)

    def sync(
        self,
        now: float,
        token: Token,
        name: str,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        instance_id: str | None = None,
    ) -> None:
        """Sync as `Group.sync` does."""
        group = self._of_member(name, member_id)
        member = group.members.get(member_id)
        added = sum(map(len, assignments.values()))
        if member is not None:  # `group.sync` refuses an unknown member
            self._check_bytes(member.joining, added)
        self._waiting_in[token] = group
        with self._step(group, token):
            group.sync(now, token, member_id, generation, assignments, instance_id)

    def heartbeat(
        self,
        now: float,
        name: str,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
    ) -> None:
        """Extend a member's session as `Group.heartbeat` does."""
        # A heartbeat only postpones a deadline, so the heap need not change.
        group = self._of_member(name, member_id)
        group.heartbeat(now, member_id, generation, instance_id)

    def leave(self, now: float, name: str, member_id: str, instance_id: str | None = None) -> None:
        """Leave as `Group.leave` does. A client that has not joined with its id yet gives up the
        id."""
        if instance_id is None and self._given.take((name, member_id)):
            return
        group = self._of_member(name, member_id)
        with self._step(group):
            group.leave(now, member_id, instance_id)

    def check_commit(
        self,
        now: float,
        name: str,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
    ) -> None:
        """Check a commit as `Group.check_commit` does. An unknown group has no members."""
        group = self.groups.get(name)
        if group is not None:
            group.check_commit(now, member_id, generation, instance_id)
        elif generation >= 0:
            raise IllegalGeneration(f"group {name!r} has no members: join it again")

    def gone(self, now: float, token: Token) -> None:
        """Handle a closed connection as `Group.gone` does."""
        group = self._waiting_in.pop(token, None)
        if group is not None:
            with self._step(group):
                group.gone(now, token)

    def empty_groups(self) -> list[str]:
        """Return the names of the groups without members."""
        return list(self._empty)

    def empty_seconds(self, now: float, name: str) -> float:
        """Return how long a group has had no members; 0 if it has some, or does not exist."""
        group = self.groups.get(name) if name in self._empty else None
        return 0.0 if group is None else max(now - group.empty_since, 0.0)

    def delete(self, name: str) -> None:
        """Delete a group without members. Raises `NonEmptyGroup`, `GroupIdNotFound`."""
        group = self.groups.get(name)
        if group is None:
            raise GroupIdNotFound(f"there is no group {name!r}")
        if group.state is not State.EMPTY:
            raise NonEmptyGroup(f"group {name!r} has {len(group.members)} members")
        group.drop()
        del self.groups[name]
        del self._empty[name]
        self._due_at.pop(name, None)

    def forget_all(self) -> None:
        """Forget all groups, because another broker is their coordinator now. Waiting requests are
        not answered."""
        for known in (self.groups, self._replies, self._waiting_in, self._due, self._due_at):
            known.clear()
        self._empty.clear()
        self._given.clear()
        self._begun_by.clear()
        self._bytes = 0
        for shares in (self._byte_shares, self._group_shares):
            shares.clear()

    def next_deadline(self) -> float:
        """Return the earliest time at which `time_passed` may have something to do."""
        return min(self._next_of_groups(), self._given.next_deadline())

    def _next_of_groups(self) -> float:
        while self._due:
            at, name = self._due[0]
            if self._due_at.get(name) == at:
                return at
            heapq.heappop(self._due)
        return inf

    def time_passed(self, now: float) -> None:
        """Do what is due in each group."""
        self._given.time_passed(now)
        while self._next_of_groups() <= now:
            _, name = heapq.heappop(self._due)
            del self._due_at[name]
            group = self.groups[name]
            with self._step(group):
                group.time_passed(now)

    def _check_session(self, joining: Joining) -> None:
        timeout_ms = joining.session_timeout_ms
        low, high = self._limits.session_timeout_min_ms, self._limits.session_timeout_max_ms
        if not low <= timeout_ms <= high:
            raise InvalidSessionTimeout(
                f"the session timeout of {timeout_ms} ms is not within {low} "
                f"(group.min.session.timeout.ms) to {high} (group.max.session.timeout.ms)"
            )

    def _check_bytes(self, client: Joining, added: int) -> None:
        limit = self._limits.bytes_max
        if added <= 0:
            return
        if self._bytes + added > limit:
            raise PolicyViolation(
                f"all groups take {self._bytes} bytes, {added} more would pass the limit of "
                f"{limit} (max.groups.bytes)"
            )
        self._byte_shares.check(client, added, limit - self._bytes - added)

    def _of_member(self, name: str, member_id: str) -> Group:
        group = self.groups.get(name)
        if group is None:
            raise UnknownMemberId(f"group {name!r} has no member {member_id[:80]!r}")
        return group

    def _first_delay_ms(self, now: float, joining: Joining) -> int:
        may_return = now - self._began < joining.session_timeout_ms / 1000
        return RETURN_DELAY_MS if may_return and joining.instance_id is not None else 0

    def _create(self, name: str, first_delay_ms: int) -> Group:
        limit = self._limits.groups_max
        if len(self.groups) >= limit:
            if not self._empty:
                raise PolicyViolation(f"there are {limit} groups with members already (max.groups)")
            self.delete(next(iter(self._empty)))
        group = self.groups[name] = Group(
            name,
            self._limits.group,
            self._new_member_id,
            on_change=self._changed,
            on_lost=self._on_lost,
            on_size=self._byte_shares.add,
            first_delay_ms=first_delay_ms,
        )
        self._empty[name] = None
        return group

    def _changed(self, group: Group, before: State) -> None:
        if group.state is State.EMPTY:
            self._empty[group.name] = None
            begun_by = self._begun_by.pop(group.name, None)
            if begun_by is not None:
                self._group_shares.add(begun_by, -1)
        elif before is State.EMPTY and group.state is State.PREPARING:
            del self._empty[group.name]
        self._on_change(group, before)

    @contextmanager
    def _step(self, group: Group, token: Token | None = None) -> Iterator[None]:
        """Wrap a call of a group: update the total size, the replies and the deadlines
        afterwards."""
        before = group.size_bytes
        try:
            yield
        except HorologError:
            self._waiting_in.pop(token, None)
            raise
        finally:
            self._bytes += group.size_bytes - before
            self._arrange(group)

    def _arrange(self, group: Group) -> None:
        """Take the replies of a group, and record its next deadline."""
        for token, outcome in group.replies:
            self._waiting_in.pop(token, None)
            self._replies.append((token, outcome))
        group.replies.clear()
        if group.state is State.EMPTY:
            self._due_at.pop(group.name, None)
            return
        at = group.next_deadline()
        if at < self._due_at.get(group.name, inf):
            self._due_at[group.name] = at
            heapq.heappush(self._due, (at, group.name))
            if len(self._due) > LEFT_OVER_MAX + 2 * len(self._due_at):
                self._due = [(due_at, name) for name, due_at in self._due_at.items()]
                heapq.heapify(self._due)
