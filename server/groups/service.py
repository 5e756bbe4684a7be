"""The groups of a running broker: requests that wait for their answers, deadlines that fire, and
figures."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, field
from math import inf
from typing import Final

from ...clock import Clock
from ...config.broker import BrokerSettings
from ...protocol.errors import NotCoordinator
from ...storage.events import Observer
from ...values import value_class
from ..metrics.figures import count
from .coordinator import Coordinator, CoordinatorLimits
from .group import Group, GroupLimits
from .member import GroupMember, Joining, Outcome, Refused
from .states import State

LATE_SECONDS: Final = 0.1
"""When the loop looks at a deadline so much too late, it looks once more after this time: what
members said meanwhile lies in their sockets, and a loop calls its timers before it reads."""

LOOK_SECONDS: Final = 0.01
"""Shortest time between two looks, for a clock that stands still at a deadline."""

MAX_NAME_IN_MEMBER_ID: Final = 100
"""Characters. Member ids are in every request and in log lines."""

Answer = asyncio.Future[Outcome | None]
"""What a request that waits gets. Its connection sets `None` when it ends and no client waits."""


@value_class
class GroupFigures:
    """What metrics show of all groups together."""

    _: KW_ONLY

    states: Mapping[State, int] = field(default_factory=dict)
    """How many groups are in each state that a group can be in."""
    members: int = 0
    size_bytes: int = 0
    rebalances: int = 0
    members_gone: Mapping[str, int] = field(default_factory=dict)
    """By reason."""


def count_states(groups: Iterable[Group]) -> dict[State, int]:
    """How many of `groups` are in each state; a dead group is none."""
    counts = Counter(group.state for group in groups)
    return {state: counts[state] for state in State if state is not State.DEAD}


class GroupService:
    """Passes requests to the coordinator, answers those that wait, and passes it the time.

    Deadlines are on the broker's clock. `look` is called when one of them should be reached, and by
    what moves the clock.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: BrokerSettings,
        clock: Clock,
        observe: Observer,
        emptied: Callable[[str], None],
    ) -> None:
        """`emptied` is called with a group whose last member has gone."""
        self._loop = loop
        self._clock = clock
        self._observe = observe
        self._emptied = emptied
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = inf
        """When the timer is to fire, on the broker's clock."""
        self._waiting: set[Answer] = set()
        self.taken_over: Callable[[], None] = lambda: None
        """Called when this broker begins to look after the groups."""
        self.rebalances = 0
        """How many were begun."""
        self.members_gone: dict[str, int] = {}
        """How many are no longer members, by reason."""
        self.coordinator = Coordinator(
            limits_of(settings), new_member_id, on_change=self._changed, on_lost=self._lost
        )
        self.begin()

    def begin(self) -> None:
        """As `Coordinator.begin`."""
        self.coordinator.begin(self._now())

    def join(
        self, name: str, member_id: str, joining: Joining, *, gives_id: bool = False
    ) -> Answer:
        """As `Coordinator.join`; the future's result is the answer. Who cancels it does not wait
        for it any more."""
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
        """As `Coordinator.sync`; the future's result is the answer."""
        return self._ask(
            lambda token: self.coordinator.sync(
                self._now(), token, name, member_id, generation, assignments, instance_id
            )
        )

    def heartbeat(
        self, name: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """As `Coordinator.heartbeat`."""
        self._check_running()
        self.coordinator.heartbeat(self._now(), name, member_id, generation, instance_id)

    def leave(self, name: str, member_id: str, instance_id: str | None = None) -> None:
        """As `Coordinator.leave`."""
        self._check_running()
        self.coordinator.leave(self._now(), name, member_id, instance_id)
        self._arrange()

    def check_commit(
        self, name: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """As `Coordinator.check_commit`."""
        self.coordinator.check_commit(self._now(), name, member_id, generation, instance_id)

    def look(self) -> None:
        """Do what is due by the broker's clock, which may have been moved."""
        self.coordinator.time_passed(self._now())
        self._due_at = inf
        self._arrange()

    def figures(self) -> GroupFigures:
        """How the groups are now."""
        groups = self.coordinator.groups.values()
        return GroupFigures(
            states=count_states(groups),
            members=sum(len(group.members) for group in groups),
            size_bytes=self.coordinator.size_bytes,
            rebalances=self.rebalances,
            members_gone=self.members_gone,
        )

    def stop(self) -> None:
        """Take no more requests, and send waiting members to look for another coordinator."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_result(Refused(NotCoordinator, "the broker stops"))

    def moved_away(self) -> None:
        """Another broker looks after the groups: their members find it, and begin again there."""
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
        """Answer what can be answered, and wait for the next deadline."""
        for token, outcome in self.coordinator.take_replies():
            assert isinstance(token, asyncio.Future)
            if not token.done():
                token.set_result(outcome)
        due_at = self.coordinator.next_deadline()
        if self._stopped or due_at >= self._due_at:
            return  # A timer that fires too early finds nothing to do.
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


def limits_of(settings: BrokerSettings) -> CoordinatorLimits:
    """What the settings say about groups."""
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
    """An id that no member had before: no member of an earlier broker is taken for this one."""
    from uuid import uuid4

    name = joining.client_id if joining.instance_id is None else joining.instance_id
    return f"{name[:MAX_NAME_IN_MEMBER_ID]}-{uuid4()}"
