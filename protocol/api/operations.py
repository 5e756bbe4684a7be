"""The operations that a client may perform on a resource, as a number with one bit per
operation."""

from collections.abc import Iterable
from typing import Final

from .security.acl_terms import Operation

NOT_ASKED: Final = -(2**31)
"""The number in an answer when the client did not ask for the operations."""

GROUP_OPERATIONS: Final = (Operation.READ, Operation.DELETE, Operation.DESCRIBE)
"""Operations that Kafka's ACLs have for a group."""

CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
"""Operations that Kafka's ACLs have for the cluster."""


def bits(operations: Iterable[Operation]) -> int:
    """Return the number for these operations."""
    return sum(1 << operation for operation in operations)
