"""Where a reader goes on in another cluster."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from horolog import blocking
from horolog.pipeline.jobs.failover import FailoverPlan, failover_plan, failover_plan_at
from horolog.testing.broker import BrokerThread

from ..brokers import commit, create, send

T = 1_479_132_000_000
SECOND = 1000


@pytest.fixture
def other_broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path / "other") as broker:
        yield broker


def resume_offsets(plan: FailoverPlan) -> list[int]:
    return [one.offset for one in plan.resume]


def test_steps_back_by_the_largest_latency(
    horolog_broker: BrokerThread, other_broker: BrokerThread
) -> None:
    old, new = horolog_broker, other_broker
    for broker, order in ((old, (2, 1, 3)), (new, (1, 2, 3))):
        create(broker, "m")
        send(broker, "m", [T + second * SECOND for second in order])
    commit(old, "reader", "m", 0, 1)  # has read the message of second 2 only
    plan = failover_plan(old.address, new.address, "m", "reader", 1 * SECOND)
    (consumed,) = plan.consumed
    assert (consumed.position, consumed.last_ms) == (1, T + 2 * SECOND)
    assert resume_offsets(plan) == [0]
    assert plan.resume[0].timestamp_ms == T + 1 * SECOND
    assert plan.resume[0].rows == 3
    assert plan.starting_offsets() == '{"m":{"0":0}}'
    without_latency = failover_plan(old.address, new.address, "m", "reader", 0)
    assert resume_offsets(without_latency) == [1]  # and the message of second 1 is missed


def test_partitions_of_another_number_go_by_the_earliest_time(
    horolog_broker: BrokerThread, other_broker: BrokerThread
) -> None:
    old, new = horolog_broker, other_broker
    create(old, "m", 2)
    send(old, "m", [T, T + 10 * SECOND], partition=0)
    send(old, "m", [T + 5 * SECOND], partition=1)
    create(new, "m", 1)
    send(new, "m", [T, T + 5 * SECOND, T + 10 * SECOND])
    commit(old, "reader", "m", 0, 2)
    commit(old, "reader", "m", 1, 1)
    plan = failover_plan(old.address, new.address, "m", "reader", 0)
    assert resume_offsets(plan) == [1]
    with pytest.raises(ValueError, match="2 partitions in the old cluster and 1 in the new"):
        failover_plan(old.address, new.address, "m", "reader", 0, same_partitions=True)


def test_same_partitions_go_by_their_own_times(
    horolog_broker: BrokerThread, other_broker: BrokerThread
) -> None:
    old, new = horolog_broker, other_broker
    for broker in (old, new):
        create(broker, "m", 3)
        send(broker, "m", [T, T + 10 * SECOND], partition=0)
        send(broker, "m", [T + 5 * SECOND], partition=1)
    commit(old, "reader", "m", 0, 2)
    commit(old, "reader", "m", 1, 1)
    plan = failover_plan(old.address, new.address, "m", "reader", 0, same_partitions=True)
    assert resume_offsets(plan) == [1, 0, 0]
    together = failover_plan(old.address, new.address, "m", "reader", 0)
    assert resume_offsets(together) == [1, 0, 0]


def test_a_partition_that_was_not_read_means_the_beginning(
    horolog_broker: BrokerThread, other_broker: BrokerThread
) -> None:
    old, new = horolog_broker, other_broker
    for broker in (old, new):
        create(broker, "m", 2)
        send(broker, "m", [T, T + SECOND], partition=0)
        send(broker, "m", [T], partition=1)
    commit(old, "reader", "m", 0, 2)
    plan = failover_plan(old.address, new.address, "m", "reader", 0)
    assert resume_offsets(plan) == [0, 0]
    assert plan.resume[0].from_ms is None
    with pytest.raises(ValueError, match="nothing is committed under 'nobody'"):
        failover_plan(old.address, new.address, "m", "nobody", 0)


def test_a_message_that_came_before_it_was_created_counts_from_when_it_came(
    horolog_broker: BrokerThread, other_broker: BrokerThread
) -> None:
    old, new = horolog_broker, other_broker
    old.clock.freeze()
    now_ms = old.clock.now_ms()
    for broker in (old, new):
        create(broker, "m")
        send(broker, "m", [now_ms + 3600 * SECOND])
    commit(old, "reader", "m", 0, 1)
    plan = failover_plan(old.address, new.address, "m", "reader", 0)
    assert plan.consumed[0].last_ms == now_ms


def test_without_the_old_cluster(other_broker: BrokerThread) -> None:
    create(other_broker, "m", 2)
    send(other_broker, "m", [T, T + SECOND, T + 2 * SECOND])
    plan = failover_plan_at(other_broker.address, "m", T + 2 * SECOND, SECOND)
    assert resume_offsets(plan) == [1, 0]
    assert plan.consumed == ()
    with pytest.raises(ValueError, match="from 0 ms on"):
        failover_plan_at(other_broker.address, "m", T, -1)


def test_nothing_is_missed_at_the_largest_latency_and_some_is_without(
    horolog_broker: BrokerThread, other_broker: BrokerThread
) -> None:
    """Two clusters that get the same messages at most 300 ms late, each in an order of its own."""
    random = Random(3)
    created = [T + 7 * number for number in range(1500)]
    orders = []
    for broker in (horolog_broker, other_broker):
        arrivals = sorted((time + random.randrange(300), time) for time in created)
        orders.append([time for _, time in arrivals])
        create(broker, "m")
        with blocking.Producer(broker.address) as producer:
            order = orders[-1]
            producer.send_batch("m", [str(time).encode() for time in order], timestamps_ms=order)
    old_order, new_order = orders
    missed = {0: 0, 300: 0}
    for position in range(100, 1500, 100):
        commit(horolog_broker, "reader", "m", 0, position)
        read = set(old_order[:position])
        for latency_ms in missed:
            plan = failover_plan(
                horolog_broker.address, other_broker.address, "m", "reader", latency_ms
            )
            missed[latency_ms] += len(set(new_order[: resume_offsets(plan)[0]]) - read)
    assert missed[0] > 0
    assert missed[300] == 0
