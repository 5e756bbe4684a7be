"""The rules of `replication/` over the logs of `storage/`, through what a broker puts between."""

import tempfile
from pathlib import Path

import pytest

from horolog.replication.hand_node import HandNode
from horolog.testing.logs import LogFolder
from horolog.testing.simulation.by_hand import HandSimulation
from horolog.testing.simulation.options import Options

from .stored_logs import StoredToo

MEMORY_FILE_SYSTEM = "/dev/shm"
SEEDS = (1894, *range(60))
"""1894: a log was cut at its log start. What was trimmed lay in its file still, of an epoch that is
not in its leader's log."""


def run(seed: int) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY_FILE_SYSTEM) as name:
        folders: list[LogFolder] = []
        here = {"place": Path(name), "made": 0, "folders": folders, "__slots__": ()}
        kind = type("Here", (StoredToo,), here)
        options = Options(node_class=HandNode, lease=False, log_class=kind, copies=False)
        simulation = HandSimulation(seed, options)
        simulation.run()
        for machine in simulation.machines.values():
            for log in machine.directory.logs.values():
                log.check_bytes()  # type: ignore[attr-defined]
        for folder in folders:
            folder.let_go()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_model_has_is_on_disk(seed: int) -> None:
    run(seed)
