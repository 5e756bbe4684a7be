"""find-coordinator, join-group, sync-group, heartbeat and leave-group: the members' side of groups.

find-coordinator (key 10): versions 0 to 2
     1  key_type, error_message (KIP-98), throttle_time_ms (KIP-13)
     2  the response comes before the client is throttled (KIP-219)
join-group (key 11): versions 0 to 5, native 0
     1  rebalance_timeout_ms (KIP-62)
     2  throttle_time_ms in the response (KIP-13)
     3  the response comes before the client is throttled (KIP-219)
     4  MEMBER_ID_REQUIRED (KIP-394)
     5  group_instance_id (KIP-345)
sync-group (key 14): versions 0 to 3, native 0
     1  throttle_time_ms in the response (KIP-13)
     2  the response comes before the client is throttled (KIP-219)
     3  group_instance_id (KIP-345)
heartbeat (key 12): versions 0 to 3, native 0
     1  throttle_time_ms in the response (KIP-13)
     2  the response comes before the client is throttled (KIP-219)
     3  group_instance_id (KIP-345)
leave-group (key 13): versions 0 to 3, native 0
     1  throttle_time_ms in the response (KIP-13)
     2  the response comes before the client is throttled (KIP-219)
     3  several members (KIP-345)

Left out: coordinators of transactions, several keys in one find-coordinator (KIP-699), and groups
that the broker assigns (KIP-848).
"""

from typing import Final

from ...protocol.api.groups.find_coordinator import (
    FIND_COORDINATOR,
    GROUP,
    TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ...protocol.api.groups.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from ...protocol.api.groups.join_group import (
    JOIN_GROUP,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
)
from ...protocol.api.groups.leave_group import (
    LEAVE_GROUP,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
)
from ...protocol.api.groups.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupResponse
from ...protocol.api.pieces import Pieces
from ...protocol.errors import (
    InvalidRequest,
    MemberIdRequired,
    NotCoordinator,
    UnsupportedVersion,
)
from ...storage.directory.position_records import check_name
from ..groups.member import IdGiven, Joined, Joining, Protocol, Refused, Synced
from ..groups.service import Answer
from ..requests import Call, PendingAnswer, in_turns
from ..security.session import ANONYMOUS
from .base import Services
from .registration import handles

FIRST_VERSION_THAT_GIVES_IDS: Final = 4
"""First version of join-group in which a new member gets an id and joins again with it
(KIP-394)."""

FIRST_VERSION_OF_MANY: Final = 3
"""First version of leave-group that may name several members."""


@handles(FIND_COORDINATOR)
def find_coordinator(
    services: Services, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    """Answer with this broker, under the same address as in metadata."""
    if request.key_type == TRANSACTION:
        raise UnsupportedVersion(
            f"there are no transactions in Horolog: unset transactional.id ({request.key[:80]!r})"
        )
    if request.key_type != GROUP:
        raise InvalidRequest(f"key_type is {request.key_type}; it must be 0, a group")
    host, port = call.local_address
    return FindCoordinatorResponse(node_id=services.settings.broker_id, host=host, port=port)


@handles(JOIN_GROUP)
def join(services: Services, request: JoinGroupRequest, call: Call) -> PendingAnswer:
    """Answer when all members have joined, or the wait for them is over. A client that has to join
    with an id gets one at once."""
    check_name(request.group_id)
    timeout_ms = request.session_timeout_ms
    joining = Joining(
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(each.name, each.metadata) for each in request.protocols),
        session_timeout_ms=timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if request.rebalance_timeout_ms > 0 else timeout_ms
        ),
        client_id=call.client_id or "",
        client_host=call.client_host,
        user="" if call.principal == ANONYMOUS else call.principal,
        instance_id=request.group_instance_id,
    )
    gives_id = not call.kafka or call.version >= FIRST_VERSION_THAT_GIVES_IDS
    answer = services.groups.join(request.group_id, request.member_id, joining, gives_id=gives_id)

    def make() -> JoinGroupResponse:
        joined = _outcome(answer)
        if isinstance(joined, IdGiven):
            return JoinGroupResponse(error_code=MemberIdRequired.code, member_id=joined.member_id)
        assert isinstance(joined, Joined)
        return JoinGroupResponse(
            generation_id=joined.generation,
            protocol_name=joined.protocol,
            leader=joined.leader,
            member_id=joined.member_id,
            members=[
                JoinGroupMember(
                    member_id=member_id, group_instance_id=instance_id, metadata=metadata
                )
                for member_id, instance_id, metadata in joined.members
            ],
        )

    return PendingAnswer(answer, make, may_hurry=True, is_waiting=True)


@handles(SYNC_GROUP)
def sync(services: Services, request: SyncGroupRequest, call: Call) -> PendingAnswer:
    """Answer when the group leader has sent the assignments."""
    check_name(request.group_id)
    answer: Answer = services.groups.sync(
        request.group_id,
        request.member_id,
        request.generation_id,
        {each.member_id: each.assignment for each in request.assignments},
        request.group_instance_id,
    )

    def make() -> SyncGroupResponse:
        synced = _outcome(answer)
        assert isinstance(synced, Synced)
        return SyncGroupResponse(assignment=synced.assignment)

    return PendingAnswer(answer, make, may_hurry=True, is_waiting=True)


def _outcome(answer: Answer) -> IdGiven | Joined | Synced:
    outcome = answer.result()
    if outcome is None:
        raise NotCoordinator("the connection ended before the other members had come")
    if isinstance(outcome, Refused):
        raise outcome.error(outcome.why)
    return outcome


@handles(HEARTBEAT)
def heartbeat(services: Services, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    check_name(request.group_id)
    services.groups.heartbeat(
        request.group_id, request.member_id, request.generation_id, request.group_instance_id
    )
    return HeartbeatResponse()


@handles(LEAVE_GROUP)
def leave(
    services: Services, request: LeaveGroupRequest, call: Call
) -> LeaveGroupResponse | PendingAnswer:
    """Remove the members that the request names."""
    check_name(request.group_id)
    if call.version >= FIRST_VERSION_OF_MANY:
        return in_turns(services.work, _leaving(services, request))
    services.groups.leave(request.group_id, request.member_id)
    return LeaveGroupResponse()


def _leaving(services: Services, request: LeaveGroupRequest) -> Pieces[LeaveGroupResponse]:
    left: list[LeftMember] = []
    for member in request.members:
        left.append(_left(services, request.group_id, member))
        yield
    return LeaveGroupResponse(members=left)


def _left(services: Services, group_id: str, member: LeavingMember) -> LeftMember:
    left = LeftMember(member_id=member.member_id, group_instance_id=member.group_instance_id)
    try:
        services.groups.leave(group_id, member.member_id, member.group_instance_id)
    except Exception as error:
        left.error_code, _ = services.outcomes.of(error, api="leave-group")
    return left
