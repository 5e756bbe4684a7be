"""Rights that requests need, in the terms of the requests' declarations (`Api.rights`), and the
operations that a client may perform on a resource, as a number.

They are Kafka's where Kafka has the request. `server/rights.py` checks them.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from ...values import value_class
from .security.acl_terms import Operation, ResourceType

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


class How(StrEnum):
    """What the broker does with a request when a right is missing."""

    WHOLE = "the request is refused"
    EACH = "this item is refused, the others are answered"
    LEFT_OUT = "left out of the answer"


class When(StrEnum):
    """When a right is needed."""

    ALWAYS = ""
    NAMED = "named in the request"
    NOT_NAMED = "listed in the answer"
    MADE = "does not exist, and would be created (auto.create.topics.enable)"
    CONSUMER = "replica_id is -1"
    FOLLOWER = "replica_id is not -1"
    OF_TOPIC = "settings of a topic"
    OF_BROKER = "settings of the broker"


@value_class
class Right:
    """An operation on a resource. With `some`, the right to any resource of the type is enough."""

    operation: Operation
    resource_type: ResourceType
    some: bool = False


@value_class
class Need:
    """A need of a request: one of these rights."""

    any_of: tuple[Right, ...]
    how: How
    when: When = When.ALWAYS


def whole(operation: Operation, resource_type: ResourceType) -> Need:
    """Return a need without which the broker refuses the whole request."""
    return Need((Right(operation, resource_type),), How.WHOLE)


def each(operation: Operation, resource_type: ResourceType, when: When = When.ALWAYS) -> Need:
    """Return a need without which the broker refuses one item, and answers for the others."""
    return Need((Right(operation, resource_type),), How.EACH, when)


def left_out(operation: Operation, resource_type: ResourceType) -> Need:
    """Return a need without which a list omits an item."""
    return Need((Right(operation, resource_type),), How.LEFT_OUT, When.NOT_NAMED)


NO_RIGHTS: Final[tuple[Need, ...]] = ()
"""For requests that every client may send."""

CREATES_TOPIC: Final = (
    Right(Operation.CREATE, ResourceType.TOPIC),
    Right(Operation.CREATE, ResourceType.CLUSTER),
)
ALTERS_CLUSTER: Final = (whole(Operation.ALTER, ResourceType.CLUSTER),)
DESCRIBES_CLUSTER: Final = (whole(Operation.DESCRIBE, ResourceType.CLUSTER),)
ALTERS_CONFIGS: Final = (
    each(Operation.ALTER_CONFIGS, ResourceType.TOPIC, When.OF_TOPIC),
    each(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, When.OF_BROKER),
)


def bits(operations: Iterable[Operation]) -> int:
    """Return the number for these operations."""
    return sum(1 << operation for operation in operations)
