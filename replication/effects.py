"""What the state machines want done. The driver does it, and reports what came of it as an event.

An effect that cannot be done (etcd not to be reached, a connection gone) may be dropped: everything
is wanted again after `answer_within_s`.
"""

from collections.abc import Hashable
from enum import Enum
from typing import NamedTuple

from .cluster_state import ClusterState, MemberInfo
from .messages import FromFollower, FromLeader
from .partition_log import Partition

Connection = Hashable
Token = Hashable
"""Whatever the driver calls a client's request by."""


class Connect(NamedTuple):
    """Open a connection to a broker; then `Node.connected`."""

    broker_id: int


class Close(NamedTuple):
    """Close a connection; nothing that still comes from it is to be delivered."""

    connection: Connection


class Send(NamedTuple):
    """Send a message."""

    connection: Connection
    message: FromFollower | FromLeader


class SyncLog(NamedTuple):
    """Sync a log up to its end; then `Node.synced`."""

    partition: Partition


class Remind(NamedTuple):
    """Call `Node.reminded` a few milliseconds from now, once however often it was wanted."""


class Outcome(Enum):
    """Result of a client's request; one that failed has an error code of Kafka."""

    DONE = "done"
    NOT_LEADER = "NOT_LEADER_FOR_PARTITION"
    NOT_ENOUGH_REPLICAS = "NOT_ENOUGH_REPLICAS"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class Answer(NamedTuple):
    """Answer a client."""

    token: Token
    outcome: Outcome


class ReadCluster(NamedTuple):
    """Read everything, linearizably; then `Node.cluster_read`."""


class GrantLease(NamedTuple):
    """Get a new lease; then `Node.lease_granted` with the time of asking."""

    asked_s: float


class RenewLease(NamedTuple):
    """Renew a lease; then `Node.lease_renewed` with the time of asking, or `Node.lease_lost`."""

    lease_id: int
    asked_s: float


class RevokeLease(NamedTuple):
    """End a lease; what comes of it is of no interest."""

    lease_id: int


class Register(NamedTuple):
    """Put `members/ID` on a lease."""

    lease_id: int
    info: MemberInfo


class Transact(NamedTuple):
    """Put `state` if it has `state_revision`; then `Node.cluster_read`, whatever the outcome."""

    state_revision: int
    state: ClusterState
    lead_on_lease: int | None = None
    """Put `leader` too, on this lease, if it has `leader_revision` still."""
    leader_revision: int = 0


Effect = (
    Connect
    | Close
    | Send
    | SyncLog
    | Remind
    | Answer
    | ReadCluster
    | GrantLease
    | RenewLease
    | RevokeLease
    | Register
    | Transact
)
