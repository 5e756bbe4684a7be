"""How long a lease in etcd may be relied on (replication.md, section 5)."""

import time

import pytest

from horolog.clock import boot_time_s
from horolog.replication.lease import Lease

from .lease_model import RATES, LeaseModel

TTL_S, MARGIN = 10.0, 0.1


@pytest.fixture
def lease() -> Lease:
    return Lease(1, 100.0, TTL_S, MARGIN)


def test_it_counts_from_before_it_was_asked_for_less_the_margin(lease: Lease) -> None:
    """However late the answer came: etcd began to count before it answered."""
    assert lease.holds(108.999)
    assert not lease.holds(109.0)


def test_a_renewal_counts_from_before_it_was_asked_for(lease: Lease) -> None:
    lease.renewed(108.0, 104.0, TTL_S)
    assert lease.holds(112.999)
    assert not lease.holds(113.0)


def test_a_renewal_that_was_overtaken_takes_nothing_away(lease: Lease) -> None:
    lease.renewed(105.0, 104.0, TTL_S)
    lease.renewed(105.0, 102.0, TTL_S)
    assert lease.holds(112.999)


def test_what_is_over_is_over_for_ever(lease: Lease) -> None:
    """The answer to a renewal that comes after the end, and a clock that is read out of order."""
    lease.renewed(109.0, 108.0, TTL_S)
    assert not lease.holds(109.0)
    assert not lease.holds(100.0)


@pytest.mark.parametrize("rates", RATES)
def test_no_broker_relies_on_a_lease_that_etcd_has_given_the_other_one(
    rates: tuple[float, float],
) -> None:
    """In every order of up to twelve events, with clocks that are off by the whole margin."""
    model = LeaseModel(Lease, rates)
    assert model.violation() is None
    assert model.holders == {-1, 0, 1}
    assert model.states > 5_000


class CountsFromItsAnswer(Lease):
    def renewed(self, now_s: float, asked_s: float, ttl_s: float) -> None:
        super().renewed(now_s, now_s, ttl_s)


class HasNoMargin(Lease):
    def __init__(self, lease_id: int, asked_s: float, ttl_s: float, margin: float) -> None:
        super().__init__(lease_id, asked_s, ttl_s, 0.0)


@pytest.mark.parametrize("wrong", [CountsFromItsAnswer, HasNoMargin])
def test_the_model_notices_a_wrong_lease(wrong: type[Lease]) -> None:
    assert LeaseModel(wrong, RATES[0]).violation() is not None


def test_it_is_counted_by_the_clock_that_goes_on_while_a_machine_sleeps() -> None:
    before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    now_s = boot_time_s()
    assert before_s <= now_s <= time.clock_gettime(time.CLOCK_BOOTTIME)
