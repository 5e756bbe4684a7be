"""The rules of `replication/` over a broker's own metadata log: topics and positions that were
answered are at every leader, and never go back (replication.md, section 8.1)."""

import tempfile
from pathlib import Path
from random import Random

import pytest

from horolog.replication.hand_node import HandNode
from horolog.replication.partition_log import Partition
from horolog.replication.settings import Incarnation
from horolog.storage.metadata.records import PositionsCommitted, SettingsAltered, TopicCreated
from horolog.testing.files import ending_process
from horolog.testing.logs import LogFolder
from horolog.testing.simulation.by_hand import HandOracle, HandSimulation
from horolog.testing.simulation.disk import METADATA, TOPIC, Entry, SimulatedDirectory, SimulatedLog
from horolog.testing.simulation.machine import Machine
from horolog.testing.simulation.options import ScheduleOptions
from horolog.testing.simulation.oracle import Oracle
from horolog.testing.simulation.violation import Violation

from .stored_logs import StoredToo
from .stored_metadata import Shown, StoredMetadataToo

MEMORY_FILE_SYSTEM = "/dev/shm"
SEEDS = (63, *range(50))
"""63: a leader lets go what is not in its stored state yet, were it to."""


class TopicsOracle(HandOracle):
    """Compares what leaders show with what was answered."""

    def __init__(self) -> None:
        super().__init__()
        self._serves_from: dict[SimulatedDirectory, int] = {}
        """By who leads, its end at election: it shows nothing before it has applied that."""
        self._shown: dict[tuple[SimulatedDirectory, int], Shown] = {}
        """By leader and epoch, what it has shown last."""
        self._promised: dict[int, Entry] = {}
        """By offset: what is in sync, and applied at a leader, which answers it then."""
        self._newest = 0
        """The latest epoch: without a lease a leader of an earlier one may show old things."""

    def elected(
        self, directory: SimulatedDirectory, epoch: int, who: Incarnation, may_lose: bool
    ) -> None:
        super().elected(directory, epoch, who, may_lose)
        self._serves_from[directory] = directory.logs[METADATA].log_end_offset
        self._newest = max(self._newest, epoch)
        if may_lose:
            self._promised.clear()

    def ask(self, directory: SimulatedDirectory) -> None:
        """A client asks the newest leader for topics and positions. Raises `Violation`."""
        log = directory.logs[METADATA]
        assert isinstance(log, StoredMetadataToo)
        epoch, _ = self.leaders[directory]
        if epoch < self._newest or log.metadata.applied < self._serves_from[directory]:
            return
        self.count("asked")
        shown = log.shown()
        key = directory, epoch
        before = self._shown.get(key, Shown())
        if before.topic_id not in ("", shown.topic_id) or before > shown:
            raise Violation(f"{before} was shown at broker {directory.broker_id}, and now {shown}")
        self._shown[key] = shown
        for partition, offset, entry in self.answered:
            if partition == METADATA and offset < log.metadata.applied:
                self._promised[offset] = entry
        for offset, entry in self._promised.items():
            if not _shows(log, offset, shown):
                raise Violation(f"{entry} at {offset} was answered, and {shown} is shown")


def _shows(log: StoredMetadataToo, offset: int, shown: Shown) -> bool:
    """Whether the record at `offset`, or a later one, is in what is shown."""
    match log.said[offset]:
        case TopicCreated():
            return shown.topic_id != ""
        case SettingsAltered(_, known, overrides) if known == shown.topic_id:
            return shown.retention_ms >= int(overrides["retention.ms"])
        case PositionsCommitted(_, ((_, position), (known, _))):
            return known == shown.topic_id and shown.offset >= position.offset
    return True  # There was no topic of that name.


class TopicsSimulation(HandSimulation):
    """A topic is made at once, and again when a leader has lost it."""

    oracle: TopicsOracle

    def __init__(self, seed: int, options: ScheduleOptions) -> None:
        self._states = Random(f"{seed} states")
        super().__init__(seed, options)

    def make_oracle(self) -> Oracle:
        return TopicsOracle()

    def warm_up(self) -> None:
        super().warm_up()
        self.clients.create()
        for _ in range(2):
            self.now_s += 0.4
            self.round()

    def step(self) -> None:
        self.topics_made = any(TOPIC in it.directory.logs for it in self.machines.values())
        super().step()
        if self._states.random() < 0.1:
            self.write_state(self.machines[self._states.randint(1, len(self.machines))])
        self.ask()

    def write_state(self, machine: Machine) -> None:
        """The stored state takes the place of what is below it in the log."""
        log, node = machine.directory.logs[METADATA], machine.active
        assert isinstance(log, StoredMetadataToo)
        if node is not None and log.write_state():
            self.oracle.count("shortened")
            if node.leader is not None:
                node.leader.trimmed(METADATA, None)
            else:
                node.synced(METADATA)
            machine.settle()

    def round(self) -> None:
        super().round()
        for machine in self.machines.values():
            log = machine.directory.logs[METADATA]
            if isinstance(log, StoredMetadataToo) and log.metadata.state_wanted:
                self.write_state(machine)

    def heal(self) -> None:
        super().heal()
        self.ask()

    def ask(self) -> None:
        leader = self.newest()
        if leader is not None and not self.oracle.broken:
            self.oracle.ask(leader.directory)


def run(seed: int) -> TopicsSimulation:
    with tempfile.TemporaryDirectory(dir=MEMORY_FILE_SYSTEM) as name, ending_process():
        folders: list[LogFolder] = []
        here = {"place": Path(name), "made": 0, "folders": folders, "__slots__": ()}
        data, metadata = type("Data", (StoredToo,), here), type("Its", (StoredMetadataToo,), here)

        def make(partition: Partition, directory: SimulatedDirectory) -> SimulatedLog:
            kind = metadata if partition == METADATA else data
            made: SimulatedLog = kind(partition, directory)
            return made

        simulation = TopicsSimulation(
            seed, ScheduleOptions(node_class=HandNode, lease=False, log_class=make, copies=False)
        )
        simulation.run()
        for machine in simulation.machines.values():
            for log in machine.directory.logs.values():
                assert isinstance(log, StoredToo)
                log.check_bytes()
        for folder in folders:
            folder.let_go()
    return simulation


@pytest.mark.parametrize("seed", SEEDS)
def test_topics_and_positions_that_were_answered_stay(seed: int) -> None:
    assert run(seed).oracle.counts["asked"] > 0


@pytest.mark.soak
def test_soak(request: pytest.FixtureRequest) -> None:
    """Other schedules each time; `--hypothesis-seed` repeats them."""
    first = int(request.config.getoption("--hypothesis-seed")) * 10_000
    for seed in range(first, first + 5_000):
        run(seed)
