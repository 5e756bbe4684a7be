"""list-groups: all consumer groups."""

from typing import Final

from ...limits import MAX_LISTED
from ..schema import Api, array, int16, int32, message, string


@message
class ListGroupsRequest:
    pass


@message
class ListedGroup:
    group_id: str = string(doc="Name of the group.")
    protocol_type: str = string(
        default="", doc="What kind of group it is; empty when it only has positions."
    )


@message
class ListGroupsResponse:
    throttle_time_ms: int = int32(since=1, default=0, doc="How long the client is not listened to.")
    error_code: int = int16(default=0, doc="Always 0.")
    groups: list[ListedGroup] = array(
        ListedGroup,
        max_items=MAX_LISTED,
        doc=f"At most {MAX_LISTED}: those with members first, then by name.",
    )


LIST_GROUPS: Final = Api(
    key=16,
    name="list-groups",
    min_version=0,
    max_version=2,
    native_max_version=-1,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    doc="The groups that have members or positions.",
)
