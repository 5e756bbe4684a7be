"""heartbeat: a member reports that it is alive, and learns of rebalances."""

from typing import Final

from ..rights import whole
from ..schema import Api, ServedBy, int16, int32, message, nullable_string, string
from ..security.acl_terms import Operation, ResourceType


@message
class HeartbeatRequest:
    group_id: str = string(doc="Name of the group.")
    generation_id: int = int32(doc="Generation of the member.")
    member_id: str = string(doc="Id of the member.")
    group_instance_id: str | None = nullable_string(
        since=3,
        native_since=0,
        default=None,
        doc="`group.instance.id` of a static member; null for a dynamic one.",
    )


@message
class HeartbeatResponse:
    throttle_time_ms: int = int32(
        since=1, default=0, doc="How long the client is throttled, in ms."
    )
    error_code: int = int16(
        default=0,
        doc="27 if the member has to join again; 82 if a later member has its instance id.",
    )


HEARTBEAT: Final = Api(
    key=12,
    name="heartbeat",
    min_version=0,
    max_version=3,
    native_max_version=0,
    request=HeartbeatRequest,
    response=HeartbeatResponse,
    doc="Keep the membership in a group.",
    rights=(whole(Operation.READ, ResourceType.GROUP),),
    served_by=ServedBy.COORDINATOR,
)
