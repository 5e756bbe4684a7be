"""The settings that the decisions depend on, and the identities of brokers."""

from typing import NamedTuple


class Member(NamedTuple):
    """A broker with one data directory, as it entered the ISR."""

    broker_id: int
    nonce: int


class Incarnation(NamedTuple):
    """One run of one broker's process."""

    broker_id: int
    number: int
    """Random, so that no two runs share a number."""


class ReplicationSettings(NamedTuple):
    """The settings of the decisions. Durations are in seconds."""

    lag_max_s: float = 10.0
    """How long a follower may lag before it leaves the ISR (`replica.lag.time.max.ms`)."""
    min_insync: int = 1
    """`min.insync.replicas` of the broker, for the metadata log. Each topic has its own value."""
    least_min_insync: int = 1
    """Lower bound for the `min.insync.replicas` of a topic."""
    sync_for_acks_all: bool = True
    """Whether `acks.all.durability` of the broker is `fsync`, for the metadata log. Each topic has
    its own value."""
    unclean: bool = False
    """Whether a broker outside of the ISR may lead if no member of it is there
    (`unclean.leader.election.enable`)."""
    lease_s: float = 6.0
    """Duration of a broker's lease in etcd (`cluster.lease.ms`)."""
    lease_margin: float = 0.1
    """Share of the lease that a broker does not rely on, because the clocks of two machines differ
    in speed."""
    read_every_s: float = 0.5
    """How often a broker reads the cluster's state from etcd."""
    answer_within_s: float = 2.0
    """Time after which a request to etcd counts as unanswered."""
    leader_within_s: float = 2.0
    """A follower considers its connection dead if no answer comes within this time plus
    `fetch_wait_s`."""
    hand_over_s: float = 1.0
    """How long a leader refuses writes during a handover before it gives up and accepts them
    again."""
    fetch_wait_s: float = 0.5
    """How long the leader holds a follower's fetch for which there is no news."""
    fetch_max_bytes: int = 1 << 20
