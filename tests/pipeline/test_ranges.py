"""Which offsets a job reads, asked of a real broker."""

import pytest

from horolog import TimeError, blocking
from horolog.pipeline.jobs.ranges import (
    ReadPlan,
    offsets_json,
    plan_by_append_time,
    plan_by_create_time,
)
from horolog.protocol.errors import UnknownTopicOrPartition
from horolog.testing.broker import BrokerThread

from .brokers import create, send

T = 1_479_132_000_000
MINUTE = 60_000


def offsets(plan: ReadPlan) -> list[tuple[int, int]]:
    return [(one.start_offset, one.end_offset) for one in plan.ranges]


@pytest.fixture
def broker(horolog_broker: BrokerThread) -> BrokerThread:
    """Topic `clicks`: partition 0 has a message of minute 2 after that of minute 9, 1 has none."""
    create(horolog_broker, "clicks", 2)
    send(horolog_broker, "clicks", [T + MINUTE * minute for minute in (1, 3, 9, 2, 10)])
    return horolog_broker


def test_late_messages_are_within_the_plan(broker: BrokerThread) -> None:
    plan = plan_by_create_time(broker.address, "clicks", T + 2 * MINUTE, T + 4 * MINUTE)
    assert offsets(plan) == [(1, 5), (0, 0)]
    assert plan.rows == 4
    starts = [(one.topic, one.partition, one.start_offset) for one in plan.ranges]
    ends = [(one.topic, one.partition, one.end_offset) for one in plan.ranges]
    assert offsets_json(starts) == '{"clicks":{"0":1,"1":0}}'
    assert offsets_json(ends) == '{"clicks":{"0":5,"1":0}}'


def test_a_bound_on_lateness_ends_the_plan_earlier(broker: BrokerThread) -> None:
    def until(late_ms: int) -> int:
        plan = plan_by_create_time(
            broker.address, "clicks", T, T + 4 * MINUTE, max_out_of_order_ms=late_ms
        )
        return plan.ranges[0].end_offset

    assert until(5 * MINUTE) == 2  # the message of minute 9 is the first one of it
    assert until(5 * MINUTE + 1) == 4
    assert until(7 * MINUTE) == 5


def test_open_sides_are_the_ends_of_the_log(broker: BrokerThread) -> None:
    assert offsets(plan_by_create_time(broker.address, "clicks", None, None)) == [(0, 5), (0, 0)]
    assert offsets(plan_by_create_time(broker.address, "clicks", T + 11 * MINUTE, None)) == [
        (5, 5),
        (0, 0),
    ]


def test_by_append_time(broker: BrokerThread) -> None:
    broker.clock.freeze()
    between_ms = broker.clock.now_ms() + 60_000
    broker.clock.step(60)
    send(broker, "clicks", [T])
    plan = plan_by_append_time(broker.address, "clicks", between_ms, None)
    assert offsets(plan)[0] == (5, 6)
    plan = plan_by_append_time(broker.address, "clicks", between_ms - 120_000, between_ms)
    assert offsets(plan)[0] == (0, 5)


def test_messages_that_may_have_been_deleted_are_told(broker: BrokerThread) -> None:
    with blocking.Admin(broker.address) as admin:
        admin.delete_records("clicks", 0, 1)
    plan = plan_by_create_time(broker.address, "clicks", T, None)
    assert [one.partition for one in plan.cut_off] == [0]
    assert plan.rows == 4
    # The first message of that time is behind the first one stored: nothing of it was before.
    assert plan_by_create_time(broker.address, "clicks", T + 4 * MINUTE, None).cut_off == ()
    # Without a start everything is of these times.
    plan = plan_by_create_time(broker.address, "clicks", None, T + 4 * MINUTE)
    assert [one.partition for one in plan.cut_off] == [0]


@pytest.mark.parametrize(("late", "cut_off"), [(None, False), (5, False), (7, True)])
def test_messages_may_have_been_before_an_earlier_one(
    broker: BrokerThread, late: int | None, cut_off: bool
) -> None:
    """The log begins with that of minute 2: the one of minute 9 was before it."""
    with blocking.Admin(broker.address) as admin:
        admin.delete_records("clicks", 0, 3)
    plan = plan_by_create_time(
        broker.address,
        "clicks",
        T + 9 * MINUTE,
        None,
        max_out_of_order_ms=None if late is None else late * MINUTE,
    )
    assert [one.partition for one in plan.cut_off] == [0] * cut_off


def test_what_is_refused(broker: BrokerThread) -> None:
    with pytest.raises(ValueError, match="at or before their start"):
        plan_by_create_time(broker.address, "clicks", T, T)
    for plan in (plan_by_create_time, plan_by_append_time):
        for times in ((None, T // 1000), (T // 1000, None), (None, T * 1000)):
            with pytest.raises(TimeError, match=r"looks like (micro)?seconds"):
                plan(broker.address, "clicks", *times)
    with pytest.raises(UnknownTopicOrPartition):
        plan_by_create_time(broker.address, "no-such-topic", None, None)


def test_equal_offsets_are_equal_text() -> None:
    some = [("b", 10, 1), ("b", 9, 2), ("a", 0, 3)]
    assert offsets_json(some) == offsets_json(reversed(some))
    assert offsets_json(some) == '{"a":{"0":3},"b":{"9":2,"10":1}}'


def test_lateness_behind_the_last_time_there_is(broker: BrokerThread) -> None:
    last_ms = 2**63 - 1
    to_ms = T + MINUTE
    plan = plan_by_create_time(broker.address, "clicks", T, to_ms, max_out_of_order_ms=last_ms)
    assert plan.ranges == plan_by_create_time(broker.address, "clicks", T, to_ms).ranges
