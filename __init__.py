"""Horolog: the log that knows what time it is.

The public names are loaded when they are first used, so that `import horolog` costs next to
nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import blocking
    from .client.administer.admin import Admin
    from .client.consume.consumer import Consumer
    from .client.consume.time_window import TimeWindow
    from .client.errors import ClientClosed, ConnectionFailed, PartlySent
    from .client.produce.producer import Producer
    from .client.results import (
        AfterEnd,
        ClusterDescription,
        ColumnBatch,
        CommittedPosition,
        ConsumerRecord,
        Found,
        LogDir,
        NoTimestamps,
        OffsetAt,
        PartitionSize,
        SentBatch,
        SentRange,
        SentRecord,
        TimeCount,
        TimeCounts,
        TopicDescription,
        TopicSetting,
        TopicSummary,
    )
    from .client.security.errors import SecurityError, TlsFailed
    from .client.security.secret import SecretCommand, SecretFile, SecretVariable
    from .client.security.security import Mechanism, Security
    from .protocol.api.framing import ProtocolError
    from .protocol.api.log.list_offsets import EARLIEST, LARGEST, LATEST
    from .protocol.cluster_errors import (
        CoordinatorLoading,
        CoordinatorNotAvailable,
        FencedLeaderEpoch,
        InconsistentClusterId,
        NotController,
        NotEnoughReplicas,
        NotEnoughReplicasAfterAppend,
        NotLeader,
        OffsetNotAvailable,
        ReplicaNotAvailable,
        ThrottlingQuotaExceeded,
        UnknownLeaderEpoch,
        UnknownProducerId,
    )
    from .protocol.errors import (
        ClusterAuthorizationFailed,
        CodedError,
        CorruptMessage,
        DuplicateResource,
        DuplicateSequenceNumber,
        GroupAuthorizationFailed,
        GroupIdNotFound,
        GroupMaxSizeReached,
        HorologError,
        IllegalGeneration,
        IllegalSaslState,
        InconsistentGroupProtocol,
        InvalidCommitOffsetSize,
        InvalidConfig,
        InvalidGroupId,
        InvalidPartitions,
        InvalidProducerEpoch,
        InvalidRecord,
        InvalidReplicaAssignment,
        InvalidReplicationFactor,
        InvalidRequest,
        InvalidRequiredAcks,
        InvalidSessionTimeout,
        InvalidTimestamp,
        InvalidTopic,
        LeaderNotAvailable,
        MessageTooLarge,
        NonEmptyGroup,
        NotCoordinator,
        OffsetMetadataTooLarge,
        OffsetOutOfRange,
        OutOfOrderSequenceNumber,
        PolicyViolation,
        RebalanceInProgress,
        RecordListTooLarge,
        RequestTimedOut,
        ResourceNotFound,
        SaslAuthenticationFailed,
        StorageError,
        TopicAlreadyExists,
        TopicAuthorizationFailed,
        UnacceptableCredential,
        UnknownFetchSession,
        UnknownMemberId,
        UnknownServerError,
        UnknownTopicOrPartition,
        UnsupportedForMessageFormat,
        UnsupportedSaslMechanism,
        UnsupportedVersion,
    )
    from .protocol.lag import Lag
    from .protocol.records.binary import BinaryColumn
    from .protocol.records.layout import TimestampType
    from .protocol.records.messages.sets import NewRecord
    from .times import TimeError

__version__ = "0.1.0"


__all__ = [
    "EARLIEST",
    "LARGEST",
    "LATEST",
    "Admin",
    "AfterEnd",
    "BinaryColumn",
    "ClientClosed",
    "ClusterAuthorizationFailed",
    "ClusterDescription",
    "CodedError",
    "ColumnBatch",
    "CommittedPosition",
    "ConnectionFailed",
    "Consumer",
    "ConsumerRecord",
    "CoordinatorLoading",
    "CoordinatorNotAvailable",
    "CorruptMessage",
    "DuplicateResource",
    "DuplicateSequenceNumber",
    "FencedLeaderEpoch",
    "Found",
    "GroupAuthorizationFailed",
    "GroupIdNotFound",
    "GroupMaxSizeReached",
    "HorologError",
    "IllegalGeneration",
    "IllegalSaslState",
    "InconsistentClusterId",
    "InconsistentGroupProtocol",
    "InvalidCommitOffsetSize",
    "InvalidConfig",
    "InvalidGroupId",
    "InvalidPartitions",
    "InvalidProducerEpoch",
    "InvalidRecord",
    "InvalidReplicaAssignment",
    "InvalidReplicationFactor",
    "InvalidRequest",
    "InvalidRequiredAcks",
    "InvalidSessionTimeout",
    "InvalidTimestamp",
    "InvalidTopic",
    "Lag",
    "LeaderNotAvailable",
    "LogDir",
    "Mechanism",
    "MessageTooLarge",
    "NewRecord",
    "NoTimestamps",
    "NonEmptyGroup",
    "NotController",
    "NotCoordinator",
    "NotEnoughReplicas",
    "NotEnoughReplicasAfterAppend",
    "NotLeader",
    "OffsetAt",
    "OffsetMetadataTooLarge",
    "OffsetNotAvailable",
    "OffsetOutOfRange",
    "OutOfOrderSequenceNumber",
    "PartitionSize",
    "PartlySent",
    "PolicyViolation",
    "Producer",
    "ProtocolError",
    "RebalanceInProgress",
    "RecordListTooLarge",
    "ReplicaNotAvailable",
    "RequestTimedOut",
    "ResourceNotFound",
    "SaslAuthenticationFailed",
    "SecretCommand",
    "SecretFile",
    "SecretVariable",
    "Security",
    "SecurityError",
    "SentBatch",
    "SentRange",
    "SentRecord",
    "StorageError",
    "ThrottlingQuotaExceeded",
    "TimeCount",
    "TimeCounts",
    "TimeError",
    "TimeWindow",
    "TimestampType",
    "TlsFailed",
    "TopicAlreadyExists",
    "TopicAuthorizationFailed",
    "TopicDescription",
    "TopicSetting",
    "TopicSummary",
    "UnacceptableCredential",
    "UnknownFetchSession",
    "UnknownLeaderEpoch",
    "UnknownMemberId",
    "UnknownProducerId",
    "UnknownServerError",
    "UnknownTopicOrPartition",
    "UnsupportedForMessageFormat",
    "UnsupportedSaslMechanism",
    "UnsupportedVersion",
    "blocking",
]

_HOMES = {
    ".client.administer.admin": ("Admin",),
    ".client.consume.consumer": ("Consumer",),
    ".client.consume.time_window": ("TimeWindow",),
    ".client.errors": ("ClientClosed", "ConnectionFailed", "PartlySent"),
    ".client.produce.producer": ("Producer",),
    ".client.results": (
        "AfterEnd",
        "ClusterDescription",
        "ColumnBatch",
        "CommittedPosition",
        "ConsumerRecord",
        "Found",
        "LogDir",
        "NoTimestamps",
        "OffsetAt",
        "PartitionSize",
        "SentBatch",
        "SentRange",
        "SentRecord",
        "TimeCount",
        "TimeCounts",
        "TopicDescription",
        "TopicSetting",
        "TopicSummary",
    ),
    ".client.security.errors": ("SecurityError", "TlsFailed"),
    ".client.security.secret": ("SecretCommand", "SecretFile", "SecretVariable"),
    ".client.security.security": ("Mechanism", "Security"),
    ".protocol.api.framing": ("ProtocolError",),
    ".protocol.api.log.list_offsets": ("EARLIEST", "LARGEST", "LATEST"),
    ".protocol.cluster_errors": (
        "CoordinatorLoading",
        "CoordinatorNotAvailable",
        "FencedLeaderEpoch",
        "InconsistentClusterId",
        "NotController",
        "NotEnoughReplicas",
        "NotEnoughReplicasAfterAppend",
        "NotLeader",
        "OffsetNotAvailable",
        "ReplicaNotAvailable",
        "ThrottlingQuotaExceeded",
        "UnknownLeaderEpoch",
        "UnknownProducerId",
    ),
    ".protocol.lag": ("Lag",),
    ".protocol.records.binary": ("BinaryColumn",),
    ".protocol.records.layout": ("TimestampType",),
    ".protocol.records.messages.sets": ("NewRecord",),
    ".times": ("TimeError",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from its module. Those not listed above are the error classes."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "blocking":
        return import_module(".blocking", __name__)
    value = getattr(import_module(_MODULES.get(name, ".protocol.errors"), __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
