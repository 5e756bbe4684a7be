"""Errors that a Kafka cluster of several brokers answers to clients, beside those of `errors`.

A Horolog broker that is alone sends `NotEnoughReplicas` at most.
"""

from .errors import CodedError


class NotLeader(CodedError, code=6, name="NOT_LEADER_OR_FOLLOWER", retriable=True):
    """Another broker leads the partition now; nothing was done, or it is not known of messages that
    waited for followers whether they stay."""


class ReplicaNotAvailable(CodedError, code=9, name="REPLICA_NOT_AVAILABLE", retriable=True):
    """This copy of the partition cannot answer now; the leader can."""


class CoordinatorLoading(CodedError, code=14, name="COORDINATOR_LOAD_IN_PROGRESS", retriable=True):
    """The broker has just begun to look after the group, and still reads its positions."""


class CoordinatorNotAvailable(
    CodedError, code=15, name="COORDINATOR_NOT_AVAILABLE", retriable=True
):
    """No broker looks after the group yet, or too few are in sync to store positions."""


class NotEnoughReplicas(CodedError, code=19, name="NOT_ENOUGH_REPLICAS", retriable=True):
    """Fewer brokers are in sync than `min.insync.replicas` asks for; nothing was appended."""


class NotEnoughReplicasAfterAppend(
    CodedError, code=20, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND", retriable=True
):
    """It was appended, and then fewer brokers were in sync than `min.insync.replicas` asks for."""


class NotController(CodedError, code=41, name="NOT_CONTROLLER", retriable=True):
    """Another broker leads the cluster now; nothing was done."""


class UnknownProducerId(CodedError, code=59, name="UNKNOWN_PRODUCER_ID"):
    """The broker has forgotten the producer, with the messages that it sent."""


class FencedLeaderEpoch(CodedError, code=74, name="FENCED_LEADER_EPOCH", retriable=True):
    """The leader has changed since the client asked who it is."""


class UnknownLeaderEpoch(CodedError, code=75, name="UNKNOWN_LEADER_EPOCH", retriable=True):
    """The leader has changed, and the broker does not know the new epoch yet."""


class OffsetNotAvailable(CodedError, code=78, name="OFFSET_NOT_AVAILABLE", retriable=True):
    """The new leader does not know the end of the partition yet."""


class ThrottlingQuotaExceeded(
    CodedError, code=89, name="THROTTLING_QUOTA_EXCEEDED", retriable=True
):
    """The client changes more than its quota allows."""


class InconsistentClusterId(CodedError, code=104, name="INCONSISTENT_CLUSTER_ID"):
    """The data of the broker is that of another cluster."""
