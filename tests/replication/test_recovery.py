"""Who leads where all that were in sync may have lost something (replication.md, section 4)."""

import pytest

from horolog.replication.cluster_state import Reach, is_to_lead
from horolog.replication.settings import Member

A, B, C = Member(1, 1), Member(2, 1), Member(3, 1)


def reach(*ends: int, lost: bool = False) -> Reach:
    return Reach(1, tuple((("t", n), end, 0) for n, end in enumerate(ends)), lost)


@pytest.mark.parametrize(
    ("reaches", "leaders"),
    [
        pytest.param({A: reach(5, 5), B: reach(5, 4)}, {A}, id="the-one-that-has-most"),
        pytest.param({A: reach(5, 4), B: reach(4, 5)}, set(), id="none-has-all"),
        pytest.param({A: reach(5), B: reach(5)}, {A, B}, id="each-of-equal-ones"),
        pytest.param({A: reach(5, lost=True)}, {A}, id="the-only-one-without-its-epochs"),
        pytest.param(
            {A: reach(5, lost=True), B: reach(4)}, {A}, id="more-counts-more-than-its-epochs"
        ),
        pytest.param(
            {A: reach(5, lost=True), B: reach(5), C: reach(4)}, {B}, id="of-equal-ones-with-epochs"
        ),
        pytest.param(
            {A: reach(5, lost=True), B: reach(5, lost=True)}, {A, B}, id="nobody-has-epochs"
        ),
        pytest.param({A: reach(5), B: reach(5, 0)}, {A, B}, id="an-empty-partition-is-nothing"),
    ],
)
def test_who_has_most_leads(reaches: dict[Member, Reach], leaders: set[Member]) -> None:
    assert {each for each in (A, B, C) if is_to_lead(reaches, each)} == leaders
