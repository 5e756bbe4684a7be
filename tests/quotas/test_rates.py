"""Rates beside a plain list of what was taken, and clients that take as much as they can."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.server.quotas.meter import Rate, Sensors, TokenBucket, Windows
from horolog.tests.properties.examples import examples

STEPS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 5000)), min_size=1, max_size=60)
"""Milliseconds since the one before, and how much is taken then."""


def plain_rate(taken: list[tuple[float, int]], now: float, windows: Windows) -> tuple[float, float]:
    """What Kafka's SampledStat and Rate say, out of everything that was ever taken."""
    begins: list[float] = []
    of_window: list[int] = []
    for at, amount in taken:
        live = begins and at - begins[-1] < windows.number * windows.seconds
        if not live or at - begins[-1] >= windows.seconds:
            begins.append(at)
            of_window.append(0)
        of_window[-1] += amount
    counted = [
        (begin, amount)
        for begin, amount in zip(begins, of_window, strict=True)
        if now - begin < windows.number * windows.seconds
    ]
    elapsed = now - counted[0][0] if counted else 0.0
    full = int(elapsed / windows.seconds)
    if full < windows.number - 1:
        elapsed += (windows.number - 1 - full) * windows.seconds
    return sum(amount for _, amount in counted), max(elapsed, 0.001)


@examples(1500)
@given(STEPS, st.integers(2, 12), st.sampled_from([0.5, 1.0, 3.0]))
def test_a_rate_is_that_of_a_plain_list(
    steps: list[tuple[int, int]], number: int, seconds: float
) -> None:
    windows, rate = Windows(number, seconds), Rate()
    taken: list[tuple[float, int]] = []
    now = 1000.0
    for wait_ms, amount in steps:
        now += wait_ms / 1000
        rate.take(amount, now, windows)
        taken.append((now, amount))
        total, elapsed = plain_rate(taken, now, windows)
        assert rate.taken(now, windows) == pytest.approx((total, elapsed))
        limit = 700.0
        # Kafka's QuotaUtils: (rate - bound) / bound * window.
        wait = (total / elapsed - limit) / limit * elapsed
        assert rate.wait_seconds(limit, now, windows) == pytest.approx(max(wait, 0.0), abs=1e-9)
        assert rate.room(limit, now, windows) == pytest.approx(max(limit * elapsed - total, 0.0))
    assert not rate.is_idle(now, windows)
    assert rate.is_idle(now + windows.span_seconds + 0.001, windows)


@given(STEPS, st.integers(2, 12))
def test_a_bucket_is_that_of_a_plain_list(steps: list[tuple[int, int]], number: int) -> None:
    windows, bucket, limit = Windows(number, 1.0), TokenBucket(), 50.0
    now, tokens = 1000.0, limit * number
    for wait_ms, amount in steps:
        now += wait_ms / 1000
        tokens = min(tokens + limit * wait_ms / 1000, limit * number) - amount
        bucket.take(amount, limit, now, windows)
        wait = bucket.wait_seconds(limit, now, windows)
        assert wait == pytest.approx(max(-tokens, 0.0) / limit, abs=1e-6)
        assert bucket.is_idle(now, windows) == (amount == 0 and tokens >= limit * number)
    owed = max(limit * number - tokens, 0.0) / limit
    assert bucket.is_idle(now + owed + 0.001, windows)


@pytest.mark.parametrize("request_bytes", [100, 16_000, 64_000, 900_000])
@pytest.mark.parametrize("windows", [Windows(11, 1.0), Windows(2, 1.0), Windows(5, 3.0)])
def test_a_client_that_sends_what_it_can_is_held(request_bytes: int, windows: Windows) -> None:
    """Within 5 % (security.md, section 7) and a request on either end, once it has taken what
    it may at once. What it takes comes and goes with the windows, so all of them are looked at."""
    limit, rate, now = 1_000_000.0, Rate(), 50.0
    seconds = 2 * windows.span_seconds
    sent_bytes, begin = 0, now + seconds
    while now < begin + seconds:
        rate.take(request_bytes, now, windows)
        if now >= begin:
            sent_bytes += request_bytes
        now += 0.0001 + rate.wait_seconds(limit, now, windows)
    allowed = limit * seconds
    assert abs(sent_bytes - allowed) <= 0.05 * allowed + 2 * request_bytes


def sensors(most: int) -> tuple[Sensors[Rate], Windows]:
    windows = Windows(11, 1.0)
    return Sensors(Rate, windows, most), windows


def test_idle_rates_are_forgotten_and_there_are_never_more_than_fit() -> None:
    found, windows = sensors(100)
    for number in range(1000):
        found.of(number, 0.0).take(1, 0.0, windows)
    assert len(found) == 100
    kept = found.of(999, 0.0)
    assert not kept.is_empty(0.0, windows)
    for number in range(60):  # two idle ones go for each that comes
        found.of(-number - 1, 100.0).take(1, 100.0, windows)
    assert len(found) == 60


def test_who_was_heard_last_stays() -> None:
    found, windows = sensors(3)
    rates = []
    for number in range(3):
        rates.append(found.of(number, 0.0))
        rates[-1].take(1, 0.0, windows)
    assert found.of(0, 0.0) is rates[0]
    found.of(3, 0.0).take(1, 0.0, windows)
    assert found.of(0, 0.0) is rates[0]
    assert found.of(1, 0.0) is not rates[1]


def test_what_was_taken_back_does_not_count() -> None:
    windows, rate = Windows(11, 1.0), Rate()
    waits: Callable[[], float] = lambda: rate.wait_seconds(10, 5.0, windows)  # noqa: E731
    rate.take(200, 5.0, windows)
    assert waits() == 10
    rate.take(-200, 5.0, windows)
    assert waits() == 0
    assert rate.is_empty(5.0, windows)
