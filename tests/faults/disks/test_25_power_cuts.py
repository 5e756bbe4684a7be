"""What survives when the power goes after any operation on the disk."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from .enumeration import Enumeration
from .life import Life
from .recoveries import crashed, recover
from .workloads import WORKLOADS, at_random

Workload = Callable[[Life], None]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_25_a_power_cut_after_any_operation(
    workload: Workload, folder: Path, enumeration: Enumeration
) -> None:
    life = Life(folder / "life")
    workload(life)
    enumeration.survives(life, folder)


def test_25_a_power_cut_during_recovery(folder: Path, enumeration: Enumeration) -> None:
    for path, promise in crashed(enumeration, folder, 8):
        enumeration.survives(recover(path, promise, 60), folder)
    for missing_bytes in (3, 54):
        again = folder / f"{missing_bytes} bytes less"
        again.mkdir()
        for path, promise in crashed(enumeration, again, 1, torn=0, missing_bytes=missing_bytes):
            enumeration.survives(recover(path, promise, 60, 61), folder)


LIVES = (*range(2), *(pytest.param(number, marks=pytest.mark.soak) for number in range(2, 200)))


@pytest.mark.parametrize("number", LIVES)
def test_25_a_power_cut_in_a_life_at_random(
    number: int, random: Random, folder: Path, enumeration: Enumeration
) -> None:
    life = Life(folder / "life")
    at_random(life, random)
    enumeration.survives(life, folder)


@pytest.mark.soak
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_25_many_more_states(workload: Workload, folder: Path, enumeration: Enumeration) -> None:
    life = Life(folder / "life")
    workload(life)
    enumeration.survives(life, folder)


@pytest.mark.soak
def test_25_many_more_recoveries(folder: Path, enumeration: Enumeration) -> None:
    for path, promise in crashed(enumeration, folder, 40):
        enumeration.survives(recover(path, promise, 60), folder)
