"""join-group: become, or stay, a member of a consumer group."""

from typing import Final

from ...limits import MAX_GROUP_PROTOCOLS, MAX_MEMBERS
from ..rights import whole
from ..schema import Api, ServedBy, array, data, int16, int32, message, nullable_string, string
from ..security.acl_terms import Operation, ResourceType


@message
class JoinGroupProtocol:
    name: str = string(doc="Name of a way to assign partitions, such as `range`.")
    metadata: bytes = data(
        doc="Metadata of this member, which the leader of the group needs for that."
    )


@message
class JoinGroupRequest:
    group_id: str = string(doc="Name of the group.")
    session_timeout_ms: int = int32(doc="A member that sends nothing for this long is removed.")
    rebalance_timeout_ms: int = int32(
        since=1,
        native_since=0,
        default=-1,
        doc="How long a member may take to join again in a rebalance; -1: the session timeout.",
    )
    member_id: str = string(
        doc="Id of the member, as the broker assigned it; empty in the first request."
    )
    group_instance_id: str | None = nullable_string(
        since=5,
        native_since=0,
        default=None,
        doc="`group.instance.id` of a static member, whose membership survives a restart "
        "within the session timeout; null for a dynamic member.",
    )
    protocol_type: str = string(doc="Protocol type of the group, such as `consumer`.")
    protocols: list[JoinGroupProtocol] = array(
        JoinGroupProtocol,
        max_items=MAX_GROUP_PROTOCOLS,
        doc="The protocols that the member supports, the preferred one first.",
    )


@message
class JoinGroupMember:
    member_id: str = string(doc="Id of the member.")
    group_instance_id: str | None = nullable_string(
        since=5,
        native_since=0,
        default=None,
        doc="`group.instance.id` of a static member; null for a dynamic one.",
    )
    metadata: bytes = data(doc="Metadata that the member sent for the chosen protocol.")


@message
class JoinGroupResponse:
    throttle_time_ms: int = int32(
        since=2, default=0, doc="How long the client is throttled, in ms."
    )
    error_code: int = int16(
        default=0,
        doc="0 if the member is in the generation. From version 4 on 79 for the first request "
        "of a dynamic member, which then joins again with the `member_id` of this answer.",
    )
    generation_id: int = int32(default=-1, doc="Number of the generation; it only grows.")
    protocol_name: str = string(default="", doc="The chosen protocol.")
    leader: str = string(
        default="", doc="Id of the member that leads the group and assigns the partitions."
    )
    member_id: str = string(default="", doc="Id of this member.")
    members: list[JoinGroupMember] = array(
        JoinGroupMember,
        max_items=MAX_MEMBERS,
        default=(),
        doc="All members, in the answer to the leader of the group; empty for the others.",
    )


JOIN_GROUP: Final = Api(
    key=11,
    name="join-group",
    min_version=0,
    max_version=5,
    native_max_version=0,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    doc="Join a group. The answer comes when the generation is complete.",
    rights=(whole(Operation.READ, ResourceType.GROUP),),
    served_by=ServedBy.COORDINATOR,
)
