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
        "1 at the broker that leads, 0 at a follower; absent where a broker is alone.",
        one.leads,
    )
    yield gauge("horolog_leader_epoch", "The highest leader epoch that is known.", one.epoch)
    yield gauge(
        "horolog_replicas",
        "Brokers that there are to be, the leader included: by hand cluster.brokers; with etcd "
        "those that were there since the leader started, unless they were removed. 0 where the "
        "broker does not lead.",
        one.replicas,
    )
    yield gauge(
        "horolog_in_sync_replicas",
        "Brokers in sync, the leader included; 0 where the broker does not lead.",
        one.in_sync,
    )
    yield gauge(
        "horolog_under_min_insync",
        "1 while acks=all is refused, to some topic at least, because too few brokers are in sync.",
        one.under_min,
    )
    yield gauge(
        "horolog_elections_total", "How often the broker began to lead.", one.elections, "counter"
    )
    yield gauge(
        "horolog_not_replicated_partitions",
        "Partitions that are damaged here, or of which something cannot be copied, from the leader "
        "or to a follower.",
        one.not_copied,
    )
    yield Family(
        "horolog_replica_lag",
        "gauge",
        "Messages that a follower lacks, at the leader; of one that is gone, by what it said last.",
        ("broker",),
        [Sample((("broker", str(broker)),), lag) for broker, (lag, _) in one.lags.items()],
    )
    yield Family(
        "horolog_replica_lag_seconds",
        "gauge",
        "Age of the oldest message that a follower lacks, at the leader; 0 when it lacks none, "
        "absent where that is not known.",
        ("broker",),
        [
            Sample((("broker", str(broker)),), seconds)
            for broker, (_, seconds) in one.lags.items()
            if seconds is not None
        ],
    )
