"""Brokers that etcd decides for, killed, stopped and cut off (replication.md, sections 4, 5, 8)."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from horolog.testing.etcd import EtcdProcess
from horolog.testing.program import CommandResult

from .brokers import TOPIC, Broker, Cluster, Writer, cluster

LEASE_S = 2
"""Of the brokers here."""


def with_topic(all_: Cluster) -> Writer:
    all_.start()
    all_.program.ok("topic", "create", TOPIC, "--partitions", "2")
    all_.in_sync()
    return Writer()


def refusal(result: CommandResult) -> str:
    assert result.code == 1, result
    return result.out + result.err


def test_a_leader_is_killed_and_another_one_planned(place: Path, etcd: EtcdProcess) -> None:
    """The smoke. No answer is waited for longer than a producer tries."""
    with cluster(place, etcd) as all_:
        writer = with_topic(all_)
        first = all_.leader()
        asyncio.run(writer.during(all_, first.kill))
        second = all_.leader(other_than=first.broker_id)
        first.start()
        assert all_.in_sync() is second
        number = str(first.broker_id)
        asyncio.run(writer.during(all_, lambda: second.program.ok("cluster", "promote", number)))
        assert all_.in_sync() is first
        writer.check(all_)
        assert writer.failed == []
        assert len(writer.answered) >= 120


elections = pytest.mark.elections


@elections
@pytest.mark.timeout(600)
def test_leaders_are_killed_again_and_again(place: Path, etcd: EtcdProcess) -> None:
    with cluster(place, etcd, min_insync_replicas=2) as all_:
        writer = with_topic(all_)
        for _ in range(6):
            leader = all_.in_sync()
            asyncio.run(writer.during(all_, leader.kill))
            leader.start()
        all_.in_sync()
        writer.check(all_)
        assert writer.failed == []


@elections
@pytest.mark.timeout(300)
def test_a_leader_that_is_stopped_or_told_to_hands_over_before_its_lease_ends(
    place: Path, etcd: EtcdProcess
) -> None:
    """A producer that had to wait for the end of the lease would give up before that."""
    with cluster(place, etcd, cluster_lease_ms=60_000) as all_:
        writer = with_topic(all_)
        writer.delivery_timeout_ms = 30_000
        for _ in range(3):
            leader = all_.in_sync()
            asyncio.run(writer.during(all_, leader.stop))
            leader.start()
            number, now = str(leader.broker_id), all_.in_sync()
            asyncio.run(writer.during(all_, partial(now.program.ok, "cluster", "promote", number)))
        all_.in_sync()
        writer.check(all_)
        assert writer.failed == []


@elections
@pytest.mark.timeout(300)
def test_a_leader_stands_still_for_longer_than_its_lease(place: Path, etcd: EtcdProcess) -> None:
    """It wakes up with requests in its buffers, and neither acknowledges nor serves them."""
    with cluster(place, etcd) as all_:
        writer = with_topic(all_)
        first = all_.leader()
        asyncio.run(writer.during(all_, lambda: _sleep_through(all_, first)))
        assert all_.in_sync() is not first
        writer.check(all_)
        assert "leads_no_more" in first.told()


def _sleep_through(all_: Cluster, first: Broker) -> None:
    first.pause()
    second = all_.leader(other_than=first.broker_id)
    second.program.ok("produce", TOPIC, "--partition", "0", stdin="")
    with (
        first.program.running("produce", TOPIC, "--partition", "0") as late_write,
        first.program.running("consume", TOPIC, "--from", "offset:0", "--json") as late_read,
    ):
        assert late_write.stdin is not None
        late_write.stdin.write("late\n")
        late_write.stdin.close()
        time.sleep(0.5)  # until both wait in the buffers of a process that stands still
        first.go_on()
        # What is answered is answered by the new leader, to which the old one sends them.
        assert late_write.wait(30) in (0, 1)
        late_read.wait(30)


@elections
@pytest.mark.timeout(300)
def test_etcd_stops_and_starts_again(place: Path, etcd: EtcdProcess) -> None:
    """A leader goes on until its lease would end; then nobody takes writes; then all is well."""
    with cluster(place, etcd) as all_:
        writer = with_topic(all_)
        leader = all_.leader()
        asyncio.run(writer.during(all_, lambda: _without_etcd(all_, etcd, leader)))
        all_.in_sync()
        writer.check(all_)
        epochs = [one.status().epoch for one in all_.all.values()]
        assert epochs[0] > 1
        assert len(set(epochs)) == 1


@elections
@pytest.mark.timeout(300)
def test_an_outage_of_etcd_shorter_than_the_lease(place: Path, etcd: EtcdProcess) -> None:
    """Nobody notices."""
    with cluster(place, etcd, cluster_lease_ms=20_000) as all_:
        writer = with_topic(all_)
        epochs = [one.status().epoch for one in all_.all.values()]

        def restart() -> None:
            etcd.stop()
            etcd.start()

        asyncio.run(writer.during(all_, restart))
        assert [one.status().epoch for one in all_.all.values()] == epochs
        writer.check(all_)


def _without_etcd(all_: Cluster, etcd: EtcdProcess, leader: Broker) -> None:
    etcd.stop(signal.SIGKILL)
    all_.eventually(lambda: leader.status().leader != leader.broker_id)
    said = refusal(leader.program("produce", TOPIC, stdin="nobody takes it\n"))
    assert "etcd is needed to know who leads" in said
    for broker in all_.all.values():
        assert broker.status().leader == -1 or broker is not leader
    etcd.start()


@elections
@pytest.mark.timeout(300)
def test_a_follower_is_cut_off_from_all(place: Path, etcd: EtcdProcess) -> None:
    """It leaves the ISR, cannot be elected, and comes back."""
    with cluster(place, etcd) as all_:
        writer = with_topic(all_)
        leader = all_.leader()
        cut_off = next(one for one in all_.all.values() if one is not leader)
        others = [number for number in all_.all if number != cut_off.broker_id]

        def cut() -> None:
            cut_off.to_etcd.shut()
            cut_off.pause()
            assert all_.in_sync(*others) is leader
            cut_off.go_on()
            cut_off.to_etcd.open()

        asyncio.run(writer.during(all_, cut))
        assert all_.in_sync() is leader
        writer.check(all_)


@elections
@pytest.mark.timeout(300)
def test_followers_cannot_reach_their_leader(place: Path, etcd: EtcdProcess) -> None:
    """They are out of sync after a while, and in sync again afterwards; nothing is lost."""
    with cluster(place, etcd) as all_:
        writer = with_topic(all_)
        leader = all_.leader()

        def cut() -> None:
            leader.to_me.shut()
            all_.eventually(lambda: leader.status().in_sync == [leader.broker_id])
            leader.to_me.open()

        asyncio.run(writer.during(all_, cut))
        assert all_.in_sync() is leader
        writer.check(all_)


@elections
@pytest.mark.timeout(300)
def test_only_who_is_in_sync_leads_or_a_person_accepts_loss(place: Path, etcd: EtcdProcess) -> None:
    with cluster(place, etcd) as all_:
        with_topic(all_)
        leader = all_.leader()
        second, third = (one for one in all_.all.values() if one is not leader)
        second.kill()
        third.kill()
        all_.in_sync(leader.broker_id)
        leader.program.ok("produce", TOPIC, "--partition", "0", stdin="alone\n")
        leader.kill()
        second.start()
        time.sleep(LEASE_S + 2)  # so long nothing is to happen
        assert second.status().leader == -1
        said = refusal(second.program("cluster", "promote"))
        assert f"start one of [{leader.broker_id}]" in said
        assert "--accept-loss" in said
        second.program.ok("cluster", "promote", "--accept-loss")
        assert all_.leader() is second
        leader.start()
        third.start()
        assert all_.in_sync() is second
        assert all_.stored() == {}


@elections
@pytest.mark.timeout(300)
def test_two_brokers_with_one_id(place: Path, etcd: EtcdProcess) -> None:
    with cluster(place, etcd, count=2) as all_:
        all_.start()
        other = Broker(place / "other", 2, etcd, dict(all_[2].settings))
        other.data_dir.parent.mkdir()
        try:
            with pytest.raises(RuntimeError, match=r"another broker with broker\.id 2 is at"):
                other.start()
        finally:
            other.close()
        assert all_.in_sync() is all_[1]
        # A broker that was killed is no other one: it comes back.
        all_[2].kill()
        all_[2].start()
        all_.in_sync()
        assert "another broker" not in all_[2].told()


@elections
@pytest.mark.timeout(300)
def test_a_leader_whose_sync_failed_lets_another_one_lead(
    place: Path, etcd: EtcdProcess, require_program: Callable[[str], str]
) -> None:
    library, now = place / "failing_sync.so", place / "now"
    source = Path(__file__).parents[1] / "faults" / "disks" / "failing_sync.c"
    gcc = [require_program("gcc"), "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(gcc, check=True)
    with cluster(place, etcd) as all_:
        all_[1].env = {
            "LD_PRELOAD": str(library),
            "FAIL_SYNC_OF": f"{TOPIC}-0/{0:020d}.log",
            "FAIL_SYNC_ONCE": str(now),
        }
        writer = with_topic(all_)
        assert all_.leader() is all_[1]

        def fail() -> None:
            now.touch()
            all_.leader(other_than=1)

        asyncio.run(writer.during(all_, fail))
        assert "log_failed" in all_[1].told()
        all_.in_sync(2, 3)
        all_[1].kill()  # it could not stop cleanly
        all_[1].start()
        all_.in_sync()
        writer.check(all_)


@elections
@pytest.mark.timeout(300)
@pytest.mark.parametrize("restarted", [False, True])
def test_an_unclean_election_says_what_may_be_lost(
    place: Path, etcd: EtcdProcess, restarted: bool
) -> None:
    with cluster(place, etcd, count=2, cluster_unclean_leader_election_enable="true") as all_:
        all_.start()
        all_.program.ok("topic", "create", TOPIC)
        first = all_.in_sync()
        (second,) = all_.others(first)
        first.program.ok("produce", TOPIC, stdin="both\n")
        all_.in_sync()
        (second.stop if restarted else second.pause)()
        all_.in_sync(first.broker_id)
        first.program.ok("produce", TOPIC, stdin="one\n" * 5)
        first.kill()
        (second.start if restarted else second.go_on)()
        assert all_.leader(other_than=first.broker_id) is second
        (said,) = (line for line in second.told().splitlines() if "elected_with_loss" in line)
        assert "[warning  ]" in said
        if restarted:
            assert "ends=1 last_message=20" in said
            assert "messages=None seconds=None" in said
        else:
            seconds = float(said.rpartition("seconds=")[2])
            assert seconds >= LEASE_S
            assert "messages=" in said
        # Who is elected among those in sync loses nothing, and says nothing of that.
        first.start()
        assert all_.in_sync() is second
        second.program.ok("cluster", "promote", str(first.broker_id))
        assert all_.in_sync() is first
        first.program.ok("cluster", "promote", str(second.broker_id))
        assert all_.in_sync() is second
        told = first.told() + second.told()
        assert told.count("] leads ") == 4
        assert told.count("elected_with_loss") == 1
