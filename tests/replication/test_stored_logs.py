"""The rules of `replication/` over the logs of `storage/`, through what a broker puts between."""

import tempfile
from pathlib import Path

import pytest

from horolog.replication.hand_node import HandNode
from horolog.storage.log.log import Log
from horolog.testing.logs import LogFolder
from horolog.testing.simulation.by_hand import HandSimulation
from horolog.testing.simulation.machine import Machine
from horolog.testing.simulation.options import ScheduleOptions
from horolog.testing.simulation.times import TimeAnswers

from .stored_logs import StoredToo

MEMORY_FILE_SYSTEM = "/dev/shm"
SEEDS = (1894, *range(60))
"""1894: a log was cut at its log start. What was trimmed lay in its file still, of an epoch that is
not in its leader's log."""


def run(seed: int, log_class: type[StoredToo] = StoredToo) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY_FILE_SYSTEM) as name:
        folders: list[LogFolder] = []
        here = {"place": Path(name), "made": 0, "folders": folders, "__slots__": ()}
        kind = type("Here", (log_class,), here)
        options = ScheduleOptions(node_class=HandNode, lease=False, log_class=kind, copies=False)
        simulation = HandSimulation(seed, options)
        try:
            simulation.run()
            for machine in simulation.machines.values():
                for log in machine.directory.logs.values():
                    assert isinstance(log, StoredToo)
                    log.check_bytes()
            same_answers(list(simulation.machines.values()))
        finally:
            for folder in folders:
                folder.let_go()


def same_answers(machines: list[Machine]) -> None:
    """Logs that have the same messages say the same about their times, and what those say that are
    at or behind the log start."""
    for partition in machines[0].directory.logs:
        seen: dict[tuple[int, int], TimeAnswers] = {}
        for machine in machines:
            log = machine.directory.logs[partition]
            assert isinstance(log, StoredToo)
            given = log.answers()
            right = log.right_answers()
            assert given == right, f"answers of broker {machine.broker_id} for {partition}"
            place = log.log_start_offset, log.high_watermark
            assert seen.setdefault(place, given) == given, f"{partition} at {machine.broker_id}"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_model_has_is_on_disk(seed: int) -> None:
    run(seed)


class CountsTrimmedTimes(StoredToo):
    """Messages that were trimmed keep the segment in which they lie."""

    __slots__ = ()

    def read_trimmed(self, log: Log) -> None:
        pass


def test_times_of_trimmed_messages_that_keep_a_segment_are_noticed() -> None:
    with pytest.raises(AssertionError, match="answers of broker"):
        run(12, CountsTrimmedTimes)
