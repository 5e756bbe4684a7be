"""The terms of Kafka's ACLs, with their numbers on the wire."""

from enum import IntEnum
from typing import Final


class Operation(IntEnum):
    """An operation that an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """A type of resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name in an ACL selects resources."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD: Final = "*"
"""Name for every resource of a type, or for every host."""

CLUSTER_NAME: Final = "kafka-cluster"
"""Name of the only resource of the type cluster."""

EVERYBODY: Final = "User:*"

_TITLES: Final[dict[IntEnum, str]] = {
    each: "".join(part.title() for part in each.name.split("_")) for each in Operation
}


def operation_title(operation: Operation) -> str:
    """Return the operation as Kafka's texts write it, such as `DescribeConfigs`."""
    return _TITLES[operation]


OPERATIONS_BY_TITLE: Final = {
    operation_title(each).lower(): each
    for each in Operation
    if each not in (Operation.UNKNOWN, Operation.ANY)
}
"""By lower-case title, the operations that an ACL may name."""
