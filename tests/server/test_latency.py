"""The sliding window of the largest latency."""

import pytest

from horolog.server.metrics.figures import SLOTS, MaxWindow
from horolog.testing.clock import ManualClock

WINDOW_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def window(clock: ManualClock) -> MaxWindow:
    return MaxWindow(clock, WINDOW_MS)


def test_nothing_recorded_is_none(window: MaxWindow) -> None:
    assert window.largest() is None


def test_largest_of_several(window: MaxWindow) -> None:
    for value in (5, 9, 3):
        window.record(value)
    assert window.largest() == 9


def test_zero_is_a_value(window: MaxWindow) -> None:
    window.record(0)
    assert window.largest() == 0


def test_a_value_counts_for_the_window_and_at_most_a_slot_longer(
    clock: ManualClock, window: MaxWindow
) -> None:
    window.record(7)
    clock.advance(WINDOW_MS)
    assert window.largest() == 7
    clock.advance(WINDOW_MS // SLOTS)
    assert window.largest() is None


def test_a_smaller_later_value_takes_over_when_the_larger_one_leaves(
    clock: ManualClock, window: MaxWindow
) -> None:
    window.record(100)
    clock.advance(WINDOW_MS // 2)
    window.record(4)
    assert window.largest() == 100
    clock.advance(WINDOW_MS // 2 + WINDOW_MS // SLOTS)
    assert window.largest() == 4


def test_a_step_of_the_wall_clock_changes_nothing(clock: ManualClock, window: MaxWindow) -> None:
    window.record(8)
    clock.step(10 * WINDOW_MS)
    assert window.largest() == 8
    clock.step(-20 * WINDOW_MS)
    window.record(3)
    assert window.largest() == 8


def test_a_long_silence_leaves_no_old_slot_behind(clock: ManualClock, window: MaxWindow) -> None:
    for value in range(200):
        window.record(1000 - value)
        clock.advance(WINDOW_MS // SLOTS)
    clock.advance(1000 * WINDOW_MS)
    window.record(1)
    assert window.largest() == 1
