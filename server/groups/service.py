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
