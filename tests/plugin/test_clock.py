"""The clock that a test freezes, steps, sets and speeds up, and what follows it at once."""

from datetime import UTC, datetime, timedelta

import pytest

from horolog import blocking
from horolog.clock import SystemClock
from horolog.protocol.errors import UnknownMemberId
from horolog.server.broker import Broker
from horolog.testing.broker import BrokerThread
from horolog.testing.clock import ManualClock, MovingClock
from horolog.testing.waiting import wait_until
from horolog.tests.groups.requests import commit, heartbeat, kafka_client, stable
from horolog.times import TimeError

MINUTE_MS = 60_000
HOUR = 3600
DAY = 24 * HOUR
LONG_AGO = datetime(2016, 11, 14, 17, 24, 32, tzinfo=UTC)


async def ahead_ms(broker: Broker) -> int:
    """How far the clock is ahead of the time that retention trusts."""
    return broker.trusted_time.ahead_ms


def log_start(broker: BrokerThread, topic: str = "a") -> int:
    with blocking.Admin(broker.address) as admin:
        return admin.describe_log(topic).log_start_offset


class StoppedClock(ManualClock):
    """The machine's, of a process that stands still for a second each time that it has read one of
    the two clocks, so many times."""

    stops = 0

    def now_ms(self) -> int:
        now_ms = super().now_ms()
        self._stop()
        return now_ms

    def monotonic(self) -> float:
        monotonic = super().monotonic()
        self._stop()
        return monotonic

    def _stop(self) -> None:
        if self.stops:
            self.stops -= 1
            self.advance(1_000)


@pytest.mark.parametrize("stops", range(5))
def test_a_process_that_stands_still_makes_no_clock_wrong(stops: int) -> None:
    real = StoppedClock()
    real.stops = stops
    clock = MovingClock(real)
    assert clock.now_ms() == real.now_ms()
    clock.step(20)
    real.stops = stops
    offset = clock.offset()
    assert offset.ahead_ms == 20_000
    clock.step(7)
    real.stops = stops
    clock.take(offset)
    assert clock.now_ms() == real.now_ms() + 20_000
    assert clock.offset() == offset


def test_a_speed_lets_both_clocks_run_faster() -> None:
    real = ManualClock(1_000_000, 10.0)
    clock = MovingClock(real)
    clock.run(60)
    real.advance(1_000)
    assert (clock.now_ms(), clock.monotonic(), clock.speed) == (1_060_000, 70.0, 60)
    clock.freeze()
    real.advance(1_000)
    assert (clock.now_ms(), clock.monotonic(), clock.speed) == (1_060_000, 70.0, 0)
    clock.run(0.5)
    real.advance(1_000)
    assert (clock.now_ms(), clock.monotonic()) == (1_060_500, 70.5)
    clock.unfreeze()
    real.advance(1_000)
    assert (clock.now_ms(), clock.speed) == (1_061_500, 1)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -float("inf"), 1e12, -1e10])
@pytest.mark.parametrize("move", ["step", "jump"])
def test_a_move_beyond_the_times_of_messages_is_refused(move: str, seconds: float) -> None:
    clock = MovingClock(ManualClock(1_000_000, 10.0))
    with pytest.raises(ValueError, match="may be moved to times from 0 to"):
        getattr(clock, move)(seconds)
    assert (clock.now_ms(), clock.monotonic()) == (1_000_000, 10.0)


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf"), 1_000_001])
def test_a_speed_out_of_range_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1000000"):
        MovingClock().run(speed)


@pytest.mark.parametrize(
    "given", [LONG_AGO, round(LONG_AGO.timestamp() * 1000), "2016-11-14T17:24:32Z"]
)
def test_a_clock_is_set_to_a_time(given: datetime | int | str) -> None:
    clock = MovingClock()
    clock.freeze()
    passed = clock.monotonic()
    clock.set(given)
    assert clock.now_ms() == LONG_AGO.timestamp() * 1000
    assert clock.monotonic() == passed
    clock.set("2016-11-14T17:24:42Z")
    assert clock.monotonic() == pytest.approx(passed + 10)
    clock.set("@-10s")
    assert clock.now_ms() == LONG_AGO.timestamp() * 1000


def test_a_time_that_is_none_is_refused() -> None:
    clock = MovingClock()
    clock.freeze()
    now_ms = clock.now_ms()
    for wrong in (LONG_AGO.replace(tzinfo=None), "yesterday", 1_479_144_272):
        with pytest.raises((ValueError, TimeError)):
            clock.set(wrong)
    assert clock.now_ms() == now_ms


@pytest.mark.parametrize(
    ("method", "given", "says"),
    [
        ("step", timedelta(days=1), r"seconds datetime.timedelta\(days=1\): .*total_seconds"),
        ("jump", None, "seconds None: it must be a number"),
        ("set", None, "time None: it must be a datetime"),
        ("run", "fast", "speed 'fast': it must be a number"),
    ],
)
def test_arguments_of_another_type_are_refused(method: str, given: object, says: str) -> None:
    clock = MovingClock(ManualClock(1_000_000, 10.0))
    with pytest.raises(TypeError, match=says):
        getattr(clock, method)(given)
    assert (clock.now_ms(), clock.monotonic(), clock.speed) == (1_000_000, 10.0, 1)


@pytest.fixture
def horolog_settings() -> dict[str, object]:
    return {"file.delete.delay.ms": 60_000}


def test_retention_follows_a_step_that_is_shorter_than_its_interval(
    horolog_broker: BrokerThread,
) -> None:
    horolog_broker.clock.freeze()
    with (
        blocking.Admin(horolog_broker.address) as admin,
        blocking.Producer(horolog_broker.address) as producer,
    ):
        admin.create_topic("a", settings={"retention.ms": "60000"})
        producer.send("a", b"value", timestamp_ms=horolog_broker.clock.now_ms())
    horolog_broker.clock.step(59)
    assert log_start(horolog_broker) == 0
    horolog_broker.clock.step(2)
    assert log_start(horolog_broker) == 1


def test_retention_follows_a_clock_that_was_set_back_to_another_year(
    horolog_broker: BrokerThread,
) -> None:
    clock = horolog_broker.clock
    clock.set(LONG_AGO)
    assert abs(horolog_broker.in_loop(ahead_ms)) < 1_000
    with (
        blocking.Admin(horolog_broker.address) as admin,
        blocking.Producer(horolog_broker.address) as producer,
    ):
        admin.create_topic("a", settings={"retention.ms": str(DAY * 1000)})
        producer.send("a", b"value", timestamp_ms=clock.now_ms())
    clock.step(HOUR)
    assert log_start(horolog_broker) == 0
    clock.set("2016-11-16T00:00:00Z")
    assert log_start(horolog_broker) == 1


@pytest.mark.parametrize(("move", "log_starts_at"), [("step", 1), ("jump", 0)])
def test_retention_follows_a_clock_that_was_moved_while_the_broker_was_stopped(
    horolog_broker: BrokerThread, move: str, log_starts_at: int
) -> None:
    """A clock that was set wrong it does not follow."""
    clock = horolog_broker.clock
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("a", b"value", timestamp_ms=clock.now_ms())
    horolog_broker.faults.stop_leader()
    getattr(clock, move)(8 * DAY)
    horolog_broker.start()
    assert log_start(horolog_broker) == log_starts_at
    clock.step(1)
    assert log_start(horolog_broker) == log_starts_at


def test_a_clock_that_was_set_back_while_the_broker_was_stopped_is_believed(
    horolog_broker: BrokerThread,
) -> None:
    horolog_broker.faults.stop_leader()
    horolog_broker.clock.set(LONG_AGO)
    horolog_broker.start()
    assert abs(horolog_broker.in_loop(ahead_ms)) < 1_000


def test_retention_follows_a_clock_that_runs_faster(horolog_broker: BrokerThread) -> None:
    with (
        blocking.Admin(horolog_broker.address) as admin,
        blocking.Producer(horolog_broker.address) as producer,
    ):
        admin.create_topic("a", settings={"retention.ms": str(7 * DAY * 1000)})
        producer.send("a", b"value", timestamp_ms=horolog_broker.clock.now_ms())
        assert admin.describe_log("a").log_start_offset == 0
        horolog_broker.clock.run(10 * DAY)
        wait_until(lambda: admin.describe_log("a").log_start_offset == 1)
    horolog_broker.clock.run()
    assert horolog_broker.clock.speed == 1


def test_an_idle_segment_rolls_at_its_time(horolog_broker: BrokerThread) -> None:
    with (
        blocking.Admin(horolog_broker.address) as admin,
        blocking.Producer(horolog_broker.address) as producer,
    ):
        admin.create_topic("a", settings={"segment.ms": str(10 * MINUTE_MS)})
        producer.send("a", b"value", timestamp_ms=horolog_broker.clock.now_ms())
        horolog_broker.clock.step(9 * 60)
        assert len(admin.describe_log("a").segments) == 1
        horolog_broker.clock.step(61)
        assert len(admin.describe_log("a").segments) == 2


def test_append_times_are_those_of_the_clock(horolog_broker: BrokerThread) -> None:
    clock = horolog_broker.clock
    clock.freeze()
    clock.set(LONG_AGO)
    with (
        blocking.Admin(horolog_broker.address) as admin,
        blocking.Producer(horolog_broker.address) as producer,
    ):
        admin.create_topic("a", settings={"message.timestamp.type": "LogAppendTime"})
        assert producer.send("a", b"value").timestamp_ms == clock.now_ms()
        clock.step(90)
        assert producer.send("a", b"value").timestamp_ms == clock.now_ms()
    first, second = horolog_broker.topic("a").messages()
    assert (second.timestamp_ms or 0) - (first.timestamp_ms or 0) == 90_000
    assert first.append_time_ms == LONG_AGO.timestamp() * 1000


def test_lag_in_seconds_follows_the_clock(horolog_broker: BrokerThread) -> None:
    clock = horolog_broker.clock
    clock.freeze()
    with (
        blocking.Admin(horolog_broker.address) as admin,
        blocking.Producer(horolog_broker.address) as producer,
    ):
        producer.send("a", b"value", timestamp_ms=clock.now_ms())
        admin.commit_position("reader", "a", 0, 0)
        clock.step(3 * HOUR)
        (told,) = admin.lag("reader")
        assert told.lag is not None
        assert told.lag.seconds == 3 * HOUR


async def test_members_and_positions_of_groups_follow_the_clock(
    horolog_broker: BrokerThread,
) -> None:
    clock = horolog_broker.clock
    with (
        blocking.Admin(horolog_broker.address) as admin,
        blocking.Producer(horolog_broker.address) as producer,
    ):
        producer.send("clicks", b"value")
        async with kafka_client(horolog_broker.kafka_address) as client:
            member_id, generation = await stable(client, "group", session_ms=60_000)
            sent = commit("group", "clicks", 1, member_id=member_id, generation=generation)
            await client.call(sent)
            assert (await client.call(heartbeat("group", member_id, generation))).error_code == 0
            clock.step(61)
            gone = await client.call(heartbeat("group", member_id, generation))
            assert gone.error_code == UnknownMemberId.code
        clock.step(6 * DAY)
        assert admin.position_names() == ["group"]
        clock.step(DAY)
        assert admin.position_names() == []


def test_a_clock_of_the_machine_is_what_a_test_finds(horolog_broker: BrokerThread) -> None:
    """The tests before this one moved the clock."""
    assert abs(horolog_broker.clock.now_ms() - SystemClock.now_ms()) < 5_000
    assert horolog_broker.clock.speed == 1
    before = horolog_broker.clock.monotonic()
    while horolog_broker.clock.monotonic() == before:
        pass
