"""The groups of a running broker: requests that wait for their answers, deadlines that fire,
figures, and removal of the positions of groups that are no longer used."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, field
from functools import partial
from math import inf
from typing import Final

from ...clock import Clock
from ...config.broker import BrokerSettings
from ...protocol.errors import CodedError, NotCoordinator
from ...storage.directory.position_table import PIECE, PositionReading
from ...storage.events import Observer
from ...values import value_class
from ..maintenance import Maintenance
from ..metadata_store import MetadataStore
from ..metrics.figures import count
from ..trusted_time import TrustedTime
from ..work import Work
from .coordinator import Coordinator, CoordinatorLimits
from .group import Group, GroupLimits
from .member import GroupMember, Joining, Outcome, Refused
from .states import State

MINUTE_MS: Final = 60_000

USES_IN_RETENTION: Final = 10
"""How often within the retention time the broker records that a group has members. After a crash
positions may therefore expire a tenth too early; recording each heartbeat would cost a write
each."""

LATE_SECONDS: Final = 0.1
"""If a timer fires later than this, members are checked after this delay instead: their requests
may be in the sockets, and an event loop runs timers before it reads sockets."""

LOOK_SECONDS: Final = 0.01
"""Shortest time between two checks, for a clock that stands still at a deadline."""

MAX_NAME_IN_MEMBER_ID: Final = 100
"""Longest part of a client id or instance id in a member id, in characters. Member ids appear in
every request and in log lines."""

Answer = asyncio.Future[Outcome | None]
"""Future of a waiting request's answer. The connection sets it to None when it closes."""


@value_class
class GroupFigures:
    """Figures of all groups together."""

    _: KW_ONLY

    states: Mapping[State, int] = field(default_factory=dict)
    """Number of groups in each state."""
    members: int = 0
    size_bytes: int = 0
    rebalances: int = 0
    members_gone: Mapping[str, int] = field(default_factory=dict)
    """Number of removed members by reason."""


def count_states(groups: Iterable[Group]) -> dict[State, int]:
    """Return the number of groups in each state; dead groups are not counted."""
    counts = Counter(group.state for group in groups)
    return {state: counts[state] for state in State if state is not State.DEAD}


class GroupService:
    """Passes requests and the time to the coordinator, and answers waiting requests.

    Deadlines are on the broker's clock. `look` is called when a deadline should be reached, and
    whenever the clock is moved.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: BrokerSettings,
        clock: Clock,
        observe: Observer,
        emptied: Callable[[str], None],
    ) -> None:
        """`emptied` is called with the name of a group when its last member has left."""
        self._loop = loop
        self._clock = clock
        self._observe = observe
        self._emptied = emptied
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = inf
        """Time of the timer, on the broker's clock."""
        self._waiting: set[Answer] = set()
        self.taken_over: Callable[[], None] = lambda: None
        """Called when this broker becomes the coordinator of the groups."""
        self.rebalances = 0
        """Number of rebalances that were started."""
        self.members_gone: dict[str, int] = {}
        """Number of members that left or were removed, by reason."""
        self.coordinator = Coordinator(
            limits_of(settings), new_member_id, on_change=self._changed, on_lost=self._lost
        )
        self.begin()

    def begin(self) -> None:
        """Start to coordinate the groups, as `Coordinator.begin` does."""
        self.coordinator.begin(self._now())

    def join(
        self, name: str, member_id: str, joining: Joining, *, gives_id: bool = False
    ) -> Answer:
        """Join as `Coordinator.join` does; the future gets the answer. Cancelling the future means
        that no client waits for the answer."""
        return self._ask(
            lambda token: self.coordinator.join(
                self._now(), token, name, member_id, joining, gives_id=gives_id
            )
        )

    def sync(
        self,
        name: str,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        instance_id: str | None = None,
    ) -> Answer:
        """Sync as `Coordinator.sync` does; the future gets the answer."""
        return self._ask(
            lambda token: self.coordinator.sync(
                self._now(), token, name, member_id, generation, assignments, instance_id
            )
        )

    def heartbeat(
        self, name: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """Extend a member's session as `Coordinator.heartbeat` does."""
        self._check_running()
        self.coordinator.heartbeat(self._now(), name, member_id, generation, instance_id)

    def leave(self, name: str, member_id: str, instance_id: str | None = None) -> None:
        """Leave as `Coordinator.leave` does."""
        self._check_running()
        self.coordinator.leave(self._now(), name, member_id, instance_id)
        self._arrange()

    def check_commit(
        self, name: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """Check a commit as `Coordinator.check_commit` does."""
        self.coordinator.check_commit(self._now(), name, member_id, generation, instance_id)

    def look(self) -> None:
        """Do what is due by the broker's clock, which may have been moved."""
        self.coordinator.time_passed(self._now())
        self._due_at = inf
        self._arrange()

    def assignments(self, name: str) -> list[bytes]:
        """Return the assignments of a group's members."""
        group = self.coordinator.groups.get(name)
        return [] if group is None else [each.assignment for each in group.members.values()]

    def figures(self) -> GroupFigures:
        """Return the current figures of the groups for metrics."""
        groups = self.coordinator.groups.values()
        return GroupFigures(
            states=count_states(groups),
            members=sum(len(group.members) for group in groups),
            size_bytes=self.coordinator.size_bytes,
            rebalances=self.rebalances,
            members_gone=self.members_gone,
        )

    def stop(self) -> None:
        """Refuse further requests, and tell waiting members to find another coordinator."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_result(Refused(NotCoordinator, "the broker stops"))

    def moved_away(self) -> None:
        """Forget the groups, because another broker coordinates them. Waiting members are told to
        find it."""
        self.coordinator.forget_all()
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_result(Refused(NotCoordinator, "another broker looks after the groups"))

    def _now(self) -> float:
        return self._clock.monotonic()

    def _check_running(self) -> None:
        if self._stopped:
            raise NotCoordinator("the broker stops")

    def _ask(self, ask: Callable[[Answer], None]) -> Answer:
        self._check_running()
        answer: Answer = self._loop.create_future()
        ask(answer)
        self._waiting.add(answer)
        answer.add_done_callback(self._end_request)
        self._arrange()
        return answer

    def _end_request(self, answer: Answer) -> None:
        self._waiting.discard(answer)
        if not self._stopped and (answer.cancelled() or answer.result() is None):
            self.coordinator.gone(self._now(), answer)
            self._arrange()

    def _arrange(self) -> None:
        """Answer waiting requests, and set the timer for the next deadline."""
        for token, outcome in self.coordinator.take_replies():
            assert isinstance(token, asyncio.Future)
            if not token.done():
                token.set_result(outcome)
        due_at = self.coordinator.next_deadline()
        if self._stopped or due_at >= self._due_at:
            return  # a timer that fires too early finds nothing to do
        if self._timer is not None:
            self._timer.cancel()
        self._due_at = due_at
        delay = max(due_at - self._now(), LOOK_SECONDS)
        self._timer = self._loop.call_later(delay, self._fire, self._loop.time() + delay)

    def _fire(self, planned: float) -> None:
        if self._loop.time() - planned > LATE_SECONDS:
            self._timer = self._loop.call_later(LATE_SECONDS, self._look_now)
        else:
            self._look_now()

    def _look_now(self) -> None:
        self._timer = None
        self.look()

    def _changed(self, group: Group, before: State) -> None:
        if group.state is State.PREPARING:
            self.rebalances += 1
        elif group.state is State.STABLE:
            self._observe(
                "group_stable",
                group=group.name,
                generation=group.generation,
                members=len(group.members),
                protocol=group.protocol,
            )
        elif group.state is State.EMPTY:
            self._observe("group_empty", group=group.name, generation=group.generation)
            self._emptied(group.name)

    def _lost(self, group: Group, member: GroupMember, why: str) -> None:
        count(self.members_gone, why)
        self._observe(
            "group_member_gone",
            group=group.name,
            member=member.member_id,
            host=member.joining.client_host,
            reason=why,
        )


class OffsetRetention:
    """Task that removes expired positions, and groups without positions and members.

    No position is removed before the broker has run for the longest session timeout. By then, the
    members that it had before a restart have returned or are lost.
    """

    def __init__(
        self,
        positions: PositionReading,
        metadata: MetadataStore,
        coordinator: Coordinator,
        work: Work,
        clock: Clock,
        observe: Observer,
        *,
        retention_minutes: int,
        check_interval_ms: int,
        settle_ms: int,
    ) -> None:
        """As in Kafka, a group without positions vanishes within two checks of its last member's
        leave."""
        self._positions = positions
        self._metadata = metadata
        self._coordinator = coordinator
        self._work = work
        self._clock = clock
        self._observe = observe
        self._retention_ms = retention_minutes * MINUTE_MS
        self._began = clock.monotonic()
        self._settle_seconds = settle_ms / 1000
        self._empty_seconds = check_interval_ms / 1000

    def begin(self) -> None:
        """Restart the waiting time, because this broker became the coordinator and members have to
        find it."""
        self._began = self._clock.monotonic()

    async def run(self, now_ms: int) -> None:
        """Check every name that has positions, and every group without members, if this broker is
        the coordinator.

        Raises `StorageError`.
        """
        try:
            self._metadata.check_coordinates()
        except NotCoordinator:
            return
        names = await self._work.in_storage_thread(self._positions.names)
        settled = self._clock.monotonic() - self._began >= self._settle_seconds
        turns = self._work.turns()
        for name in names:
            expires_ms = await self._expires_ms(name)
            if expires_ms is not None:
                if self._has_members(name):
                    last_ms = self._positions.last_used_ms(name)
                    if now_ms - last_ms >= self._retention_ms // USES_IN_RETENTION:
                        await self._used(name, now_ms)
                elif expires_ms <= now_ms and settled:
                    await self._forget(name, now_ms)
            await turns.give_way()
        for name in self._coordinator.empty_groups():
            self._remove_unused(name)
            await turns.give_way()

    def _remove_unused(self, name: str) -> None:
        empty_seconds = self._coordinator.empty_seconds(self._clock.monotonic(), name)
        if empty_seconds >= self._empty_seconds and not self._positions.has(name):
            self._coordinator.delete(name)
            self._observe("group_expired", group=name)

    async def _expires_ms(self, name: str) -> int | None:
        find = partial(self._positions.expires_ms, name, self._retention_ms)
        if self._positions.count_of(name) > PIECE:
            return await self._work.in_storage_thread(find)
        return find()

    def emptied(self, name: str, now_ms: int) -> None:
        """Record the use of a group whose last member has left: its retention time starts now."""
        if self._positions.has(name):
            self._work.start(self._try_to_note(name, now_ms))

    async def _try_to_note(self, name: str, now_ms: int) -> None:
        try:
            await self._used(name, now_ms)
        except CodedError as error:
            self._observe("group_use_failed", group=name, error=error)

    def _has_members(self, name: str) -> bool:
        group = self._coordinator.groups.get(name)
        return group is not None and len(group.members) > 0

    async def _used(self, name: str, now_ms: int) -> None:
        await self._metadata.positions.used(name, now_ms)

    async def _forget(self, name: str, now_ms: int) -> None:
        count = await self._metadata.positions.expire(name, self._retention_ms, now_ms)
        if count:
            self._observe("group_positions_expired", group=name, positions=count)


def set_up_groups(
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    *,
    positions: PositionReading,
    metadata: MetadataStore,
    work: Work,
    clock: Clock,
    trusted_time: TrustedTime,
    maintenance: Maintenance,
    observe: Observer,
) -> GroupService:
    """Return a group service whose deadlines follow `clock`, and register the task that removes
    expired positions.

    Retention of positions uses the broker's trusted time, as retention of messages does.
    """
    service = GroupService(
        loop,
        settings,
        clock,
        observe,
        emptied=lambda name: retention.emptied(name, trusted_time.now_ms()),
    )
    retention = OffsetRetention(
        positions,
        metadata,
        service.coordinator,
        work,
        clock,
        observe,
        retention_minutes=settings.offsets_retention_minutes,
        check_interval_ms=settings.offsets_retention_check_interval_ms,
        settle_ms=settings.group_max_session_timeout_ms,
    )

    def begin() -> None:
        service.begin()
        retention.begin()

    service.taken_over = begin
    maintenance.add(
        "offset_retention",
        lambda: retention.run(trusted_time.now_ms()),
        settings.offsets_retention_check_interval_ms,
    )
    maintenance.when_clock_moves.append(service.look)
    return service


def limits_of(settings: BrokerSettings) -> CoordinatorLimits:
    """Return the limits from the settings."""
    return CoordinatorLimits(
        group=GroupLimits(
            members_max=settings.group_max_size,
            bytes_max=settings.group_max_bytes,
            initial_delay_ms=settings.group_initial_rebalance_delay_ms,
        ),
        groups_max=settings.max_groups,
        bytes_max=settings.max_groups_bytes,
        session_timeout_min_ms=settings.group_min_session_timeout_ms,
        session_timeout_max_ms=settings.group_max_session_timeout_ms,
    )


def new_member_id(joining: Joining) -> str:
    """Return a unique member id. It never equals an id from an earlier run of the broker."""
    from uuid import uuid4

    name = joining.client_id if joining.instance_id is None else joining.instance_id
    return f"{name[:MAX_NAME_IN_MEMBER_ID]}-{uuid4()}"
