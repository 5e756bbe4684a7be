"""sync-group: get a member's assignment; the group's leader sends the assignments of all
members."""

from typing import Final

from ...limits import MAX_MEMBERS
from ..rights import whole
from ..schema import Api, ServedBy, array, data, int16, int32, message, nullable_string, string
from ..security.acl_terms import Operation, ResourceType


@message
class SyncGroupAssignment:
    member_id: str = string(doc="Id of the member.")
    assignment: bytes = data(doc="Assignment of the member, in a format of the clients.")


@message
class SyncGroupRequest:
    group_id: str = string(doc="Name of the group.")
    generation_id: int = int32(doc="Number of the generation, as in the answer to join-group.")
    member_id: str = string(doc="Id of the member.")
    group_instance_id: str | None = nullable_string(
        since=3,
        native_since=0,
        default=None,
        doc="`group.instance.id` of a static member; null for a dynamic one.",
    )
    assignments: list[SyncGroupAssignment] = array(
        SyncGroupAssignment,
        max_items=MAX_MEMBERS,
        doc="The assignments, from the leader of the group; empty from the others.",
    )


@message
class SyncGroupResponse:
    throttle_time_ms: int = int32(
        since=1, default=0, doc="How long the client is throttled, in ms."
    )
    error_code: int = int16(default=0, doc="0 if there is an assignment.")
    assignment: bytes = data(default=b"", doc="Assignment of this member.")


SYNC_GROUP: Final = Api(
    key=14,
    name="sync-group",
    min_version=0,
    max_version=3,
    native_max_version=0,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
    doc="Get the assignment of a member. The answer comes after the leader of the group has "
    "sent all assignments.",
    rights=(whole(Operation.READ, ResourceType.GROUP),),
    served_by=ServedBy.COORDINATOR,
)
