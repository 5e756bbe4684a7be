"""sync-group: get a member's assignment; the group's leader sends the assignments of all
members."""

from typing import Final

from ...limits import MAX_MEMBERS
from ..rights import whole
from ..schema import Api, ServedBy, array, data, int16, int32, message, nullable_string, string
from ..security.acl_terms import Operation, ResourceType


@message
class SyncGroupAssignment:
    member_id: str = string(doc="Member.")
    assignment: bytes = data(doc="Its share; only clients know what it means.")


@message
class SyncGroupRequest:
    group_id: str = string(doc="Name of the group.")
    generation_id: int = int32(doc="As the answer to join-group said.")
    member_id: str = string(doc="This member.")
    group_instance_id: str | None = nullable_string(
        since=3,
        native_since=0,
        default=None,
        doc="`group.instance.id` of a static member; null for a dynamic one.",
    )
    assignments: list[SyncGroupAssignment] = array(
        SyncGroupAssignment, max_items=MAX_MEMBERS, doc="From the leader; from others empty."
    )


@message
class SyncGroupResponse:
    throttle_time_ms: int = int32(since=1, default=0, doc="How long the client is not listened to.")
    error_code: int = int16(default=0, doc="0 when there is an assignment.")
    assignment: bytes = data(default=b"", doc="This member's share.")


SYNC_GROUP: Final = Api(
    key=14,
    name="sync-group",
    min_version=0,
    max_version=3,
    native_max_version=0,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
    doc="Get this member's share of the work; answered once the leader has brought it.",
    rights=(whole(Operation.READ, ResourceType.GROUP),),
    served_by=ServedBy.COORDINATOR,
)
