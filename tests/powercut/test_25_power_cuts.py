"""What survives when the power goes after any operation on the disk."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.testing.directories import DataDirectory
from horolog.testing.power_cuts import State
from horolog.testing.quick_files import QuickFiles

from .enumeration import Enumeration, explained, made
from .life import DATA, Life
from .workloads import WORKLOADS, unsynced

Workload = Callable[[Life], None]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_25_a_power_cut_after_any_operation(
    workload: Workload, folder: Path, enumeration: Enumeration
) -> None:
    life = Life(folder / "life")
    workload(life)
    enumeration.survives(life, folder)


def recover(enumeration: Enumeration, folder: Path, count: int) -> int:
    """Cut the power while `count` directories are recovered from an earlier power cut.

    Returns in how many of them recovery took something out of a log.
    """
    before = Life(folder / "before")
    unsynced(before)
    cut = 0
    for number, state in enumerate(enumeration.crashed(before, count)):
        path = folder / str(number)
        promise = before.promises.at(state.operations_done)
        with explained(before, state):
            promise.kept = taken_out(state, path)
            cut += bool(promise.kept)
            state.make(path)
            life = Life(path, promise=promise)
            life.open()
            life.append("t", 60)
            life.flush("t")
            life.checkpoint()
            enumeration.survives(life, folder)
        shutil.rmtree(path)
    return cut


def taken_out(state: State, path: Path) -> set[bytes]:
    """What recovery takes out of the logs of a state."""
    with made(state, path.parent) as directory:
        data = DataDirectory(directory / DATA)
        data.files = QuickFiles()
        data.open()
        data.close()
        return {file.read_bytes() for file in directory.rglob("*.broken")}


def test_25_a_power_cut_during_recovery(folder: Path, enumeration: Enumeration) -> None:
    assert recover(enumeration, folder, 8) > 1


@pytest.mark.soak
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_25_many_more_states(workload: Workload, folder: Path, enumeration: Enumeration) -> None:
    life = Life(folder / "life")
    workload(life)
    enumeration.survives(life, folder)


@pytest.mark.soak
def test_25_many_more_recoveries(folder: Path, enumeration: Enumeration) -> None:
    recover(enumeration, folder, 100)
