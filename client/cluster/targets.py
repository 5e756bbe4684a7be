"""Targets of requests within a cluster. A single broker is every target."""

from enum import Enum

from ...values import value_class


@value_class
class PartitionLeader:
    """The broker that leads a partition."""

    topic: str
    partition: int
    create: bool = False
    """Whether the topic is created if it does not exist and the cluster creates topics
    automatically."""


@value_class
class CoordinatorNode:
    """The coordinator of a group, or of the positions with that name."""

    group: str


@value_class
class NodeById:
    """The broker with this id."""

    node_id: int


class Some(Enum):
    """Targets without parameters: any broker, or the controller."""

    ANY = "any"
    CONTROLLER = "controller"
    """The broker that creates and changes topics."""


Target = PartitionLeader | CoordinatorNode | NodeById | Some
