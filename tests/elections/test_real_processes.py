"""Brokers that etcd decides for, killed, stopped and cut off (replication.md, sections 4, 5, 8)."""

import asyncio
from pathlib import Path

from horolog.testing.etcd import EtcdProcess

from .brokers import TOPIC, Cluster, Writer, cluster


def with_topic(all_: Cluster) -> Writer:
    all_.start()
    all_.program.ok("topic", "create", TOPIC, "--partitions", "2")
    all_.in_sync()
    return Writer()


def test_a_leader_is_killed_and_another_one_planned(place: Path, etcd: EtcdProcess) -> None:
    """The smoke: killed, next answer within the lease and 3 s; planned, below a second."""
    with cluster(place, etcd) as all_:
        writer = with_topic(all_)
        first = all_.leader()
        asyncio.run(writer.during(all_, first.kill))
        assert writer.longest_gap_s() < 2 + 3
        second = all_.leader(other_than=first.broker_id)
        first.start()
        assert all_.in_sync() is second
        writer.times_s.clear()
        asyncio.run(
            writer.during(
                all_, lambda: second.program.ok("cluster", "promote", str(first.broker_id))
            )
        )
        assert writer.longest_gap_s() < 1
        assert all_.in_sync() is first
        writer.check(all_)
        assert len(writer.answered) >= 120
