"""What a client may do with a resource, as a number in which each operation is one bit."""

from collections.abc import Iterable
from typing import Final

from .security.acl_terms import Operation

NOT_ASKED: Final = -(2**31)
"""Where the client did not ask."""

GROUP_OPERATIONS: Final = (Operation.READ, Operation.DELETE, Operation.DESCRIBE)
"""Operations of Kafka's access rules that apply to a group."""

CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
"""The same of the cluster."""


def bits(operations: Iterable[Operation]) -> int:
    """The number for some operations."""
    return sum(1 << operation for operation in operations)
