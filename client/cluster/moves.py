"""Which answers say that another broker is in charge now."""

from collections.abc import Iterator
from typing import Any, Final

from ...protocol.cluster_errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    NotController,
    NotEnoughReplicas,
    NotLeader,
    OffsetNotAvailable,
    ReplicaNotAvailable,
    UnknownLeaderEpoch,
)
from ...protocol.errors import (
    CodedError,
    LeaderNotAvailable,
    NotCoordinator,
    StorageError,
    UnknownTopicOrPartition,
    error_from_code,
)
from .targets import CoordinatorNode, PartitionLeader, Some, Target

MOVED: Final = (
    LeaderNotAvailable,
    NotLeader,
    ReplicaNotAvailable,
    StorageError,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    OffsetNotAvailable,
)
"""Errors of a partition after which its leader is looked for again."""

_LEADER_CODES: Final = frozenset(
    (UnknownTopicOrPartition.code, NotEnoughReplicas.code, *(error.code for error in MOVED))
)
_COORDINATOR_CODES: Final = frozenset(
    (CoordinatorLoading.code, CoordinatorNotAvailable.code, NotCoordinator.code)
)
_CONTROLLER_CODES: Final = frozenset((NotController.code,))

NOT_IN_CHARGE: Final = (NotLeader, FencedLeaderEpoch, NotCoordinator, NotController)
"""Errors of a broker that led all partitions and follows now."""

NOT_READABLE: Final = (*NOT_IN_CHARGE, ReplicaNotAvailable, OffsetNotAvailable, StorageError)
"""Errors of a broker from which nothing can be read now, while another one may have it."""


def moved(answer: Any, to: Target) -> CodedError | None:
    """The error that says that the wrong broker was asked, or that it is not ready."""
    match to:
        case PartitionLeader():
            wrong = _LEADER_CODES
        case CoordinatorNode():
            wrong = _COORDINATOR_CODES
        case Some.CONTROLLER:
            wrong = _CONTROLLER_CODES
        case _:
            return None
    return first_error(answer, wrong)


def codes_of(errors: tuple[type[CodedError], ...]) -> frozenset[int]:
    """For `first_error`."""
    return frozenset(error.code for error in errors)


def first_error(answer: Any, wanted: frozenset[int]) -> CodedError | None:
    """The first of these errors in an answer, or in a list of them."""
    for response in answer if isinstance(answer, list) else [answer]:
        for code in _codes(response):
            if code in wanted:
                return error_from_code(code)
    return None


def _codes(response: Any) -> Iterator[int]:
    """Every error code in a response."""
    yield getattr(response, "error_code", 0)
    for name in ("topics", "groups", "responses", "results"):
        for item in getattr(response, name, ()):
            yield getattr(item, "error_code", 0)
            for partition in getattr(item, "partitions", ()):
                yield partition.error_code
