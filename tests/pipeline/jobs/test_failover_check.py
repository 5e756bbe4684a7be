"""Whether a failover misses messages: the parts that are compared, and the comparison."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from horolog import blocking
from horolog.pipeline.jobs.failover import FailoverCheck, failover_check, part_before, part_from
from horolog.pipeline.jobs.ranges import PartitionRange, ReadPlan, plan_by_create_time
from horolog.testing.broker import BrokerThread

from ..brokers import create

T = 1_479_132_000_000


@pytest.fixture
def other_broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path / "other") as broker:
        yield broker


def test_parts_of_a_plan() -> None:
    plan = ReadPlan("server", "m", None, None, (PartitionRange("m", 0, 10, 20, 0),))

    def parts(offset: int) -> tuple[tuple[int, int], tuple[int, int]]:
        before, behind = part_before(plan, {0: offset}), part_from(plan, {0: offset})
        return (
            (before.ranges[0].start_offset, before.ranges[0].end_offset),
            (behind.ranges[0].start_offset, behind.ranges[0].end_offset),
        )

    assert parts(15) == ((10, 15), (15, 20))
    assert parts(5) == ((10, 10), (10, 20))
    assert parts(25) == ((10, 20), (20, 20))


def test_nothing_to_compare(spark: SparkSession) -> None:
    plan = ReadPlan("127.0.0.1:1", "m", None, None, ())
    assert failover_check(spark, plan, plan, plan) == FailoverCheck(0, 0, 0, 0, 0)


def test_misses_and_copies_are_counted(
    spark: SparkSession, horolog_broker: BrokerThread, other_broker: BrokerThread
) -> None:
    random = Random(5)
    created = [T + number for number in range(300)]
    orders: list[list[int]] = []
    plans = []
    for broker in (horolog_broker, other_broker):
        orders.append(sorted(created, key=lambda time: time + random.randrange(50)))
        create(broker, "m")
        with blocking.Producer(broker.address) as producer:
            values = [b"%d" % time for time in orders[-1]]
            producer.send_batch("m", values, timestamps_ms=orders[-1])
        plans.append(plan_by_create_time(broker.address, "m", None, None))
    old, new = plans
    read = set(orders[0][:100])
    resume = 90
    missed = set(orders[1][:resume]) - read
    twice = set(orders[1][resume:]) & read
    assert missed
    assert twice
    found = failover_check(
        spark,
        part_before(old, {0: 100}),
        part_before(new, {0: resume}),
        part_from(new, {0: resume}),
    )
    assert found == FailoverCheck(100, resume, 300 - resume, len(missed), len(twice))
