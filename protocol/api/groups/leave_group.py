"""leave-group: stop being a member of a consumer group."""

from typing import Final

from ..schema import Api, int16, int32, message, string


@message
class LeaveGroupRequest:
    group_id: str = string(doc="Name of the group.")
    member_id: str = string(doc="This member.")


@message
class LeaveGroupResponse:
    throttle_time_ms: int = int32(since=1, default=0, doc="How long the client is not listened to.")
    error_code: int = int16(default=0, doc="0 when it is gone.")


LEAVE_GROUP: Final = Api(
    key=13,
    name="leave-group",
    min_version=0,
    max_version=2,
    native_max_version=-1,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    doc="Leave a group, so that the others need not wait until the session is over.",
)
