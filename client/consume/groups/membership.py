"""The membership of a consumer in a group: requests to the group's coordinator, and heartbeats."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from ....clock import Clock
from ....protocol.api.groups.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from ....protocol.api.groups.join_group import (
    JOIN_GROUP,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from ....protocol.api.groups.leave_group import (
    LEAVE_GROUP,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
)
from ....protocol.api.groups.sync_group import (
    SYNC_GROUP,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ....protocol.api.schema import Api
from ....protocol.errors import (
    CodedError,
    FencedInstanceId,
    HorologError,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from ....values import value_class
from ...cluster.route import Route
from ...cluster.targets import CoordinatorNode
from ...responses import check_code

_PROTOCOL_TYPE: Final = "consumer"

_log: Final = logging.getLogger("horolog")

_LEAVING_S: Final = 5.0
"""Seconds that leaving may take; the session's end does the same later."""


@value_class
class GroupTimes:
    """Times of a membership, in milliseconds; see `Consumer.subscribe`."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int


class Membership:
    """Joins the group, sends heartbeats in the background, and leaves.

    `lost` is set when the group has gone on without this member; `rebalances` when the group waits
    for this member to join again.
    """

    def __init__(
        self,
        route: Route,
        group: str,
        times: GroupTimes,
        clock: Clock,
        *,
        instance_id: str | None,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when `lost`, `rebalances` or `failure` is set."""
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.lost: str | None = None
        """Why the group went on without this member; None while it is a member, or has not
        joined."""
        self.rebalances = False
        self.failure: CodedError | None = None
        """Error after which this member cannot join again; the next call raises it."""
        self.polled = False
        """Set when the application asks for messages."""
        self._route = route
        self._coordinator = CoordinatorNode(group)
        self._times = times
        self._clock = clock
        self._changed = changed
        # A join waits at the coordinator for the other members.
        self._lane = route.new_lane()
        self._polled_s = clock.monotonic()
        self._joining = False
        self._heartbeats: asyncio.Task[None] | None = None

    @property
    def is_member(self) -> bool:
        """Whether the consumer has an assignment of the current generation."""
        return self.generation >= 0

    async def join(self, protocols: Mapping[str, bytes]) -> JoinGroupResponse:
        """Join the group with these subscriptions, by name of the assignor. Returns when all
        members have joined. Raises the errors that the coordinator reports."""
        self._joining = True  # a heartbeat would wait behind this request
        self.rebalances = False
        self.lost = None
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._times.session_timeout_ms,
            rebalance_timeout_ms=self._times.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[
                JoinGroupProtocol(name=name, metadata=metadata)
                for name, metadata in protocols.items()
            ],
        )
        response: JoinGroupResponse = await self._meet(JOIN_GROUP, request)
        if response.error_code == MemberIdRequired.code:
            self.member_id = request.member_id = response.member_id
            return await self.join(protocols)
        check_code(response.error_code)
        self.member_id = response.member_id
        return response

    async def sync(self, joined: JoinGroupResponse, assignments: Mapping[str, bytes]) -> bytes:
        """Return this member's assignment; the leader sends those of all members. Afterwards the
        consumer is a member of the new generation, and sends heartbeats."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        response: SyncGroupResponse = await self._meet(SYNC_GROUP, request)
        check_code(response.error_code)
        self.generation = joined.generation_id
        self._joining = False
        self.note_poll()
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = asyncio.create_task(self._beat())
        return response.assignment

    async def _meet(self, api: Api, request: object) -> Any:
        """Send the coordinator a request that waits for the other members."""
        wait_ms = self._times.max_poll_interval_ms
        return await self._route.request(
            api, request, to=self._coordinator, wait_ms=wait_ms, lane=self._lane
        )

    async def leave(self) -> None:
        """Leave the group, so that the others get the partitions at once. A static member stays
        until its session ends, so that it gets the same partitions after a restart."""
        await self._stop()
        member_id, self.member_id = self.member_id, ""
        self.generation = -1
        if member_id and self.instance_id is None:
            # The session ends later, if the coordinator cannot be reached now.
            with suppress(HorologError, TimeoutError):
                async with asyncio.timeout(_LEAVING_S):
                    await self._leave(member_id)
        await self._route.close_lane(self._lane)

    def forget(self) -> None:
        """Join as a new member next time: the coordinator does not know this one any more."""
        self.member_id = ""
        self.generation = -1

    def check(self) -> None:
        """Raise the error for which this consumer cannot be a member."""
        if self.failure is not None:
            raise type(self.failure)(self.failure.message)

    def note_poll(self) -> None:
        """Record that the application asks for messages."""
        self.polled = True
        self._polled_s = self._clock.monotonic()

    async def _leave(self, member_id: str) -> None:
        response: LeaveGroupResponse = await self._route.request(
            LEAVE_GROUP,
            LeaveGroupRequest(
                group_id=self.group,
                member_id=member_id,
                members=[LeavingMember(member_id=member_id, group_instance_id=None)],
            ),
            to=self._coordinator,
            lane=self._lane,
        )
        check_code(response.error_code)

    async def _stop(self) -> None:
        task, self._heartbeats = self._heartbeats, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _beat(self) -> None:
        """Send heartbeats until the group goes on without this member."""
        while self.lost is None and self.failure is None:
            await asyncio.sleep(self._times.heartbeat_interval_ms / 1000)
            if self._joining:
                continue
            now = self._clock.monotonic()
            if self.polled:
                self.polled, self._polled_s = False, now
            if now - self._polled_s > self._times.max_poll_interval_ms / 1000:
                await self._leave_idle()
            elif self.is_member and not self.rebalances:
                await self._heartbeat()

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        try:
            response: HeartbeatResponse = await self._route.request_or_drop(
                HEARTBEAT, request, to=self._coordinator, lane=self._lane
            )
            check_code(response.error_code)
        except HorologError as error:
            self.note_refusal(request.generation_id, error)

    def note_refusal(self, generation: int, error: HorologError) -> None:
        """Record how the coordinator answered a heartbeat or a commit of a member of `generation`.
        Other errors are no answer: the session goes on for now, and the next heartbeat tries
        again."""
        if self._joining or generation != self.generation:
            return  # the result of the join decides
        match error:
            case RebalanceInProgress():
                self.rebalances = True
            case IllegalGeneration() | UnknownMemberId():
                self._set_lost(f"the coordinator reports {error.name}: its session had ended")
            case FencedInstanceId():
                self.failure = fenced(self.group, self.instance_id)
            case _:
                return
        self._changed()

    async def _leave_idle(self) -> None:
        """Leave, because the application has not asked for messages for too long; another member
        takes over."""
        member_id = self.member_id
        self._set_lost(
            f"it did not ask for messages for max_poll_interval_ms="
            f"{self._times.max_poll_interval_ms}"
        )
        self._changed()
        with suppress(HorologError, TimeoutError):
            async with asyncio.timeout(_LEAVING_S):
                await self._leave(member_id)

    def _set_lost(self, why: str) -> None:
        _log.warning("consumer of group %s lost its partitions: %s", self.group, why)
        self.lost = why
        self.forget()


def fenced(group: str, instance_id: str | None) -> FencedInstanceId:
    """Return the error of a static member whose place another consumer has taken."""
    return FencedInstanceId(
        f"another consumer joined group {group} with group_instance_id={instance_id!r}: give each "
        "running consumer its own id"
    )
