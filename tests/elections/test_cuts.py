"""Ways between any two are cut, in one direction or both, while clients write and commit
(replication.md, section 8.2)."""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.testing.etcd import EtcdProcess
from horolog.testing.proxy import EVERYBODY, Direction, NetworkGate, Traffic

from .brokers import (
    CLIENTS,
    TOPIC,
    UNDER_WAY_MAX,
    Broker,
    Cluster,
    Committer,
    Writer,
    cluster,
)

Cut = tuple[Traffic, tuple[Direction, ...]]

CUTS: dict[str, Cut] = {
    "answers vanish": (Traffic.VANISH, (Direction.TO_CLIENT,)),
    "requests vanish": (Traffic.VANISH, (Direction.TO_SERVER,)),
    "all vanishes": (Traffic.VANISH, tuple(Direction)),
    "answers come late": (Traffic.WAIT, (Direction.TO_CLIENT,)),
    "requests come late": (Traffic.WAIT, (Direction.TO_SERVER,)),
    "all comes late": (Traffic.WAIT, tuple(Direction)),
}

elections = pytest.mark.elections
each_cut = pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)


class Load:
    """Who writes and commits in a cluster, and what came of it."""

    def __init__(self, all_: Cluster) -> None:
        self._all = all_
        self.writer = Writer(request_timeout_ms=2000, gated=True)
        self.committer = Committer()
        all_.start()
        all_.program.ok("topic", "create", TOPIC, "--partitions", "2")
        all_.in_sync()

    def during(self, what: Callable[[], object], *, commits: bool = True) -> None:
        """Write and commit while something is done, and some more after that."""

        async def all_of_it() -> None:
            until = asyncio.Event()
            if not commits:
                until.set()
            committing = asyncio.create_task(self.committer.run(self._all.gates, until))
            try:
                await self.writer.during(self._all, what)
            finally:
                until.set()
                await committing

        asyncio.run(all_of_it())

    def check(self) -> None:
        """0 lost, 0 doubled, in order; what was committed never went back."""
        self.writer.check(self._all)
        assert self.committer.went_back == []


def cut_off(gate: NetworkGate, cut: Cut, of: str = EVERYBODY) -> None:
    traffic, ways = cut
    if traffic is Traffic.VANISH:
        gate.lose(*ways, of=of)
    else:
        gate.shut(*ways, of=of)


def felt(gate: NetworkGate, cut: Cut, of: str = EVERYBODY) -> bool:
    """Whether the cut kept something from somebody."""
    return any(gate.withheld(way, of) for way in cut[1])


def follower_cut_off(all_: Cluster, leader: Broker, follower: Broker, cut: Cut) -> None:
    """Until it is out of sync; the other one stays in."""
    rest = sorted(one.broker_id for one in all_.others(follower))
    cut_off(leader.to_me, cut, follower.name)
    all_.eventually(lambda: leader.status().in_sync == rest)
    assert felt(leader.to_me, cut, follower.name)
    all_.mend()


def test_one_follower_hears_nothing_from_its_leader(place: Path, etcd: EtcdProcess) -> None:
    """The smoke: the leader hears it all the while, and the other follower misses nothing."""
    # A lease this long does not end while the machine stands still, so the leader stays.
    with cluster(place, etcd, replica_lag_time_max_ms=1000, cluster_lease_ms=20_000) as all_:
        load = Load(all_)
        leader = all_.leader()
        epoch = leader.status().epoch
        follower, _ = all_.others(leader)

        def cut_and_mend() -> None:
            follower_cut_off(all_, leader, follower, CUTS["answers vanish"])
            all_.eventually(lambda: load.committer.commits > 10)

        load.during(cut_and_mend)
        assert load.writer.failed == []
        assert all_.in_sync() is leader
        assert leader.status().epoch == epoch
        load.check()


@elections
@pytest.mark.timeout(300)
@each_cut
def test_one_of_two_followers_is_cut_off(place: Path, etcd: EtcdProcess, cut: Cut) -> None:
    """What comes late, or not at all, from a connection that was given up changes nothing."""
    with cluster(place, etcd, min_insync_replicas=2) as all_:
        load = Load(all_)
        leader = all_.leader()
        epoch = leader.status().epoch
        for follower in all_.others(leader):
            load.during(lambda one=follower: follower_cut_off(all_, leader, one, cut))  # type: ignore[misc]
            assert all_.in_sync() is leader
        assert load.writer.failed == []
        assert leader.status().epoch == epoch
        load.check()


@elections
@pytest.mark.timeout(300)
@each_cut
def test_who_cannot_hear_the_leader_is_not_elected(
    place: Path, etcd: EtcdProcess, cut: Cut
) -> None:
    """One follower sees the leader, the other does not; then the leader is killed."""
    with cluster(place, etcd) as all_:
        load = Load(all_)
        leader = all_.leader()
        blind, seeing = all_.others(leader)

        def cut_and_kill() -> None:
            cut_off(leader.to_me, cut, blind.name)
            rest = sorted((leader.broker_id, seeing.broker_id))
            all_.eventually(lambda: leader.status().in_sync == rest)
            answered = len(load.writer.answered)
            all_.eventually(lambda: len(load.writer.answered) > answered + 50)
            leader.kill()
            assert all_.leader(other_than=leader.broker_id) is seeing
            all_.in_sync(blind.broker_id, seeing.broker_id)
            all_.mend()
            leader.start()

        load.during(cut_and_kill)
        assert all_.in_sync() is seeing
        load.check()


@elections
@pytest.mark.timeout(300)
@each_cut
def test_a_leader_and_etcd_do_not_hear_each_other(place: Path, etcd: EtcdProcess, cut: Cut) -> None:
    """It stops by its own lease, also while its renewals arrive; then another one leads. Clients
    and followers reach it all the while."""
    with cluster(place, etcd) as all_:
        load = Load(all_)
        first = all_.leader()

        def until_another_leads() -> None:
            cut_off(first.to_etcd, cut)
            all_.leader(other_than=first.broker_id)
            assert first.status().leader != first.broker_id
            assert felt(first.to_etcd, cut)
            all_.mend()

        load.during(until_another_leads)
        assert all_.in_sync() is not first
        load.check()


@elections
@pytest.mark.timeout(300)
@each_cut
def test_a_leader_is_alone_with_its_clients(place: Path, etcd: EtcdProcess, cut: Cut) -> None:
    """It takes nothing more, while the others have a leader of their own."""
    with cluster(place, etcd) as all_:
        load = Load(all_)
        first = all_.leader()

        def alone() -> None:
            cut_off(first.to_etcd, cut)
            for other in all_.others(first):
                cut_off(first.to_me, cut, other.name)
                cut_off(other.to_me, cut, first.name)
            second = all_.leader(other_than=first.broker_id)
            assert first.status().leader != first.broker_id
            said = first.program("produce", TOPIC, "--partition", "0", stdin="nobody has it\n")
            assert said.code == 1
            assert second.status().epoch > first.status().epoch
            all_.mend()

        load.during(alone)
        assert all_.in_sync() is not first
        load.check()


@elections
@pytest.mark.timeout(300)
def test_the_answer_to_a_change_of_those_in_sync_is_lost(place: Path, etcd: EtcdProcess) -> None:
    """From sending it until its outcome is read the union of old and new counts (section 4): a
    leader that cannot read it acknowledges nothing without the one that left."""
    with cluster(place, etcd, cluster_lease_ms=8000) as all_:
        load = Load(all_)
        first = all_.leader()
        gone, stays = all_.others(first)

        def lost() -> None:
            cut_off(first.to_etcd, CUTS["answers vanish"])
            gone.kill()
            acknowledged = len(load.writer.answered)
            # etcd has the new state, and the leader does not know of it.
            rest = sorted((first.broker_id, stays.broker_id))
            all_.eventually(lambda: stays.status().in_sync == rest)
            answered = len(load.writer.answered)
            time.sleep(1)  # so long nothing is to happen
            assert first.status().leader == first.broker_id
            assert len(load.writer.answered) == answered
            assert answered <= acknowledged + UNDER_WAY_MAX
            assert all_.leader(other_than=first.broker_id) is stays
            all_.mend()
            gone.start()

        load.during(lost)
        assert all_.in_sync() is stays
        load.check()


@elections
@pytest.mark.timeout(300)
@each_cut
def test_clients_and_the_leader_do_not_hear_each_other(
    place: Path, etcd: EtcdProcess, cut: Cut
) -> None:
    """What was stored and not answered is sent again, and is there once."""
    with cluster(place, etcd) as all_:
        load = Load(all_)
        leader = all_.leader()

        def cut_and_mend() -> None:
            cut_off(leader.to_me, cut, CLIENTS)
            all_.eventually(lambda: felt(leader.to_me, cut, CLIENTS))
            answered = len(load.writer.answered)
            time.sleep(4)  # so long they wait, give up and try again
            assert len(load.writer.answered) <= answered + UNDER_WAY_MAX
            assert leader.status().in_sync == sorted(all_.all)
            all_.mend()

        # A commit that comes late, after its sender gave it up, may take the place of a later one.
        load.during(cut_and_mend, commits=cut[0] is Traffic.VANISH)
        assert all_.in_sync() is leader
        load.check()


@elections
@pytest.mark.timeout(300)
def test_a_slow_network_elects_nobody(place: Path, etcd: EtcdProcess) -> None:
    with cluster(place, etcd) as all_:
        load = Load(all_)
        leader = all_.leader()
        before = [one.status().epoch for one in all_.all.values()]

        def slow() -> None:
            for broker in all_.all.values():
                broker.to_me.slow(0.1)
                broker.to_etcd.slow(0.1)
            answered = len(load.writer.answered)
            all_.eventually(lambda: len(load.writer.answered) > answered + 100)
            assert leader.status().in_sync == sorted(all_.all)
            all_.mend()

        load.during(slow)
        assert all_.in_sync() is leader
        assert [one.status().epoch for one in all_.all.values()] == before
        load.check()


@elections
@pytest.mark.timeout(600)
def test_ways_are_cut_at_random(
    place: Path, etcd: EtcdProcess, request: pytest.FixtureRequest
) -> None:
    """`--hypothesis-seed` brings the same cuts back, in the same order."""
    rng = random.Random(int(request.config.getoption("--hypothesis-seed")))
    with cluster(place, etcd, min_insync_replicas=2) as all_:
        load = Load(all_)
        ways = [(broker.to_etcd, EVERYBODY) for broker in all_.all.values()]
        for broker in all_.all.values():
            ways += [(broker.to_me, other.name) for other in all_.others(broker)]

        def cut_some() -> None:
            for gate, of in rng.sample(ways, rng.choice((1, 2, 3))):
                cut_off(gate, rng.choice(list(CUTS.values())), of)
            if rng.random() < 0.3:
                vanishing = [cut for cut in CUTS.values() if cut[0] is Traffic.VANISH]
                cut_off(rng.choice(list(all_.all.values())).to_me, rng.choice(vanishing), CLIENTS)
            time.sleep(rng.uniform(0.5, 6))
            all_.mend()

        for _ in range(12):
            load.during(cut_some)
            all_.in_sync()
        load.check()
