"""Effects: what the state machines want done. The driver carries them out and reports the results
as events.

The driver may drop an effect that it cannot carry out (etcd unreachable, connection closed): each
is requested again after `answer_within_s`.
"""

from collections.abc import Hashable
from enum import Enum
from typing import NamedTuple

from .cluster_state import ClusterState, MemberInfo
from .messages import FromFollower, FromLeader
from .partition_log import Partition

Connection = Hashable
Token = Hashable
"""The driver's handle for a waiting client request."""


class Connect(NamedTuple):
    """Open a connection to a broker, then call `Node.connected`."""

    broker_id: int


class Close(NamedTuple):
    """Close a connection. Messages that still arrive on it must not be delivered."""

    connection: Connection


class Send(NamedTuple):
    """Send a message on a connection."""

    connection: Connection
    message: FromFollower | FromLeader


class SyncLog(NamedTuple):
    """Sync a log up to its end, then call `Node.synced`."""

    partition: Partition


class Remind(NamedTuple):
    """Call `Node.reminded` once, a few milliseconds from now, however often this effect was
    requested."""


class Outcome(Enum):
    """Result of a client's request. The value of a failure is the name of Kafka's error code."""

    DONE = "done"
    NOT_LEADER = "NOT_LEADER_FOR_PARTITION"
    NOT_ENOUGH_REPLICAS = "NOT_ENOUGH_REPLICAS"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class Answer(NamedTuple):
    """Answer a client's request."""

    token: Token
    outcome: Outcome


class ReadCluster(NamedTuple):
    """Read the whole cluster state from etcd, linearizably, then call `Node.cluster_read`."""


class GrantLease(NamedTuple):
    """Get a new lease, then call `Node.lease_granted` with the time of the request."""

    asked_s: float


class RenewLease(NamedTuple):
    """Renew a lease, then call `Node.lease_renewed` with the time of the request, or
    `Node.lease_lost`."""

    lease_id: int
    asked_s: float


class RevokeLease(NamedTuple):
    """Revoke a lease; the result is not reported."""

    lease_id: int


class Register(NamedTuple):
    """Put the key `members/ID` on a lease."""

    lease_id: int
    info: MemberInfo


class Transact(NamedTuple):
    """Put the key `state` if it is still at `state_revision`, then call `Node.cluster_read`
    whatever the outcome."""

    state_revision: int
    state: ClusterState
    lead_on_lease: int | None = None
    """Also put the key `leader` on this lease, if that key is still at `leader_revision`."""
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
