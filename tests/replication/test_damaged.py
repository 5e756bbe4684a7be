"""Who leads, and who cuts, where stored bytes of a log went bad (replication.md, section 4)."""

from collections.abc import Callable

import pytest

from horolog.replication.cluster_node import ClusterNode
from horolog.replication.effects import Transact
from horolog.testing.simulation.disk import DATA, SimulatedLog
from horolog.testing.simulation.machine import Machine
from horolog.testing.simulation.options import ScheduleOptions
from horolog.testing.simulation.schedule import Simulation

STEP_S = 0.4
MESSAGES = 6


class Cluster:
    """Brokers, all of them in sync, with some messages."""

    def __init__(self, brokers: int = 2) -> None:
        self.simulation = Simulation(8, ScheduleOptions(brokers=brokers, swarm=False, damages=True))
        for machine in self.simulation.machines.values():
            if machine.node is None:
                machine.start()
        self.until(lambda: len(self.simulation.etcd.state.isr) == brokers)
        self.leader = next(it for it in self.machines if it.node and it.node.leader)
        self.follower = next(it for it in self.machines if it is not self.leader)
        for _ in range(MESSAGES):
            self.simulation.clients.write_now(self.leader)
            self.round()

    @property
    def machines(self) -> list[Machine]:
        return list(self.simulation.machines.values())

    def round(self) -> None:
        self.simulation.now_s += STEP_S
        self.simulation.round()

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(60):
            if done():
                return
            self.round()
        raise AssertionError(self.simulation.etcd.state)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def log_of(machine: Machine) -> SimulatedLog:
    return machine.directory.logs[DATA]


def leads(machine: Machine) -> bool:
    return machine.node is not None and machine.node.leader is not None


def damage_unseen(machine: Machine) -> None:
    """Damage that only CRCs show: the leader sends it."""
    log_of(machine).go_bad(1)


def damage(machine: Machine) -> None:
    log_of(machine).go_bad(MESSAGES - 2)
    log_of(machine).find_damage()


def stands_for_election(simulation: Simulation) -> bool:
    """Whether a request to be elected is on its way to etcd."""
    wanted = [one.effect for one in simulation.requests]
    return any(isinstance(it, Transact) and it.lead_on_lease is not None for it in wanted)


def stand_for_election(cluster: Cluster) -> None:
    """Stop the leader, and go on until the follower's request to be elected is on its way."""
    cluster.leader.stop(silent=False)
    simulation = cluster.simulation
    while not stands_for_election(simulation):
        if simulation.requests:
            simulation.deliver()
        else:
            simulation.now_s += STEP_S
            cluster.follower.tick()


def test_a_damaged_leader_lets_another_one_lead_and_copies_what_is_bad(cluster: Cluster) -> None:
    leader, follower = cluster.leader, cluster.follower
    damage(leader)
    cluster.until(lambda: leads(follower) and len(cluster.simulation.etcd.state.isr) == 2)
    assert log_of(leader).bad_from is None
    assert log_of(leader).entries == log_of(follower).entries
    assert len(log_of(leader).entries) == MESSAGES


def test_a_damaged_follower_is_out_of_sync_until_it_has_copied_what_is_bad(
    cluster: Cluster,
) -> None:
    leader, follower = cluster.leader, cluster.follower
    before = follower.directory.member
    damage(follower)
    cluster.until(lambda: log_of(follower).bad_from is None)
    cluster.until(lambda: follower.directory.member in cluster.simulation.etcd.state.isr)
    assert leads(leader)
    assert follower.directory.member != before
    assert log_of(follower).entries == log_of(leader).entries


def test_the_only_member_in_sync_leads_with_damage_and_cuts_nothing(cluster: Cluster) -> None:
    leader, follower = cluster.leader, cluster.follower
    follower.stop(silent=False)
    cluster.until(lambda: len(cluster.simulation.etcd.state.isr) == 1)
    damage(leader)
    for _ in range(20):
        cluster.round()
    assert leads(leader)
    assert len(log_of(leader).entries) == MESSAGES
    follower.start()
    cluster.until(lambda: leads(follower) and log_of(leader).bad_from is None)


def test_a_broker_that_meets_damage_after_it_stood_for_election_does_not_lead(
    cluster: Cluster,
) -> None:
    leader, follower = cluster.leader, cluster.follower
    simulation = cluster.simulation
    stand_for_election(cluster)
    damage(follower)
    follower.tick()
    for _ in range(20):
        cluster.round()
        assert not leads(follower)
    leader.start()
    cluster.until(lambda: leads(leader) and len(simulation.etcd.state.isr) == 2)
    assert log_of(follower).entries == log_of(leader).entries
    assert len(log_of(leader).entries) == MESSAGES


def test_a_broker_that_is_elected_under_an_earlier_nonce_does_not_lead(cluster: Cluster) -> None:
    follower = cluster.follower
    stand_for_election(cluster)
    node = follower.node
    assert isinstance(node, ClusterNode)
    node.remember(node.identity._replace(nonce=node.identity.nonce + 1))
    for _ in range(20):
        cluster.round()
        assert not leads(follower)
    node.accepts_loss = True
    cluster.until(lambda: leads(follower))
    assert follower.directory.member in cluster.simulation.etcd.state.isr


@pytest.mark.parametrize("brokers", [2, 3])
def test_a_follower_that_gets_damaged_messages_has_its_leader_check(brokers: int) -> None:
    """Another member in sync leads then; a leader that is alone goes on, and knows the damage."""
    cluster = Cluster(brokers)
    leader = cluster.leader
    *others, late = [it for it in cluster.machines if it is not leader]
    late.stop(silent=False)
    cluster.until(lambda: len(cluster.simulation.etcd.state.isr) == brokers - 1)
    log_of(late).truncate_fully(0, None)
    damage_unseen(leader)
    late.start()
    if not others:
        cluster.until(lambda: log_of(leader).damage_known)
        assert leads(leader)
        assert log_of(late).entries == log_of(leader).entries[:1]
        return
    cluster.until(lambda: leads(others[0]))
    cluster.until(lambda: len(cluster.simulation.etcd.state.isr) == brokers)
    for machine in cluster.machines:
        assert log_of(machine).bad_from is None
        assert log_of(machine).entries == log_of(others[0]).entries
        assert len(log_of(machine).entries) == MESSAGES
