"""delete-groups: delete consumer groups and their committed offsets."""

from typing import Final

from ...limits import MAX_GROUPS
from ..rights import each
from ..schema import Api, ServedBy, Text, array, error_text, int16, int32, message, string
from ..security.acl_terms import Operation, ResourceType


@message
class DeleteGroupsRequest:
    groups_names: list[str] = array(Text(), max_items=MAX_GROUPS, doc="Names of groups.")


@message
class DeletableGroupResult:
    group_id: str = string(doc="Name of the group.")
    error_code: int = int16(default=0, doc="68 while it has members; 69 when there is none.")
    error_message: str | None = error_text(native=True, default=None)


@message
class DeleteGroupsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, max_items=MAX_GROUPS)


DELETE_GROUPS: Final = Api(
    key=42,
    name="delete-groups",
    min_version=0,
    max_version=1,
    native_max_version=0,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
    doc="Delete groups without members, with their positions.",
    rights=(each(Operation.DELETE, ResourceType.GROUP),),
    served_by=ServedBy.COORDINATOR,
    repeatable=False,
)
