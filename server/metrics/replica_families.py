"""Metric families of replication."""

from collections.abc import Iterator, Mapping
from dataclasses import field

from ...values import value_class
from .exposition import Family, Sample


@value_class
class ReplicaFigures:
    """State of a cluster, as one broker knows it."""

    leads: bool = False
    epoch: int = -1
    replicas: int = 0
    """Brokers that the leader knows, including itself; 0 where this broker does not lead."""
    in_sync: int = 0
    """Brokers in sync according to the leader; 0 where this broker does not lead."""
    under_min: bool = False
    """Whether the leader refuses acks=all."""
    elections: int = 0
    not_copied: int = 0
    """Partitions that are damaged here, or of which something could not be copied."""
    lags: Mapping[int, tuple[int, float | None]] = field(default_factory=dict)
    """Lag by broker, as the leader knows it: missing messages, and their age in seconds."""


def replica_families(figures: ReplicaFigures | None) -> Iterator[Family]:
    """Yield the families. They have no samples for a single broker (None)."""
    one = figures or ReplicaFigures()

    def gauge(name: str, meaning: str, value: float, kind: str = "gauge") -> Family:
        return Family(name, kind, meaning, (), [] if figures is None else [Sample((), value)])

    yield gauge(
        "horolog_leader",
        "1 at the leader, 0 at a follower; absent at a single broker.",
        one.leads,
    )
    yield gauge(
        "horolog_leader_epoch", "The highest leader epoch that this broker knows.", one.epoch
    )
    yield gauge(
        "horolog_replicas",
        "Brokers that belong to the cluster, the leader included. By hand: cluster.brokers. With "
        "etcd: all brokers that registered since the leader started and were not removed. 0 at a "
        "broker that does not lead.",
        one.replicas,
    )
    yield gauge(
        "horolog_in_sync_replicas",
        "In-sync replicas, the leader included. 0 at a broker that does not lead.",
        one.in_sync,
    )
    yield gauge(
        "horolog_under_min_insync",
        "1 while acks=all is refused for at least one topic, because too few replicas are in sync.",
        one.under_min,
    )
    yield gauge(
        "horolog_elections_total", "How often this broker became leader.", one.elections, "counter"
    )
    yield gauge(
        "horolog_not_replicated_partitions",
        "Partitions that are damaged at this broker, or cannot be copied completely from the "
        "leader or to a follower.",
        one.not_copied,
    )
    yield from _lag_families(one)


def _lag_families(one: ReplicaFigures) -> Iterator[Family]:
    yield Family(
        "horolog_replica_lag",
        "gauge",
        "Messages that a follower lacks, as the leader knows it. For a follower that is down: "
        "since its last report.",
        ("broker",),
        [Sample((("broker", str(broker)),), lag) for broker, (lag, _) in one.lags.items()],
    )
    yield Family(
        "horolog_replica_lag_seconds",
        "gauge",
        "Age of the oldest message that a follower lacks, as the leader knows it. 0 if it lacks "
        "none; absent if not known.",
        ("broker",),
        [
            Sample((("broker", str(broker)),), seconds)
            for broker, (_, seconds) in one.lags.items()
            if seconds is not None
        ],
    )
