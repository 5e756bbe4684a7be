"""The options of a schedule, and the settings drawn from its seed."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from ...replication.cluster_node import ClusterNode
from ...replication.node import Node
from ...replication.partition_log import Partition
from ...replication.settings import ReplicationSettings
from .disk import SimulatedDirectory, SimulatedLog


@dataclass(slots=True)
class ScheduleOptions:
    """Options of a schedule, and replacements for some of its classes."""

    steps: int = 260
    brokers: int | None = None
    lease: bool = True
    """Whether leaders stop when their lease ends."""
    node_class: type[Node] = ClusterNode
    log_class: Callable[[Partition, SimulatedDirectory], SimulatedLog] = SimulatedLog
    own_min_insync: bool = False
    """Whether topics have their own `min.insync.replicas`, which an operator alters."""
    own_durability: bool = False
    """Whether topics have their own `acks.all.durability`, which an operator alters."""
    loses_histories: bool = False
    """Whether the epochs of logs cannot be read at some starts."""
    copies: bool = True
    """Whether directories are copied while their brokers run."""
    swarm: bool = True
    """Whether half of the seeds leave out some kinds of faults."""
    sets_back: bool = False
    """Whether etcd is restored, once, to an older state."""
    damages: bool = False
    """Whether stored bytes are damaged."""
    clocks_jump: bool = False
    """Whether the wall clocks of brokers jump."""
    one_nonce: bool = False
    """Whether all directories have the same nonce, so that members differ only by broker id."""

    there_at_first: ClassVar[float] = 0.9
    min_insyncs: ClassVar[tuple[int, ...]] = (1, 1, 1, 2, 3)
    brokers_of: ClassVar[tuple[int, ...]] = (1, 2, 2, 3, 3, 3, 3, 4, 5)


def draw_settings(random: Random) -> ReplicationSettings:
    return ReplicationSettings(
        lag_max_s=2.0,
        min_insync=random.choice((1, 1, 1, 2)),
        sync_for_acks_all=random.random() < 0.7,
        unclean=random.random() < 0.05,
        lease_s=3.0,
        lease_margin=0.1,
        read_every_s=0.4,
        answer_within_s=1.0,
        leader_within_s=1.0,
        fetch_wait_s=0.4,
        fetch_max_bytes=random.choice((1, 2, 8)),
    )
