"""describe-groups: the state and the members of consumer groups."""

from typing import Final

from ...limits import MAX_GROUPS, MAX_MEMBERS
from ..rights import NOT_ASKED, each
from ..schema import (
    Api,
    ServedBy,
    Text,
    array,
    boolean,
    data,
    error_text,
    int16,
    int32,
    message,
    nullable_string,
    string,
)
from ..security.acl_terms import Operation, ResourceType


@message
class DescribeGroupsRequest:
    groups: list[str] = array(Text(), max_items=MAX_GROUPS, doc="Names of groups.")
    include_authorized_operations: bool = boolean(
        since=3,
        default=False,
        doc="Whether the answer says which operations the client may do on each group.",
    )


@message
class DescribedGroupMember:
    member_id: str = string(doc="Id of the member.")
    group_instance_id: str | None = nullable_string(
        since=4,
        native_since=0,
        default=None,
        doc="`group.instance.id` of a static member; null for a dynamic one.",
    )
    client_id: str = string(doc="Client id.")
    client_host: str = string(doc="Address of the client.")
    member_metadata: bytes = data(
        default=b"", doc="Metadata that the member sent for the chosen protocol."
    )
    member_assignment: bytes = data(default=b"", doc="Assignment of the member.")


@message
class DescribedGroup:
    error_code: int = int16(default=0, doc="0, also for a group that does not exist.")
    group_id: str = string(doc="Name of the group.")
    group_state: str = string(
        default="",
        doc="`Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable`; `Dead` when there is "
        "no such group.",
    )
    protocol_type: str = string(default="", doc="Protocol type of the group, such as `consumer`.")
    protocol_data: str = string(default="", doc="The chosen protocol, in `Stable`.")
    members: list[DescribedGroupMember] = array(
        DescribedGroupMember, max_items=MAX_MEMBERS, default=(), doc="Its members."
    )
    authorized_operations: int = int32(
        since=3,
        default=NOT_ASKED,
        doc="The allowed operations: one bit for each ACL operation of Kafka. -2^31 if not "
        "requested.",
    )
    error_message: str | None = error_text(native=True, default=None)


@message
class DescribeGroupsResponse:
    throttle_time_ms: int = int32(
        since=1, default=0, doc="How long the client is throttled, in ms."
    )
    groups: list[DescribedGroup] = array(DescribedGroup, max_items=MAX_GROUPS)


DESCRIBE_GROUPS: Final = Api(
    key=15,
    name="describe-groups",
    min_version=0,
    max_version=4,
    native_max_version=0,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
    doc="Describe the state and the members of groups.",
    rights=(each(Operation.DESCRIBE, ResourceType.GROUP),),
    served_by=ServedBy.COORDINATOR,
)
