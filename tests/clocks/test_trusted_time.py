"""Fault 39: which time retention goes by while the wall clock is stepped, frozen or drifting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.server.trusted_time import TrustedTime
from horolog.testing.clock import ManualClock
from horolog.testing.logs import RecordedEvents

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
YEAR_MS = 365 * 24 * HOUR_MS
STEP_MAX_MS = MINUTE_MS
SETTLE_MS = HOUR_MS


class Watched:
    """Trusted time on a clock that is looked at every ten seconds, as the broker does."""

    def __init__(
        self,
        *,
        now_ms: int = ManualClock().now_ms(),
        last_seen_ms: int | None = None,
        settle_ms: int = SETTLE_MS,
    ) -> None:
        self.clock = ManualClock(now_ms)
        self.start_ms = self.clock.now_ms()
        self.events = RecordedEvents()
        self.time = TrustedTime(
            self.clock,
            self.events,
            last_seen_ms=last_seen_ms,
            step_max_ms=STEP_MAX_MS,
            settle_ms=settle_ms,
        )

    def pass_time(self, ms: int, *, step_each_look_ms: int = 0) -> None:
        for _ in range(ms // 10_000):
            self.clock.advance(10_000)
            self.clock.step(step_each_look_ms)
            self.time.look()

    @property
    def directions(self) -> list[str]:
        return [fields["direction"] for _, fields in self.events.seen if "direction" in fields]

    @property
    def ahead_of_wall_ms(self) -> int:
        return self.time.now_ms() - self.clock.now_ms()


@pytest.mark.parametrize(
    ("step_ms", "noted"),
    [
        pytest.param(STEP_MAX_MS, [], id="at-the-limit"),
        pytest.param(STEP_MAX_MS + 1, ["forward"], id="above-it"),
        pytest.param(-STEP_MAX_MS, [], id="back-at-the-limit"),
        pytest.param(-STEP_MAX_MS - 1, ["back"], id="back-above-it"),
        pytest.param(1000, [], id="leap-second"),
        pytest.param(YEAR_MS, ["forward"], id="year"),
    ],
)
def test_a_step_is_noted_once(step_ms: int, noted: list[str]) -> None:
    watched = Watched()
    watched.clock.step(step_ms)
    for _ in range(3):
        watched.time.look()
        watched.time.now_ms()
    assert watched.directions == noted
    assert watched.time.now_ms() <= watched.start_ms + STEP_MAX_MS
    assert watched.ahead_of_wall_ms <= 0


def test_a_step_taken_back_is_two_steps_and_believed_never() -> None:
    watched = Watched()
    watched.clock.step(YEAR_MS)
    watched.pass_time(SETTLE_MS - 10_000)
    assert watched.time.now_ms() < watched.start_ms + SETTLE_MS + STEP_MAX_MS
    watched.clock.step(-YEAR_MS)
    watched.pass_time(3 * SETTLE_MS)
    assert watched.directions == ["forward", "back"]
    assert watched.events.named("clock_believed") == []
    assert watched.ahead_of_wall_ms == 0
    assert watched.time.caution() is None


def test_a_clock_that_stays_is_believed_after_a_while() -> None:
    watched = Watched()
    watched.clock.step(YEAR_MS)
    watched.pass_time(SETTLE_MS - 10_000)
    caution = watched.time.caution()
    assert caution is not None
    assert "365 days, 0:00:00 ahead" in caution
    assert "clock.settle.ms" in caution
    watched.pass_time(20_000)
    assert watched.events.named("clock_believed") == [{"ahead": "365 days, 0:00:00"}]
    assert watched.ahead_of_wall_ms == 0
    assert watched.time.caution() is None
    assert watched.time.ahead_ms == 0


def test_another_step_begins_the_wait_anew() -> None:
    watched = Watched()
    for step_ms in (YEAR_MS, -HOUR_MS, HOUR_MS):
        watched.clock.step(step_ms)
        watched.pass_time(SETTLE_MS - 10_000)
    assert watched.directions == ["forward", "back", "forward"]
    assert watched.time.now_ms() <= watched.start_ms + 3 * SETTLE_MS + STEP_MAX_MS


def test_the_clock_behind_counts_while_it_is_behind() -> None:
    """Data that stays too long is no loss, and messages stamped now are as young as that."""
    watched = Watched()
    watched.clock.step(-YEAR_MS)
    assert watched.ahead_of_wall_ms == 0
    watched.pass_time(HOUR_MS // 2)
    assert watched.ahead_of_wall_ms == 0
    watched.clock.step(YEAR_MS)
    assert watched.ahead_of_wall_ms == 0, "it is where it should be: there is nothing to wait for"
    assert watched.directions == ["back", "forward"]


def test_a_frozen_clock_is_seen_and_costs_nothing() -> None:
    watched = Watched()
    watched.pass_time(6 * HOUR_MS, step_each_look_ms=-10_000)
    assert watched.clock.now_ms() == watched.start_ms == watched.time.now_ms()
    assert set(watched.directions) == {"back"}
    watched.clock.step(6 * HOUR_MS)
    assert watched.ahead_of_wall_ms == 0
    assert watched.directions[-1] == "forward"


@pytest.mark.parametrize(
    ("drift_ms", "noted"),
    [
        pytest.param(5, False, id="500-ppm-as-time-servers-correct"),
        pytest.param(100, False, id="1-percent"),
        pytest.param(420, True, id="an-hour-a-day"),
        pytest.param(-420, True, id="minus-an-hour-a-day"),
    ],
)
def test_drift_is_followed_until_it_is_a_fault(drift_ms: int, noted: bool) -> None:
    """`drift_ms` in ten seconds. Retention is never more than a minute early in an hour."""
    watched = Watched()
    for hour in range(1, 25):
        watched.pass_time(HOUR_MS, step_each_look_ms=drift_ms)
        early_ms = watched.time.now_ms() - (watched.start_ms + hour * HOUR_MS)
        assert early_ms <= hour * STEP_MAX_MS
    assert bool(watched.directions) == noted
    if not noted:
        assert watched.ahead_of_wall_ms == 0


@pytest.mark.parametrize(
    ("stopped_ms", "event"),
    [
        pytest.param(0, None, id="at-once"),
        pytest.param(STEP_MAX_MS, None, id="a-moment"),
        pytest.param(YEAR_MS, "clock_ahead_of_last_use", id="a-year"),
        pytest.param(-STEP_MAX_MS, None, id="back-a-moment"),
        pytest.param(-YEAR_MS, "clock_stepped", id="back-a-year"),
        pytest.param(-ManualClock().now_ms(), "clock_stepped", id="1970"),
    ],
)
def test_a_start_goes_on_from_the_last_use(stopped_ms: int, event: str | None) -> None:
    last_seen_ms = ManualClock().now_ms()
    watched = Watched(last_seen_ms=last_seen_ms - stopped_ms)
    assert [name for name, _ in watched.events.seen] == ([] if event is None else [event])
    assert watched.time.now_ms() <= last_seen_ms - stopped_ms + STEP_MAX_MS
    assert watched.ahead_of_wall_ms <= 0
    watched.pass_time(SETTLE_MS)
    assert watched.ahead_of_wall_ms == 0


def test_an_unknown_last_use_is_no_step() -> None:
    watched = Watched(last_seen_ms=None)
    assert watched.events.seen == []
    assert watched.ahead_of_wall_ms == 0


def test_a_clock_that_was_in_1970_and_is_put_right() -> None:
    """What was known before the boot is trusted as soon as the clock agrees with it."""
    boot = Watched(now_ms=0, last_seen_ms=YEAR_MS * 46)
    boot.pass_time(10 * MINUTE_MS)
    assert boot.time.now_ms() == boot.clock.now_ms() == 10 * MINUTE_MS
    boot.clock.step(YEAR_MS * 46)
    assert boot.ahead_of_wall_ms == 0


def test_with_no_time_to_settle_steps_are_only_noted() -> None:
    watched = Watched(settle_ms=0)
    watched.clock.step(YEAR_MS)
    assert watched.ahead_of_wall_ms == 0
    assert watched.directions == ["forward"]


excursions = st.tuples(
    st.integers(1, 300).map(lambda looks: looks * 10_000),
    st.sampled_from([-YEAR_MS, -HOUR_MS, -STEP_MAX_MS - 1, STEP_MAX_MS + 1, HOUR_MS, YEAR_MS]),
    st.integers(1, SETTLE_MS // 10_000 - 1).map(lambda looks: looks * 10_000),
)
"""How long the clock is right, by how much it is wrong then, and for how long."""


@given(st.lists(excursions, max_size=6))
def test_no_step_that_is_taken_back_in_time_makes_anything_expire_early(
    steps: list[tuple[int, int, int]],
) -> None:
    watched = Watched()
    true_ms = watched.start_ms
    for right_ms, wrong_by_ms, wrong_ms in steps:
        watched.pass_time(right_ms)
        true_ms += right_ms
        assert watched.time.now_ms() <= true_ms
        watched.clock.step(wrong_by_ms)
        assert watched.time.now_ms() <= true_ms + STEP_MAX_MS
        watched.pass_time(wrong_ms)
        true_ms += wrong_ms
        assert watched.time.now_ms() <= true_ms + STEP_MAX_MS
        watched.clock.step(-wrong_by_ms)
        watched.time.look()
    assert watched.directions == [
        direction
        for _, step_ms, _ in steps
        for direction in (("forward", "back") if step_ms > 0 else ("back", "forward"))
    ]


def test_a_settling_time_without_end_can_be_told() -> None:
    """`clock.settle.ms` may be any number of 64 bits; a length of time for people may not."""
    last_ms = 2**63 - 1
    clock = ManualClock()
    trusted = TrustedTime(
        clock, RecordedEvents(), last_seen_ms=None, step_max_ms=60_000, settle_ms=last_ms
    )
    clock.step(3_600_000)
    assert f"for another {last_ms} ms" in str(trusted.caution())
