"""join-group: become, or stay, a member of a consumer group."""

from typing import Final

from ...limits import MAX_GROUP_PROTOCOLS, MAX_MEMBERS
from ..rights import whole
from ..schema import Api, ServedBy, array, data, int16, int32, message, nullable_string, string
from ..security.acl_terms import Operation, ResourceType


@message
class JoinGroupProtocol:
    name: str = string(doc="A way to share out the work, such as `range`.")
    metadata: bytes = data(doc="What the leader has to know of this member for that.")


@message
class JoinGroupRequest:
    group_id: str = string(doc="Name of the group.")
    session_timeout_ms: int = int32(doc="A member is lost when it is silent for so long.")
    rebalance_timeout_ms: int = int32(
        since=1,
        native_since=0,
        default=-1,
        doc="How long it may take to join again in a rebalance; -1: the session timeout.",
    )
    member_id: str = string(doc="As the broker gave it; empty in the first request.")
    group_instance_id: str | None = nullable_string(
        since=5,
        native_since=0,
        default=None,
        doc="`group.instance.id` of a static member, which a restart within the session timeout "
        "does not end; null for a dynamic one.",
    )
    protocol_type: str = string(doc="What kind of group it is, such as `consumer`.")
    protocols: list[JoinGroupProtocol] = array(
        JoinGroupProtocol,
        max_items=MAX_GROUP_PROTOCOLS,
        doc="The protocols the member knows, the one it likes best first.",
    )


@message
class JoinGroupMember:
    member_id: str = string(doc="Member.")
    group_instance_id: str | None = nullable_string(
        since=5,
        native_since=0,
        default=None,
        doc="`group.instance.id` of a static member; null for a dynamic one.",
    )
    metadata: bytes = data(doc="What it sent with the protocol that was chosen.")


@message
class JoinGroupResponse:
    throttle_time_ms: int = int32(since=2, default=0, doc="How long the client is not listened to.")
    error_code: int = int16(
        default=0,
        doc="0 when the member is in the generation. From version 4 on 79 for the first request of "
        "a dynamic member: it joins again with the `member_id` of this answer.",
    )
    generation_id: int = int32(default=-1, doc="Number of the generation; it only rises.")
    protocol_name: str = string(default="", doc="The protocol that was chosen.")
    leader: str = string(default="", doc="The member that shares out the work.")
    member_id: str = string(default="", doc="This member.")
    members: list[JoinGroupMember] = array(
        JoinGroupMember,
        max_items=MAX_MEMBERS,
        default=(),
        doc="All members, for the leader; empty for the others.",
    )


JOIN_GROUP: Final = Api(
    key=11,
    name="join-group",
    min_version=0,
    max_version=5,
    native_max_version=0,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    doc="Join a group; answered when the generation is complete.",
    rights=(whole(Operation.READ, ResourceType.GROUP),),
    served_by=ServedBy.COORDINATOR,
)
