"""A consumer's part in a group: its subscription, rebalances, and committed positions.

Rebalances are carried out while the application asks for messages, so that partitions are never
taken from it in the middle of its work. Only the requests to the coordinator run in the background.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Final

from ....clock import Clock
from ....protocol.api.framing import ProtocolError
from ....protocol.api.groups.join_group import JoinGroupResponse
from ....protocol.api.log.list_offsets import EARLIEST, LATEST
from ....protocol.consumer_protocol import (
    MemberSubscription,
    encode_assignment,
    read_assignment,
    read_subscription,
)
from ....protocol.errors import (
    NO_ERROR,
    CodedError,
    FencedInstanceId,
    HorologError,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from ...administer.positions import CommittingMember, Position, commit, committed
from ...administer.searching import find_offset, offsets_at
from ...results import AfterEnd, Found
from ..assignment import Assigned, Assignment, AssignmentRequests
from ..fetching import TopicPartition
from .assignors import ASSIGNORS, Assignor, GroupMemberInfo
from .membership import Membership, fenced
from .subscription import GroupSubscription, PartitionsCallback

_CLOSING_S: Final = 5.0
"""Seconds that the commit of a closing consumer may take."""

_LEAVING_WAIT_MS: Final = 10
"""Shortest wait of a poll for another task that leaves the group."""

_LOOKED_AT_ONCE: Final = 1_000
"""Topics that are compared with the patterns before other tasks have their turn."""

_REVOKING: Final[ContextVar["ConsumerGroup | None"]] = ContextVar("revoking", default=None)
"""The group whose `on_revoked` is running. It is inherited by the threads and tasks in which the
callback of a blocking consumer runs and calls the consumer."""

_log: Final = logging.getLogger("horolog")


class ConsumerGroup:
    """Keeps the assignment of a consumer as the group decides it."""

    def __init__(
        self,
        subscription: GroupSubscription,
        requests: AssignmentRequests,
        assigned: Assignment,
        clock: Clock,
        *,
        metadata_max_age_ms: int,
        drop: Callable[[Sequence[TopicPartition]], None],
        changed: Callable[[], None],
    ) -> None:
        """`drop` removes partitions from `assigned` with their messages that were not returned yet.
        `changed` ends a wait for messages, because there is a rebalance to carry out."""
        self.subscription = subscription
        self._requests = requests
        self._route = requests.cluster
        self._assigned = assigned
        self._clock = clock
        self._metadata_max_age_s = metadata_max_age_ms / 1000
        self._drop = drop
        self._changed = changed
        self.membership = Membership(
            self._route,
            subscription.group,
            subscription.times,
            clock,
            instance_id=subscription.instance_id,
            changed=changed,
        )
        self._joining: asyncio.Task[list[TopicPartition]] | None = None
        self._target: list[TopicPartition] | None = None
        """Assignment that is not carried out yet."""
        self._drops_all = False
        """Whether the partitions were lost while the consumer joined."""
        self._closed = False
        self._left = asyncio.Event()
        self._given_back = asyncio.Event()
        """Not set while a poll gives partitions back."""
        self._given_back.set()
        self._revoked: set[TopicPartition] = set()
        """Partitions with which `on_revoked` was called, and that are still assigned."""
        self._counts: dict[str, int] | None = None
        """Number of partitions of the topics that decide whether this member asks for a
        rebalance: its own, or as leader those of all members."""
        self._read_by_members: Collection[str] = ()
        """As leader: the topics to which members subscribe, whether they exist or not."""
        self._is_leader = False
        self._metadata_asked = 0.0
        self._committed_s = clock.monotonic()
        self._committed: dict[TopicPartition, int] = {}
        """Offsets of the last commit."""

    @property
    def needs_poll(self) -> bool:
        """Whether `poll` has something to do before more messages are returned. A join that has
        not ended is nothing to do: messages of the partitions that stay are returned meanwhile."""
        member = self.membership
        return bool(
            (member.rebalances if self._joining is None else self._joining.done())
            or member.lost is not None
            or member.failure is not None
            or self._target is not None
            or self._drops_all
        )

    async def poll(self, wait_ms: int) -> bool:
        """Carry out what the group decided, and commit if it is time. Waits up to `wait_ms` for the
        other members while there is nothing to read. Returns whether the consumer is assigned
        partitions, or will get none for now.

        Raises the errors of the coordinator, UnknownTopicOrPartition for a subscribed topic that
        does not exist, and the errors of the callbacks.
        """
        member = self.membership
        if self._closed:
            # Another task leaves the group, and needs its turns of the event loop.
            with suppress(TimeoutError):
                async with asyncio.timeout(max(wait_ms, _LEAVING_WAIT_MS) / 1000):
                    await self._left.wait()
            return False
        member.note_poll()
        if self._may_commit:
            await self._commit_in_time()  # first, because the answer tells what the group did
        member.check()
        if member.lost is not None:
            await self._drop_all()
        if self._joining is None and self._target is None and await self._must_join():
            await self._prepare()
            self._start_joining()
        if self._joining is not None:
            await self._wait_for_assignment(self._joining, wait_ms)
        if self._target is not None:
            await self._carry_out(self._target)
            self._target = None
            if member.rebalances:
                await self._prepare()
                self._start_joining()
        return not self._assigned.is_empty or self._joining is None

    @property
    def _may_commit(self) -> bool:
        """Whether positions are committed by themselves now: not in a rebalance, which commits what
        it takes away."""
        idle = self._joining is None and self._target is None and not self.needs_poll
        return self.subscription.auto_commit and self.membership.is_member and idle

    async def commit(self, positions: Sequence[Position]) -> None:
        """Commit positions as a member of the current generation. Raises an error that says that
        nothing was committed, if the group went on without this member."""
        member, group = self.membership, self.subscription.group
        if member.lost is not None or not member.is_member:
            raise UnknownMemberId(self._not_committed(member.lost or "it is joining"))
        for position in positions:
            if self._assigned.get((position.topic, position.partition)) is None:
                raise IllegalGeneration(
                    f"nothing was committed: {position.topic}-{position.partition} is not assigned "
                    f"to this member of group {group} any more; its new owner reads on from the "
                    "last commit"
                )
        committer = CommittingMember(member.generation, member.member_id, member.instance_id)
        try:
            await self._requests.ask(
                partial(commit, self._route, group, positions, committer=committer)
            )
            self._committed |= {(one.topic, one.partition): one.offset for one in positions}
        except FencedInstanceId as error:
            member.note_refusal(committer.generation, error)
            raise fenced(group, member.instance_id) from None
        except (IllegalGeneration, UnknownMemberId) as error:
            member.note_refusal(committer.generation, error)
            raise type(error)(self._not_committed(error.name)) from error
        except RebalanceInProgress as error:
            member.note_refusal(committer.generation, error)
            raise RebalanceInProgress(
                f"nothing was committed: group {group} is rebalancing; the next fetch takes part"
            ) from error

    def positions(self, capped: Mapping[TopicPartition, int]) -> list[Position]:
        """Return the positions to commit: behind the messages that were returned, and at most
        `capped` unless more was committed before."""
        found = []
        for assigned in self._assigned:
            if assigned.position is not None:
                cap = capped.get(assigned.key, assigned.position)
                offset = min(assigned.position, max(cap, self._committed.get(assigned.key, 0)))
                timestamp_ms = assigned.timestamp_ms if offset == assigned.position else None
                found.append(Position(*assigned.key, offset, timestamp_ms))
        return found

    async def close(self, capped: Mapping[TopicPartition, int]) -> None:
        """Commit, with `capped` as in `positions`, and leave the group. If another task does so,
        wait for it. `on_revoked` may call this too: then return at once where a wait would never
        end."""
        in_callback = _REVOKING.get() is self
        if self._closed:
            if not in_callback:
                await self._left.wait()
            return
        self._closed = True
        try:
            try:
                await self._end_join()
                if not in_callback:
                    await self._given_back.wait()
            finally:
                await self._revoke(self._assigned.keys, capped)
        finally:
            try:
                await self.membership.leave()
            finally:
                self._left.set()

    async def _end_join(self) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)

    def _not_committed(self, why: str) -> str:
        return (
            f"nothing was committed: group {self.subscription.group} went on without this consumer "
            f"({why}). Other members read on from the last commit; the next fetch joins again"
        )

    # Rebalances.

    async def _must_join(self) -> bool:
        if not self.membership.is_member or self.membership.rebalances:
            return True
        if not (self._is_leader or self.subscription.patterns):
            return False  # the leader watches the number of partitions
        now = self._clock.monotonic()
        if now - self._metadata_asked < self._metadata_max_age_s:
            return False
        self._metadata_asked = now
        names = self._read_by_members if self._is_leader else ()
        counts = await self._requests.ask(partial(self._find_topics, names))
        return counts != self._counts

    def _start_joining(self) -> None:
        if self._closed:
            return  # the consumer was closed while another task was in a poll
        self._joining = asyncio.create_task(self._join())
        self._joining.add_done_callback(self._joined)

    def _joined(self, joining: "asyncio.Task[list[TopicPartition]]") -> None:
        if joining.cancelled():
            return
        # This marks the error as retrieved: the consumer may be closed before a poll.
        if joining.exception() is not None:
            self.membership.rebalances = True  # the group still waits for this member
        self._changed()

    async def _wait_for_assignment(
        self, joining: "asyncio.Task[list[TopicPartition]]", wait_ms: int
    ) -> None:
        """Set the target, if the join has ended or ends while there is nothing to read. Raises the
        errors of the join."""
        if self._assigned.is_empty:
            await asyncio.wait((joining,), timeout=wait_ms / 1000)
        if self._drops_all:
            await self._give_up()
        if self._joining is joining and joining.done():
            self._joining = None
            self._target = joining.result()

    async def _prepare(self) -> None:
        """Give back all partitions before a rebalance, unless they may be kept."""
        if not self.subscription.is_cooperative:
            await self._give_back(self._assigned.keys)

    async def _give_back(self, keys: Sequence[TopicPartition]) -> None:
        """Revoke partitions in a poll, unless the consumer gives all of them back, as it leaves."""
        if self._closed:
            return
        self._given_back.clear()
        try:
            await self._revoke(keys, {})
        finally:
            self._given_back.set()

    async def _join(self) -> list[TopicPartition]:
        """Return the partitions that the group assigns to this member."""
        while True:
            try:
                return await self._requests.ask(self._join_once)
            except RebalanceInProgress:
                continue  # another member came or went
            except (IllegalGeneration, UnknownMemberId):
                self.membership.forget()
                self._drops_all = True
            except FencedInstanceId:
                group = self.subscription.group
                self.membership.failure = fenced(group, self.subscription.instance_id)
                raise self.membership.failure from None
            except InconsistentGroupProtocol as error:
                raise InconsistentGroupProtocol(
                    f"group {self.subscription.group} has members that share none of the assignors "
                    f"{', '.join(self.subscription.assignors)}; subscribe(assignor=...) chooses "
                    f"others ({error.message})"
                ) from error

    async def _join_once(self) -> list[TopicPartition]:
        member, subscription = self.membership, self.subscription
        counts = await self._find_topics(())
        if member.lost is not None:
            self._drops_all = True
        owned: frozenset[TopicPartition] = frozenset()
        if subscription.is_cooperative and not self._drops_all:
            owned = frozenset(self._assigned.keys)
        # Also names of topics that do not exist now: the leader finds them when they are made.
        topics = tuple(sorted({*counts, *subscription.names}))
        metadata = MemberSubscription(topics, owned, member.generation).encode()
        joined = await member.join(dict.fromkeys(subscription.assignors, metadata))
        assignments: dict[str, bytes] = {}
        self._is_leader = joined.leader == joined.member_id
        if self._is_leader:
            assignments = await self._divide(joined)
        else:
            self._counts = counts
        self._metadata_asked = self._clock.monotonic()
        return read_assignment(await member.sync(joined, assignments))

    async def _divide(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """Return the assignments of all members, as the group's leader."""
        assignor = ASSIGNORS.get(joined.protocol_name)
        if assignor is None:
            raise ProtocolError(f"the group chose the assignor {joined.protocol_name!r}")
        # In threads, because a large group takes long.
        members = await asyncio.to_thread(_members_of, joined)
        names = {topic for one in members for topic in one.subscription.topics}
        self._read_by_members = names
        self._counts = await self._find_topics(names)
        counts = {topic: count for topic, count in self._counts.items() if topic in names}
        return await asyncio.to_thread(_encoded, assignor, members, counts)

    async def _find_topics(self, others: Collection[str]) -> dict[str, int]:
        """Return the number of partitions of the subscribed topics, and of those of `others` that
        exist. Raises the error of a topic that is named and cannot be read when the consumer first
        joins, such as UnknownTopicOrPartition."""
        names, patterns = self.subscription.names, self.subscription.patterns
        asked = [] if patterns else list(dict.fromkeys((*names, *others)))
        response = await self._route.topics(asked)
        counts: dict[str, int] = {}
        chosen: dict[str, int] = {}
        wanted = {*names, *others}
        for number, topic in enumerate(response.topics, 1):
            if topic.error_code == NO_ERROR and not topic.is_internal:
                name, counts[topic.name] = topic.name, len(topic.partitions)
                if name in wanted or any(pattern.match(name) for pattern in patterns):
                    chosen[name] = counts[name]
            if number % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        missing = sorted(set(names) - set(counts))
        if missing and self._counts is None:
            try:
                await self._route.named_topic(response.topics, missing[0])
            except UnknownTopicOrPartition as error:
                group = self.subscription.group
                raise UnknownTopicOrPartition(
                    f"group {group} cannot read {missing[0]!r}: {error.message}"
                ) from error
        return dict(sorted(chosen.items()))

    async def _carry_out(self, target: list[TopicPartition]) -> None:
        """Revoke and add partitions until the assignment is `target`."""
        before = set(self._assigned.keys)
        revoked = sorted(before.difference(target))
        if revoked:
            # The others get what this member gives back in another rebalance.
            self.membership.rebalances = True
            await self._give_back(revoked)
        added = sorted(set(target) - before)
        for key in added:
            known = self._route.map.partition_count(key[0])
            if known is not None and key[1] >= known:
                self._route.forget(key[0])  # the partition is new
        starts = await self._starts(added) if added else {}
        if self._closed:
            return
        for key in added:
            self._assigned.add(*key, starts[key])
            self._committed.pop(key, None)
        if added and self.subscription.on_assigned is not None:
            await _call(self.subscription.on_assigned, added)

    async def _revoke(
        self, keys: Sequence[TopicPartition], capped: Mapping[TopicPartition, int]
    ) -> None:
        """Let the application finish its work on partitions, commit, and give them back."""
        told = [key for key in keys if key not in self._revoked]
        self._revoked.update(told)
        try:
            if told and self.subscription.on_revoked is not None:
                outside = _REVOKING.set(self)
                try:
                    await _call(self.subscription.on_revoked, list(told))
                finally:
                    _REVOKING.reset(outside)
        finally:
            try:
                if keys and self.subscription.auto_commit and self.membership.is_member:
                    await self._commit_quietly(self.positions(capped), keys)
            finally:
                # Also when this is cancelled: the application gave them back.
                self._drop([key for key in keys if self._assigned.get(key) is not None])
                self._revoked.difference_update(told)

    async def _drop_all(self) -> None:
        """Give up all partitions, and an assignment that was not carried out yet: the group went on
        without this member."""
        self.membership.lost = None
        self._target = None
        if self._joining is not None and self._joining.done():
            self._joining = None
        await self._give_up()

    async def _give_up(self) -> None:
        """Give up all partitions, which other members may read already. Nothing is committed."""
        self._drops_all = False
        if self._closed:
            return  # it gives them back, as it leaves
        keys = self._assigned.keys
        self._drop(keys)
        if keys and self.subscription.on_revoked is not None:
            await _call(self.subscription.on_revoked, keys)

    async def _starts(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the committed offsets, or where to begin without one; None: the first message."""
        ask, route = self._requests.ask, self._route
        stored = await ask(partial(committed, route, self.subscription.group, keys))
        found: dict[TopicPartition, int | None] = {}
        for key in keys:
            position = stored[key]
            found[key] = await self._start(key) if position is None else position.offset
        return found

    async def _start(self, key: TopicPartition) -> int | None:
        start, ask, route = self.subscription.start, self._requests.ask, self._route
        if start == "earliest":
            (at,) = await ask(partial(offsets_at, route, *key, [EARLIEST]))
            return at.offset
        if start == "latest":
            (at,) = await ask(partial(offsets_at, route, *key, [LATEST]))
            return at.offset
        if isinstance(start, timedelta):
            target_ms = max(self._clock.now_ms() - start // timedelta(milliseconds=1), 0)
        else:
            assert isinstance(start, int)
            target_ms = start
        match await ask(partial(find_offset, route, *key, target_ms)):
            case Found(offset=offset) | AfterEnd(end_offset=offset):
                return offset
        return None  # no message has a time, so none is left out

    async def reset(self, found: Sequence[Assigned]) -> None:
        """Move partitions whose messages at the position do not exist, or no longer, to where the
        subscription's `start` says."""
        for assigned in found:
            before = assigned.position
            offset = await self._start(assigned.key)
            if assigned.position == before and self._assigned.get(assigned.key) is assigned:
                assigned.move(offset)
                _log.warning(
                    "consumer of group %s: %s-%s has no offset %s; reading goes on at %s "
                    "(start=%r)",
                    *(self.subscription.group, *assigned.key, before),
                    *("the first message" if offset is None else offset, self.subscription.start),
                )

    # Commits.

    async def _commit_in_time(self) -> None:
        now = self._clock.monotonic()
        if now - self._committed_s >= self.subscription.commit_interval_ms / 1000:
            self._committed_s = now
            await self._commit_quietly(self.positions({}), self._assigned.keys)

    async def _commit_quietly(
        self, positions: Iterable[Position], keys: Sequence[TopicPartition]
    ) -> None:
        """Commit the positions of these partitions. A failure is logged: messages since the last
        commit are then read again."""
        wanted = set(keys)
        chosen = [
            one
            for one in positions
            if (key := (one.topic, one.partition)) in wanted
            and self._committed.get(key) != one.offset
        ]
        if not chosen:
            return
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self.commit(chosen)
        except (HorologError, TimeoutError) as error:
            why = error.message if isinstance(error, CodedError) else error
            _log.warning("consumer of group %s: %s", self.subscription.group, why or "no answer")


def _members_of(joined: JoinGroupResponse) -> list[GroupMemberInfo]:
    """Return the members of a group. Raises ProtocolError for an invalid subscription."""
    return [
        GroupMemberInfo(one.member_id, read_subscription(one.metadata), one.group_instance_id)
        for one in joined.members
    ]


def _encoded(
    assignor: Assignor, members: list[GroupMemberInfo], counts: Mapping[str, int]
) -> dict[str, bytes]:
    divided = assignor(members, counts)
    return {member_id: encode_assignment(keys) for member_id, keys in divided.items()}


async def _call(callback: PartitionsCallback, keys: list[TopicPartition]) -> None:
    result = callback(keys)
    if inspect.isawaitable(result):
        await result
