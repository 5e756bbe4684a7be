"""list-groups: list all consumer groups."""

from typing import Final

from ...limits import MAX_GROUP_FILTERS, MAX_LISTED
from ..rights import How, Need, Right, When
from ..schema import (
    Api,
    Text,
    array,
    boolean,
    flexible_since,
    int16,
    int32,
    int64,
    message,
    string,
)
from ..security.acl_terms import Operation, ResourceType

CLASSIC: Final = "classic"
"""The type of every group: its members assign the partitions among themselves."""


@flexible_since(3)
@message
class ListGroupsRequest:
    states_filter: list[str] = array(
        Text(),
        max_items=MAX_GROUP_FILTERS,
        since=4,
        default=(),
        doc="Only groups in these states, named as in describe-groups, in any case; empty for all.",
    )
    types_filter: list[str] = array(
        Text(),
        max_items=MAX_GROUP_FILTERS,
        since=5,
        default=(),
        doc=f"Only groups of these types; every group is `{CLASSIC}`. Empty for all.",
    )
    after: str = string(native=True, default="", doc="Only groups with a name after this one.")
    idle_ms: int = int64(
        native=True,
        default=-1,
        doc="Only groups without members, with positions, that were not used for this long; -1 for "
        "all.",
    )


@message
class ListedGroup:
    group_id: str = string(doc="Name of the group.")
    protocol_type: str = string(
        default="", doc="Protocol type of the group; empty if it only has positions."
    )
    group_state: str = string(
        since=4, native_since=0, default="", doc="Its state, as in describe-groups."
    )
    group_type: str = string(since=5, default="", doc=f"`{CLASSIC}`.")
    has_only_positions: bool = boolean(
        native=True,
        default=False,
        doc="True for a name with positions that no client of Kafka's protocol committed.",
    )
    members: int = int32(native=True, default=0, doc="Number of its members.")
    positions: int = int32(native=True, default=0, doc="Number of its positions.")
    moved_ms: int = int64(
        native=True, default=-1, doc="When one of its positions last moved; -1 when it has none."
    )
    used_ms: int = int64(
        native=True,
        default=-1,
        doc="Time of its last commit, or when it last had members; -1 when it has no position.",
    )


@flexible_since(3)
@message
class ListGroupsResponse:
    throttle_time_ms: int = int32(
        since=1, default=0, doc="How long the client is throttled, in ms."
    )
    error_code: int = int16(default=0, doc="Always 0.")
    groups: list[ListedGroup] = array(
        ListedGroup,
        max_items=MAX_LISTED,
        doc=f"At most {MAX_LISTED}: those with members first, then by name. In the native encoding "
        "all of them by name.",
    )
    more: bool = boolean(
        native=True, default=False, doc="True when the list continues after its last group."
    )


LIST_GROUPS: Final = Api(
    key=16,
    name="list-groups",
    min_version=0,
    max_version=5,
    native_max_version=0,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    doc="List the groups that have members or positions.",
    rights=(
        Need(
            (
                Right(Operation.DESCRIBE, ResourceType.CLUSTER),
                Right(Operation.DESCRIBE, ResourceType.GROUP),
            ),
            How.LEFT_OUT,
            When.NOT_NAMED,
        ),
    ),
)
