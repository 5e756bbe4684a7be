"""find-coordinator: find the broker that coordinates a group."""

from typing import Final

from ..rights import whole
from ..schema import Api, ServedBy, error_text, int8, int16, int32, message, string
from ..security.acl_terms import Operation, ResourceType

GROUP: Final = 0
TRANSACTION: Final = 1


@message
class FindCoordinatorRequest:
    key: str = string(doc="Name of the group.")
    key_type: int = int8(since=1, default=GROUP, doc="0: a group; 1: a transactional id.")


@message
class FindCoordinatorResponse:
    throttle_time_ms: int = int32(
        since=1, default=0, doc="How long the client is throttled, in ms."
    )
    error_code: int = int16(default=0, doc="0 if there is a coordinator.")
    error_message: str | None = error_text(since=1, default=None)
    node_id: int = int32(default=-1, doc="Id of the coordinator; -1 if there is none.")
    host: str = string(default="", doc="Its host.")
    port: int = int32(default=-1, doc="Its port.")


FIND_COORDINATOR: Final = Api(
    key=10,
    name="find-coordinator",
    min_version=0,
    max_version=2,
    native_max_version=-1,
    # From version 1 on, clients ask for a transaction coordinator. As that version is not offered,
    # producers with a transactional id fail at once, and say that the broker does not support it.
    offered_max_version=0,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
    doc="Find the coordinator of a group: the leader of the cluster.",
    rights=(whole(Operation.DESCRIBE, ResourceType.GROUP),),
    served_by=ServedBy.ANY_BROKER,
)
