"""Which broker of a cluster a request is for. A single broker is all of them."""

from enum import Enum

from ...values import value_class


@value_class
class PartitionLeader:
    """The one that leads a partition."""

    topic: str
    partition: int
    create: bool = False
    """The topic is made if it does not exist and the cluster does that."""


@value_class
class CoordinatorNode:
    """The one that looks after a group, or after the positions of that name."""

    group: str


@value_class
class NodeById:
    """The one with this id."""

    node_id: int


class Some(Enum):
    """Places without a name of their own."""

    ANY = "any"
    CONTROLLER = "controller"
    """The one that makes and changes topics."""


Target = PartitionLeader | CoordinatorNode | NodeById | Some
