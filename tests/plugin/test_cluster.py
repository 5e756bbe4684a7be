"""A leader and its followers in the process of a test."""

from pathlib import Path
from typing import Any

import pytest

from horolog import blocking
from horolog.server.broker import Broker
from horolog.server.replication.cluster import Cluster
from horolog.testing.cluster import BrokerCluster
from horolog.testing.waiting import wait_until

DAY = 24 * 3600


async def newest_epoch(broker: Broker) -> int:
    replication = broker.services.replication
    assert isinstance(replication, Cluster)
    return replication.node.highest_epoch


def send(cluster: BrokerCluster, *values: bytes) -> None:
    with blocking.Producer(cluster.address) as producer:
        for value in values:
            producer.send("a", value)


def test_a_snapshot_of_all_brokers(horolog_cluster: BrokerCluster) -> None:
    send(horolog_cluster, b"one")
    snapshot = horolog_cluster.snapshot()
    send(horolog_cluster, b"two")
    snapshot.restore()
    assert horolog_cluster.leader is horolog_cluster.brokers[0]
    assert len(horolog_cluster.followers) == 2
    assert [broker.topic("a").values() for broker in horolog_cluster.brokers] == [[b"one"]] * 3
    send(horolog_cluster, b"three")
    horolog_cluster.wait_in_sync()
    for broker in horolog_cluster.brokers:
        assert broker.topic("a").values() == [b"one", b"three"]


def test_one_clock_for_all(horolog_cluster: BrokerCluster) -> None:
    with blocking.Admin(horolog_cluster.address) as admin:
        admin.create_topic("a", settings={"retention.ms": str(7 * DAY * 1000)})
    send(horolog_cluster, b"one")
    horolog_cluster.wait_in_sync()
    horolog_cluster.clock.step(8 * DAY)
    assert horolog_cluster.topic("a").values() == []
    assert len({broker.clock for broker in horolog_cluster.brokers}) == 1


def test_faults_are_those_of_the_leader(horolog_cluster: BrokerCluster) -> None:
    horolog_cluster.faults.lose_answer("Produce")
    send(horolog_cluster, b"one", b"two")
    assert [each.kind for each in horolog_cluster.faults.injected] == ["lose_answer"]
    assert horolog_cluster.topic("a").values() == [b"one", b"two"]


def test_a_follower_leads_after_the_fault_stopped_the_leader(
    horolog_cluster: BrokerCluster,
) -> None:
    send(horolog_cluster, b"one")
    horolog_cluster.wait_in_sync()
    horolog_cluster.faults.stop_leader()
    horolog_cluster.promote()
    assert horolog_cluster.topic("a").values() == [b"one"]


def test_the_followers_follow_a_restarted_leader_once_they_are_in_sync(
    horolog_cluster: BrokerCluster,
) -> None:
    """So the next leader begins above its epoch, and it can follow that one."""
    cluster = horolog_cluster
    send(cluster, b"one")
    cluster.wait_in_sync()
    cluster.stop_leader().start()
    cluster.wait_in_sync()
    assert {broker.in_loop(newest_epoch) for broker in cluster.brokers} == {1001}
    old = cluster.stop_leader()
    cluster.promote()
    send(cluster, b"two")
    cluster.rejoin(old)
    cluster.wait_in_sync()
    for broker in cluster.brokers:
        assert broker.topic("a").values() == [b"one", b"two"]


def test_a_promoted_broker_leads_above_an_epoch_that_only_another_one_knows(
    horolog_cluster: BrokerCluster,
) -> None:
    cluster, (first, second, third) = horolog_cluster, horolog_cluster.brokers
    second.stop()
    first.stop()
    first.start({"cluster.alone": True})
    third.stop()
    cluster.rejoin(third)
    wait_until(lambda: third.in_loop(newest_epoch) == 1001)
    first.stop()
    second.start({"cluster.follow": first.address})
    cluster.promote(second, accept_loss=True)
    assert {broker.in_loop(newest_epoch) for broker in cluster.running} == {1002}


def test_brokers_stay_in_sync_however_fast_the_clock_runs(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path, {"min.insync.replicas": 3}) as cluster:
        send(cluster, b"one")
        cluster.clock.step(3600)
        send(cluster, b"two")
        cluster.clock.run(3600)
        send(cluster, b"three")
        cluster.wait_in_sync()
        for broker in cluster.brokers:
            assert broker.topic("a").values() == [b"one", b"two", b"three"]


def test_what_a_cluster_refuses(tmp_path: Path, horolog_cluster: BrokerCluster) -> None:
    with pytest.raises(ValueError, match="at least one"):
        BrokerCluster(tmp_path, brokers=0)
    with pytest.raises(ValueError, match="no snapshot of this cluster"):
        horolog_cluster.restore()
    part: Any = horolog_cluster.leader.snapshot()
    with pytest.raises(TypeError, match=r"it must be what snapshot\(\) returned"):
        horolog_cluster.restore(part)
    assert len(horolog_cluster.running) == len(horolog_cluster.brokers)
    horolog_cluster.stop_leader()
    with pytest.raises(RuntimeError, match="no broker leads"):
        assert horolog_cluster.leader
    with pytest.raises(RuntimeError, match="all brokers running"):
        horolog_cluster.snapshot()
    horolog_cluster.stop()
    with pytest.raises(RuntimeError, match="no follower is running"):
        horolog_cluster.promote()


@pytest.fixture
def in_segments(horolog_cluster: BrokerCluster) -> BrokerCluster:
    """With a topic whose segments are a minute long."""
    with blocking.Admin(horolog_cluster.address) as admin:
        admin.create_topic("a", settings={"segment.ms": "60000"})
    return horolog_cluster


def test_a_snapshot_stays_as_it_is_when_a_closed_segment_is_truncated(
    in_segments: BrokerCluster,
) -> None:
    """A broker that lost its disk leads, and the others truncate what it does not have."""
    cluster, (first, second, third) = in_segments, in_segments.brokers
    send(cluster, b"one")
    cluster.wait_in_sync()
    before = third.snapshot()
    send(cluster, b"two")
    cluster.clock.step(61)
    send(cluster, b"three")
    snapshot = cluster.snapshot()
    assert len(list(first.data_dir.glob("a-0/*.log"))) == 2

    cluster.stop()
    third.replace_data(before)
    third.start({"cluster.follow": first.address})
    cluster.promote(third, accept_loss=True)
    for broker in (first, second):
        cluster.rejoin(broker)
    send(cluster, b"other", b"others")
    cluster.wait_in_sync()
    for broker in cluster.brokers:
        assert broker.topic("a").values() == [b"one", b"other", b"others"]

    for _ in range(2):
        snapshot.restore()
        for broker in cluster.brokers:
            assert broker.topic("a").values() == [b"one", b"two", b"three"]
