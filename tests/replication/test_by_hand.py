"""Clusters without etcd, and the rules that a person meets there."""

import random
from collections.abc import Callable, Iterable

import pytest

from horolog.replication.hand_node import EPOCHS_APART, HandNode, next_epoch
from horolog.replication.messages import hello_of
from horolog.replication.settings import Member
from horolog.storage.log.epoch_history import NO_EPOCH
from horolog.testing.simulation.by_hand import HandSimulation
from horolog.testing.simulation.machine import Machine
from horolog.testing.simulation.options import ScheduleOptions
from horolog.testing.simulation.violation import Violation

SCHEDULES = 2_500
"""Each run takes a sample of these."""


def simulation(
    seed: int,
    node_class: type[HandNode] = HandNode,
    *,
    own_min_insync: bool = True,
    loses_histories: bool = False,
) -> HandSimulation:
    options = ScheduleOptions(
        node_class=node_class,
        lease=False,
        own_min_insync=own_min_insync,
        loses_histories=loses_histories,
    )
    return HandSimulation(seed, options)


def test_schedules_that_broke_something() -> None:
    run((319497927581, 319497940132), own_min_insync=False, loses_histories=False)
    run((719000030972, 700671158443))


def test_what_is_promised_holds(sample: Callable[[int], range]) -> None:
    run(sample(SCHEDULES))


@pytest.mark.soak
def test_what_is_promised_holds_for_long(request: pytest.FixtureRequest) -> None:
    base = random.Random(f"by hand {request.config.option.hypothesis_seed}").randrange(2**40)
    run(range(base, base + 200_000))


def run(seeds: Iterable[int], *, own_min_insync: bool = True, loses_histories: bool = True) -> None:
    for seed in seeds:
        try:
            simulation(seed, own_min_insync=own_min_insync, loses_histories=loses_histories).run()
        except Violation as violation:
            raise AssertionError(f"seed {seed}: {violation}") from violation


class Promotes(HandNode):
    """Whoever is asked leads, without a word of loss."""

    def promote(self, now_s: float, *, accept_loss: bool = False) -> str | None:
        if self.leader is None:
            self.unfollow()
            self._begin(now_s, frozenset())
        return None


class LeadsAfterAStart(HandNode):
    """A leader that was started again asks nobody."""

    def tick(self, now_s: float) -> None:
        if self.confirmed_by is not None:
            self.confirmed_by.update(range(1, self.brokers + 1))
        super().tick(now_s)


class TakesLess(HandNode):
    """A topic may ask for less than all, and every broker is promoted without a word of loss."""

    def tick(self, now_s: float) -> None:
        self.settings = self.settings._replace(least_min_insync=1)
        super().tick(now_s)


NOTICED: dict[type[HandNode], int] = {Promotes: 7, LeadsAfterAStart: 1152, TakesLess: 0}
"""The first schedule that notices each wrong rule."""


@pytest.mark.parametrize("wrong", NOTICED)
def test_a_wrong_rule_is_noticed(wrong: type[HandNode]) -> None:
    with pytest.raises(Violation):
        simulation(NOTICED[wrong], wrong).run()


def test_the_right_rules_hold_where_a_wrong_one_is_noticed() -> None:
    run(NOTICED.values(), loses_histories=False)


@pytest.mark.soak
@pytest.mark.parametrize("wrong", NOTICED)
def test_the_first_schedule_that_notices_a_wrong_rule(wrong: type[HandNode]) -> None:
    for seed in range(NOTICED[wrong]):
        simulation(seed, wrong).run()


def test_brokers_give_themselves_different_epochs() -> None:
    for highest in (-1, 0, 1, 2, 999, 1_001, 5_002):
        epochs = [next_epoch(highest, broker_id) for broker_id in (1, 2, 3)]
        assert len(set(epochs)) == 3
        assert all(highest < epoch <= highest + EPOCHS_APART + 1 for epoch in epochs)


def test_a_promotion_says_why_it_would_lose() -> None:
    cluster = simulation(1)
    cluster.settings = cluster.settings._replace(min_insync=1)
    cluster.restart(cluster.machines[2], follows=1)
    for _ in range(10):
        cluster.now_s += 0.4
        cluster.round()
    node = cluster.machines[2].node
    assert isinstance(node, HandNode)
    assert "min.insync.replicas is 1" in str(node.promote(cluster.machines[2].now_s))
    node.remember(node.identity._replace(in_doubt=True))
    assert "has not caught up" in str(node.promote(cluster.machines[2].now_s))
    assert node.leader is None
    assert node.promote(cluster.machines[2].now_s, accept_loss=True) is None
    assert node.leader is not None


def a_leader_of_an_unknown_epoch() -> HandSimulation:
    """Broker 1 has led alone in epoch 1001, and is down. Broker 2, which did not hear of that,
    leads in epoch 2, because an operator accepted a loss."""
    cluster = simulation(1)
    cluster.settings = cluster.settings._replace(min_insync=1)
    first, second = cluster.machines[1], cluster.machines[2]
    cluster.restart(second, follows=1)
    rounds(cluster)
    for other in cluster.machines.values():
        if other is not first:
            other.stop(silent=False)
    cluster.restart(first, follows=None)
    assert isinstance(first.node, HandNode)
    first.node.lead_alone(first.now_s)
    first.settle()
    assert first.directory.identity.highest_epoch == 1001
    first.stop(silent=False)
    second.start()
    cluster._promote(second)
    cluster.loss_accepted = True  # All that is lost was lost by now.
    assert leads_in(second) == 2
    return cluster


def rounds(cluster: HandSimulation) -> None:
    for _ in range(10):
        cluster.now_s += 0.4
        cluster.round()


def leads_in(machine: Machine) -> int | None:
    node = machine.node
    return None if node is None or node.leader is None else node.leader.epoch


def test_a_leader_goes_on_when_an_old_leader_with_a_newer_epoch_follows_it() -> None:
    cluster = a_leader_of_an_unknown_epoch()
    first, second = cluster.machines[1], cluster.machines[2]
    cluster.restart(first, follows=2)
    rounds(cluster)
    assert leads_in(second) == 1002
    assert second.node is not None
    assert second.node.leader is not None
    assert first.directory.member in second.node.leader.isr.members


def test_a_leader_stops_when_a_follower_of_a_newer_leader_follows_it() -> None:
    """That leader may still be there."""
    cluster = a_leader_of_an_unknown_epoch()
    second = cluster.machines[2]
    hello = hello_of(Member(3, 7), NO_EPOCH, 1001, {})
    assert second.node is not None
    second.node.from_follower(second.now_s, "connection of broker 3", hello)
    second.node.tick(second.now_s)
    assert leads_in(second) is None
    assert second.directory.identity.highest_epoch == 1001


def test_a_broker_that_has_not_led_outlives_no_leader() -> None:
    cluster = a_leader_of_an_unknown_epoch()
    empty = cluster.machines[1]
    empty.directory = cluster.new_directory(1)
    cluster.restart(empty, follows=None)
    assert empty.node is not None
    hello = hello_of(Member(2, 7), NO_EPOCH, 1002, {})
    empty.node.from_follower(empty.now_s, "connection of broker 2", hello)
    empty.node.tick(empty.now_s)
    assert leads_in(empty) is None


def test_a_leader_does_not_lead_again_after_one_that_knew_no_better() -> None:
    """The epoch of broker 2 is the older one, but it led later, and its messages count."""
    cluster = a_leader_of_an_unknown_epoch()
    first, second = cluster.machines[1], cluster.machines[2]
    cluster.restart(second, follows=1)
    cluster.restart(first, follows=None)
    rounds(cluster)
    assert leads_in(first) is None
    assert isinstance(first.node, HandNode)
    assert first.node.newer_epoch == 2
    cluster._promote(second)
    cluster.restart(first, follows=2)
    rounds(cluster)
    assert leads_in(second) == 1002


def test_a_leader_leads_again_where_a_follower_led_before_it_followed() -> None:
    """The follower knows an epoch in which it led, and which this leader never heard of."""
    cluster = a_leader_of_an_unknown_epoch()
    first, second = cluster.machines[1], cluster.machines[2]
    cluster.restart(second, follows=1)
    cluster.restart(first, follows=None)
    assert isinstance(first.node, HandNode)
    first.node.lead_alone(first.now_s)
    for machine in cluster.machines.values():
        if machine.node is None:
            cluster.restart(machine, follows=1)
    rounds(cluster)
    assert 2 in second.directory.owners
    cluster.restart(first, follows=None)
    rounds(cluster)
    assert leads_in(first) == 3001
