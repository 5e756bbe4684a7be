"""The settings that the decisions depend on, and the identities of brokers."""

from typing import NamedTuple


class Member(NamedTuple):
    """A broker with one directory, as it entered the ISR."""

    broker_id: int
    nonce: int


class Incarnation(NamedTuple):
    """One run of one broker's process."""

    broker_id: int
    number: int
    """Random, so that no two runs have the same."""


class ReplicationSettings(NamedTuple):
    """Durations in seconds."""

    lag_max_s: float = 10.0
    """`replica.lag.time.max.ms`"""
    min_insync: int = 1
    """`min.insync.replicas` of the broker: for topics and positions; each log has its own."""
    least_min_insync: int = 1
    """No log's own one counts for less."""
    sync_for_acks_all: bool = True
    """`acks.all.durability=fsync` of the broker: for topics and positions; each log has its own."""
    unclean: bool = False
    """`unclean.leader.election.enable`"""
    lease_s: float = 6.0
    """`cluster.lease.ms`"""
    lease_margin: float = 0.1
    """Share of the lease that is not relied on: clocks of two machines do not run alike."""
    read_every_s: float = 0.5
    """How often the cluster's state is read."""
    answer_within_s: float = 2.0
    """After this, a request to etcd counts as unanswered."""
    leader_within_s: float = 2.0
    """After this, and `fetch_wait_s`, a follower takes its connection for dead."""
    hand_over_s: float = 1.0
    """How long a leader that hands over takes no writes before it takes them again."""
    fetch_wait_s: float = 0.5
    """How long the leader keeps a follower's request that has nothing to get."""
    fetch_max_bytes: int = 1 << 20
