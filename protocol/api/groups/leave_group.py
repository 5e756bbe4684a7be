"""leave-group: stop being a member of a consumer group."""

from typing import Final

from ...limits import MAX_MEMBERS
from ..rights import whole
from ..schema import Api, ServedBy, array, int16, int32, message, nullable_string, string
from ..security.acl_terms import Operation, ResourceType


@message
class LeavingMember:
    member_id: str = string(doc="Id of the member; may be empty for a static member.")
    group_instance_id: str | None = nullable_string(
        doc="`group.instance.id` of a static member; null for a dynamic one."
    )


@message
class LeaveGroupRequest:
    group_id: str = string(doc="Name of the group.")
    member_id: str = string(until=2, default="", doc="Id of the member.")
    members: list[LeavingMember] = array(
        LeavingMember, max_items=MAX_MEMBERS, since=3, default=(), doc="The members that leave."
    )


@message
class LeftMember:
    member_id: str = string(doc="Id of the member, as in the request.")
    group_instance_id: str | None = nullable_string(doc="`group.instance.id`, as in the request.")
    error_code: int = int16(default=0, doc="0 if the member has left.")


@message
class LeaveGroupResponse:
    throttle_time_ms: int = int32(
        since=1, default=0, doc="How long the client is throttled, in ms."
    )
    error_code: int = int16(
        default=0, doc="0 if the member has left; from version 3 on each member has its own error."
    )
    members: list[LeftMember] = array(
        LeftMember,
        max_items=MAX_MEMBERS,
        since=3,
        default=(),
        doc="The members that the request named.",
    )


LEAVE_GROUP: Final = Api(
    key=13,
    name="leave-group",
    min_version=0,
    max_version=3,
    native_max_version=0,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    doc="Leave a group, or remove members from it, so that the others need not wait for the "
    "end of the session.",
    rights=(whole(Operation.READ, ResourceType.GROUP),),
    served_by=ServedBy.COORDINATOR,
)
