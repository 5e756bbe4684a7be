"""Who leads where all that were in sync may have lost something (replication.md, section 4)."""

import pytest

from horolog.replication.cluster_state import ReplicaExtent, is_to_lead, reach
from horolog.replication.settings import Member
from horolog.testing.simulation.disk import DATA, METADATA, SimulatedDirectory
from horolog.testing.simulation.oracle import Oracle

A, B, C = Member(1, 1), Member(2, 1), Member(3, 1)


def having(*ends: int, lost: bool = False) -> ReplicaExtent:
    return ReplicaExtent(1, tuple((("t", n), end, 0) for n, end in enumerate(ends)), lost)


@pytest.mark.parametrize(
    ("reaches", "leaders"),
    [
        pytest.param({A: having(5, 5), B: having(5, 4)}, {A}, id="the-one-that-has-most"),
        pytest.param({A: having(5, 4), B: having(4, 5)}, set(), id="none-has-all"),
        pytest.param({A: having(5), B: having(5)}, {A, B}, id="each-of-equal-ones"),
        pytest.param({A: having(5, lost=True)}, {A}, id="the-only-one-without-its-epochs"),
        pytest.param(
            {A: having(5, lost=True), B: having(4)}, {A}, id="more-counts-more-than-its-epochs"
        ),
        pytest.param(
            {A: having(5, lost=True), B: having(5), C: having(4)},
            {B},
            id="of-equal-ones-with-epochs",
        ),
        pytest.param(
            {A: having(5, lost=True), B: having(5, lost=True)}, {A, B}, id="nobody-has-epochs"
        ),
        pytest.param({A: having(5), B: having(5, 0)}, {A, B}, id="an-empty-partition-is-nothing"),
    ],
)
def test_who_has_most_leads(reaches: dict[Member, ReplicaExtent], leaders: set[Member]) -> None:
    assert {each for each in (A, B, C) if is_to_lead(reaches, each)} == leaders


def test_who_has_a_log_without_its_epochs_says_so() -> None:
    directory = SimulatedDirectory(1, Oracle(reads_may_be_old=False), {})
    for partition in (METADATA, DATA):
        directory.add(partition)
    directory.logs[DATA].append((1, "w", 0), 0)
    logs = ((METADATA, 0, 0), (DATA, 1, 0))
    counted = directory.identity.counted_revision
    assert reach(directory) == ReplicaExtent(counted, tuple(sorted(logs)))
    directory.logs[DATA].lose_history()
    assert reach(directory) == ReplicaExtent(counted, tuple(sorted(logs)), history_lost=True)
