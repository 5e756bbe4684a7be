"""How far readers are behind, in the times of the messages."""

from horolog.pipeline.jobs.lag import lag_by_time
from horolog.testing.broker import BrokerThread

from ..brokers import commit, create, send

T = 1_479_132_000_000


def test_each_position_with_its_times(horolog_broker: BrokerThread) -> None:
    create(horolog_broker, "clicks", 2)
    send(horolog_broker, "clicks", [T, T + 5000, T + 2000])
    commit(horolog_broker, "job", "clicks", 0, 1)
    commit(horolog_broker, "job", "clicks", 1, 0)
    commit(horolog_broker, "other", "clicks", 0, 3)
    first, empty, other = lag_by_time(horolog_broker.address)
    assert (first.name, first.partition, first.position, first.end_offset) == ("job", 0, 1, 3)
    assert (first.messages, first.read_until_ms, first.newest_ms) == (2, T, T + 5000)
    assert first.apart_ms == 5000
    assert (empty.messages, empty.behind_s, empty.read_until_ms, empty.apart_ms) == (
        0,
        0.0,
        None,
        None,
    )
    assert (other.name, other.messages, other.read_until_ms) == ("other", 0, T + 2000)
    assert lag_by_time(horolog_broker.address, ["other"]) == [other]
    assert lag_by_time(horolog_broker.address, ["nobody"]) == []


def test_messages_that_wait_are_behind_by_the_broker_s_clock(horolog_broker: BrokerThread) -> None:
    horolog_broker.clock.freeze()
    create(horolog_broker, "clicks")
    send(horolog_broker, "clicks", [T, T])
    commit(horolog_broker, "job", "clicks", 0, 1)
    horolog_broker.clock.step(90)
    (row,) = lag_by_time(horolog_broker.address)
    assert (row.behind_s, row.estimated, row.apart_ms) == (90.0, False, 0)
