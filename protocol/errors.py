"""The errors: one base, and a table with one class per error code, found by code.

Codes and names are Kafka's, so that both encodings can send them. Each class says when it is
raised; the message of an instance says what was wrong, the value, the allowed range and the
setting to change. Only the server's dispatch turns exceptions into codes.
"""

from typing import ClassVar, Final

NO_ERROR: Final = 0

ERRORS: dict[int, type["CodedError"]] = {}
"""Every error class that has a code, by code. Filled by the classes below; a duplicate code fails
at import."""


class HorologError(Exception):
    """Base of all errors of Horolog, in the broker and in clients."""

    retriable: ClassVar[bool] = False
    """Whether the same call may succeed later without being changed."""

    @property
    def message(self) -> str:
        """The text given at construction, or else the docstring of the class."""
        if self.args:
            return str(self.args[0])
        return " ".join((type(self).__doc__ or type(self).__name__).split())

    def __str__(self) -> str:
        return self.message


class CodedError(HorologError):
    """Base of all errors that have a code in the protocol."""

    code: ClassVar[int]
    name: ClassVar[str]

    def __init_subclass__(cls, *, code: int, name: str, retriable: bool = False) -> None:
        if code in ERRORS:
            raise TypeError(f"error code {code} is taken by {ERRORS[code].name}")
        cls.code = code
        cls.name = name
        cls.retriable = retriable
        ERRORS[code] = cls

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class UnknownServerError(CodedError, code=-1, name="UNKNOWN"):
    """The broker failed unexpectedly; its log has the details."""


class OffsetOutOfRange(CodedError, code=1, name="OFFSET_OUT_OF_RANGE"):
    """The offset is below the log start or above the log end."""


class CorruptMessage(CodedError, code=2, name="CORRUPT_MESSAGE", retriable=True):
    """A message fails its CRC, its sizes are inconsistent, or its compressed content is broken."""


class UnknownTopicOrPartition(
    CodedError, code=3, name="UNKNOWN_TOPIC_OR_PARTITION", retriable=True
):
    """This broker does not have the topic or partition."""


class LeaderNotAvailable(CodedError, code=5, name="LEADER_NOT_AVAILABLE", retriable=True):
    """The partition cannot be served yet, or its topic is being created or changed; try again."""


class NotLeader(CodedError, code=6, name="NOT_LEADER_OR_FOLLOWER", retriable=True):
    """Another broker leads the partition now. Nothing was done, or messages were appended that may
    be lost because they waited for followers."""


class RequestTimedOut(CodedError, code=7, name="REQUEST_TIMED_OUT", retriable=True):
    """A wait, the request's or the broker's own, ended before the request was satisfied."""


class ReplicaNotAvailable(CodedError, code=9, name="REPLICA_NOT_AVAILABLE", retriable=True):
    """This replica of the partition cannot answer now; the leader can."""


class MessageTooLarge(CodedError, code=10, name="MESSAGE_TOO_LARGE"):
    """A message, or its decompressed size, is above the limit."""


class OffsetMetadataTooLarge(CodedError, code=12, name="OFFSET_METADATA_TOO_LARGE"):
    """The text stored with a position is above the limit."""


class CoordinatorLoading(CodedError, code=14, name="COORDINATOR_LOAD_IN_PROGRESS", retriable=True):
    """The broker has just become coordinator of the group, and still reads its positions."""


class CoordinatorNotAvailable(
    CodedError, code=15, name="COORDINATOR_NOT_AVAILABLE", retriable=True
):
    """The group has no coordinator yet, or too few replicas are in sync to store positions."""


class NotCoordinator(CodedError, code=16, name="NOT_COORDINATOR", retriable=True):
    """This broker is not the coordinator of the group, or it stops; find the coordinator again."""


class InvalidTopic(CodedError, code=17, name="INVALID_TOPIC_EXCEPTION"):
    """The topic name is not allowed, or the topic is internal."""


class RecordListTooLarge(CodedError, code=18, name="RECORD_LIST_TOO_LARGE"):
    """The message set is larger than a segment may be."""


class NotEnoughReplicas(CodedError, code=19, name="NOT_ENOUGH_REPLICAS", retriable=True):
    """Fewer replicas are in sync than `min.insync.replicas` requires; nothing was appended."""


class NotEnoughReplicasAfterAppend(
    CodedError, code=20, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND", retriable=True
):
    """The messages were appended, but then fewer replicas were in sync than `min.insync.replicas`
    requires."""


class InvalidRequiredAcks(CodedError, code=21, name="INVALID_REQUIRED_ACKS"):
    """`acks` is not -1, 0 or 1."""


class IllegalGeneration(CodedError, code=22, name="ILLEGAL_GENERATION"):
    """The generation is not the present generation of the group."""


class InconsistentGroupProtocol(CodedError, code=23, name="INCONSISTENT_GROUP_PROTOCOL"):
    """The member's protocol type differs from the group's, or they have no protocol in common."""


class InvalidGroupId(CodedError, code=24, name="INVALID_GROUP_ID"):
    """The name that positions are stored under is empty or too long."""


class UnknownMemberId(CodedError, code=25, name="UNKNOWN_MEMBER_ID"):
    """The group has no such member; the client joins again, without a member id."""


class InvalidSessionTimeout(CodedError, code=26, name="INVALID_SESSION_TIMEOUT"):
    """The session timeout is outside the range that the broker allows."""


class RebalanceInProgress(CodedError, code=27, name="REBALANCE_IN_PROGRESS"):
    """The group rebalances; members have to join again."""


class InvalidCommitOffsetSize(CodedError, code=28, name="INVALID_COMMIT_OFFSET_SIZE"):
    """The number of stored positions, or their memory, is at the operator's limit."""


class TopicAuthorizationFailed(CodedError, code=29, name="TOPIC_AUTHORIZATION_FAILED"):
    """The user has no right to do that to the topic, whether or not it exists (`horolog acl`)."""


class GroupAuthorizationFailed(CodedError, code=30, name="GROUP_AUTHORIZATION_FAILED"):
    """The user has no right to do that to the group, whether or not it exists (`horolog acl`)."""


class ClusterAuthorizationFailed(CodedError, code=31, name="CLUSTER_AUTHORIZATION_FAILED"):
    """The user has no right to do that to the broker as a whole (`horolog acl`)."""


class InvalidTimestamp(CodedError, code=32, name="INVALID_TIMESTAMP"):
    """A message's timestamp is outside the range that the topic accepts."""


class UnsupportedSaslMechanism(CodedError, code=33, name="UNSUPPORTED_SASL_MECHANISM"):
    """The broker does not offer this login mechanism on this port."""


class IllegalSaslState(CodedError, code=34, name="ILLEGAL_SASL_STATE"):
    """The request is not allowed in this state of a login."""


class UnsupportedVersion(CodedError, code=35, name="UNSUPPORTED_VERSION"):
    """The request or its version is unknown, or it needs transactions, which Horolog does not
    have."""


class TopicAlreadyExists(CodedError, code=36, name="TOPIC_ALREADY_EXISTS"):
    """A topic of this name exists."""


class InvalidPartitions(CodedError, code=37, name="INVALID_PARTITIONS"):
    """The number of partitions is not allowed."""


class InvalidReplicationFactor(CodedError, code=38, name="INVALID_REPLICATION_FACTOR"):
    """The replication factor is not 1, or -1 for the default; each broker has all topics."""


class InvalidReplicaAssignment(CodedError, code=39, name="INVALID_REPLICA_ASSIGNMENT"):
    """Partitions are assigned to another broker than this one, or their numbers do not run from 0
    on."""


class InvalidConfig(CodedError, code=40, name="INVALID_CONFIG"):
    """A setting is unknown, or its value is not allowed."""


class NotController(CodedError, code=41, name="NOT_CONTROLLER", retriable=True):
    """Another broker leads the cluster now; nothing was done."""


class InvalidRequest(CodedError, code=42, name="INVALID_REQUEST"):
    """The request is well-formed, but not valid."""


class UnsupportedForMessageFormat(CodedError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
    """The message format, stored or sent, does not allow this request."""


class PolicyViolation(CodedError, code=44, name="POLICY_VIOLATION"):
    """The request is above a limit of the operator, or the cluster does not allow it now."""


class OutOfOrderSequenceNumber(CodedError, code=45, name="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    """The sequence number of a producer's batch does not follow that of the batch before."""


class DuplicateSequenceNumber(CodedError, code=46, name="DUPLICATE_SEQUENCE_NUMBER"):
    """A producer's batch is in the log already, but its offset is no longer known."""


class InvalidProducerEpoch(CodedError, code=47, name="INVALID_PRODUCER_EPOCH"):
    """Another producer uses the producer id now, with a later epoch."""


class SecurityDisabled(CodedError, code=54, name="SECURITY_DISABLED"):
    """Access rules can neither be listed nor changed, because authorization is off."""


class StorageError(CodedError, code=56, name="KAFKA_STORAGE_ERROR", retriable=True):
    """The disk failed, or the requested bytes are damaged."""


class SaslAuthenticationFailed(CodedError, code=58, name="SASL_AUTHENTICATION_FAILED"):
    """The user, the password or the token is not accepted, or the user has too many connections."""


class UnknownProducerId(CodedError, code=59, name="UNKNOWN_PRODUCER_ID"):
    """The broker has no state of the producer any more, because its messages were deleted."""


class NonEmptyGroup(CodedError, code=68, name="NON_EMPTY_GROUP"):
    """The group has members, so it cannot be deleted."""


class GroupIdNotFound(CodedError, code=69, name="GROUP_ID_NOT_FOUND"):
    """The group does not exist."""


class UnknownFetchSession(CodedError, code=70, name="FETCH_SESSION_ID_NOT_FOUND", retriable=True):
    """The broker has no fetch sessions; every fetch has to name all its partitions."""


class FencedLeaderEpoch(CodedError, code=74, name="FENCED_LEADER_EPOCH", retriable=True):
    """The leader has changed since the client read the metadata."""


class UnknownLeaderEpoch(CodedError, code=75, name="UNKNOWN_LEADER_EPOCH", retriable=True):
    """The leader has changed, and the broker does not know the new epoch yet."""


class OffsetNotAvailable(CodedError, code=78, name="OFFSET_NOT_AVAILABLE", retriable=True):
    """The new leader does not know the end of the partition yet."""


class MemberIdRequired(CodedError, code=79, name="MEMBER_ID_REQUIRED"):
    """The client has to join again, with the member id in the answer."""


class GroupMaxSizeReached(CodedError, code=81, name="GROUP_MAX_SIZE_REACHED"):
    """The group has reached the operator's limit of members."""


class FencedInstanceId(CodedError, code=82, name="FENCED_INSTANCE_ID"):
    """A later member joined with the same `group.instance.id`."""


class GroupSubscribedToTopic(CodedError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC"):
    """A member of the group subscribes to the topic, so its positions there cannot be deleted."""


class InvalidRecord(CodedError, code=87, name="INVALID_RECORD"):
    """A message is well-formed, but not allowed on this topic."""


class ThrottlingQuotaExceeded(
    CodedError, code=89, name="THROTTLING_QUOTA_EXCEEDED", retriable=True
):
    """The client changes more than its quota allows."""


class ResourceNotFound(CodedError, code=91, name="RESOURCE_NOT_FOUND"):
    """The user does not exist, or has no password for this mechanism."""


class DuplicateResource(CodedError, code=92, name="DUPLICATE_RESOURCE"):
    """The request names a user twice with the same mechanism."""


class UnacceptableCredential(CodedError, code=93, name="UNACCEPTABLE_CREDENTIAL"):
    """The iterations, name, salt or size of the credential are not allowed, or the limit of users
    is reached."""


class InconsistentClusterId(CodedError, code=104, name="INCONSISTENT_CLUSTER_ID"):
    """The broker's data belongs to another cluster."""


class MismatchedEndpointType(CodedError, code=114, name="MISMATCHED_ENDPOINT_TYPE"):
    """The request is for controllers; this is a broker."""


def error_from_code(code: int, message: str | None = None) -> CodedError:
    """Return the exception for `code`; for a code that is not in the table,
    `UnknownServerError`."""
    known = ERRORS.get(code)
    if known is None:
        return UnknownServerError(message or f"the broker answered error code {code}")
    return known(message) if message else known()
