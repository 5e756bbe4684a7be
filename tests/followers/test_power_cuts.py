"""A follower after a power cut: what is left is a beginning of one history, and known as such."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.storage.log.log import Log
from horolog.storage.replica.copy_facts import CopyFacts
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.directories import DataDirectory, read_messages
from horolog.testing.files import QuickFiles, ending_process
from horolog.testing.logs import LogFolder
from horolog.testing.power_cuts import CutState, PowerCuts
from horolog.testing.recording import RecordingFiles

TOPIC = "t"
EPOCH_WRITE = "leader_epochs.EpochWrite.run > files.replace_file"
SMALL = {"segment.bytes": "250", "index.interval.bytes": "50", "file.delete.delay.ms": "0"}


@pytest.fixture
def folder() -> Iterator[Path]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name, ending_process():
        yield Path(name)


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    return Random(f"{request.config.getoption('--hypothesis-seed')} {request.node.name}")


@dataclass(frozen=True)
class Promise:
    """What holds from some number of operations on."""

    least_end: int = 0
    """The log ends there, or behind it."""
    log_start: int = 0
    """The log begins there, or behind it."""


@dataclass
class Life:
    """A follower's data directory with one log, every change of it recorded; and its leaders.

    The value of a message says where it is and in which epoch it was written.
    """

    path: Path
    without: str | None = None
    promises: dict[int, Promise] = field(default_factory=dict)
    promise: Promise = Promise()
    epoch: int = 0
    leaders: list[LogFolder] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path.mkdir()
        self.data = DataDirectory(self.path / "data")
        self.data.member = True
        self.recording = RecordingFiles(QuickFiles(), self.path, without=self.without)
        self.data.files = self.recording
        self.note()
        self.data.opened_with_topic(TOPIC, 1, SMALL)
        self.leader = self.new_leader()

    @property
    def log(self) -> Log:
        return self.data.directory.log(TOPIC, 0)

    def note(self, **changes: int) -> None:
        self.promise = replace(self.promise, **changes)
        self.promises[len(self.recording.operations)] = self.promise

    def promise_at(self, operations: int) -> Promise:
        return self.promises[max(since for since in self.promises if since <= operations)]

    def new_leader(self) -> LogFolder:
        leader = LogFolder(self.path.parent / f"leader{len(self.leaders)}" / "t-0")
        leader.settings |= SMALL
        leader.open()
        self.leaders.append(leader)
        return leader

    def lead(self, *sizes: int) -> None:
        """A new epoch, and sets of it."""
        self.epoch += 1
        ReplicaLog(self.leader.log).begin_to_lead(self.epoch)
        for size in sizes:
            offset = self.leader.log.log_end_offset
            new = [
                NewRecord(b"%d %d" % (self.epoch, offset + number), timestamp_ms=5)
                for number in range(size)
            ]
            self.leader.log.appender.append(build_set(new))

    def copy(self, max_bytes: int = 120, *, up_to: int = 1 << 60) -> None:
        while self.log.log_end_offset < min(up_to, self.leader.log.log_end_offset):
            copied = ReplicaLog(self.leader.log).read(self.log.log_end_offset, max_bytes)
            facts = CopyFacts.decode(copied.facts.encode())
            ReplicaLog(self.log).append(copied.found.read(), facts)

    def depose(self, offset: int) -> None:
        """Another leader has the messages below `offset`, and goes on by itself."""
        old, self.leader = self.leader, self.new_leader()
        log = self.leader.log
        while log.log_end_offset < offset:
            copied = ReplicaLog(old.log).read(log.log_end_offset, 40)
            ReplicaLog(log).append(copied.found.read(), copied.facts)
        assert log.log_end_offset == offset

    def checkpoint(self) -> None:
        self.log.flusher.flush()
        self.note(least_end=self.log.log_end_offset)
        self.data.directory.write_checkpoints()

    def truncate(self, offset: int) -> None:
        self.note(least_end=min(self.promise.least_end, offset))
        assert ReplicaLog(self.log).cut(offset) == offset

    def begin_anew(self, offset: int) -> None:
        self.note(least_end=0)
        ReplicaLog(self.log).begin_anew(offset)

    def follow_start(self, offset: int) -> None:
        assert ReplicaLog(self.log).begin_at(offset) == offset
        self.data.directory.secure_log_starts([self.log])
        self.note(log_start=offset)
        self.log.expiry.drop_expired()

    def restart(self) -> None:
        self.data.close()
        self.note(least_end=self.log.log_end_offset)
        self.data.open()

    def end(self) -> None:
        for leader in self.leaders:
            leader.let_go()


def epochs(life: Life) -> None:
    life.lead(2, 1)
    life.copy()
    life.checkpoint()
    life.lead(1, 2, 3)
    life.copy()
    life.restart()
    life.lead(2)
    life.copy(40)
    life.checkpoint()


def cuts(life: Life) -> None:
    """In a segment, at its border, at the start of an epoch, everything."""
    life.lead(1, 1, 1, 1)
    life.copy()
    life.checkpoint()
    life.lead(1, 1, 1, 1)
    life.copy()
    for offset in (6, 4, 0):
        life.depose(offset)
        life.truncate(offset)
        life.lead(1, 1, 1)
        life.copy()
        life.checkpoint()


def anew(life: Life) -> None:
    life.lead(1, 1, 1, 1, 1)
    life.copy(40)
    life.checkpoint()
    life.lead(1, 1)
    life.copy(40)
    life.leader = life.new_leader()
    life.leader.log.truncate_fully(20)
    life.begin_anew(20)
    life.lead(1, 2)
    life.copy()
    life.checkpoint()
    life.lead(1)
    life.copy()
    life.restart()


def log_starts(life: Life) -> None:
    life.lead(1, 1, 1, 1, 1)
    life.lead(1, 1, 1)
    life.copy()
    life.checkpoint()
    life.follow_start(4)
    life.lead(1)
    life.copy()
    life.checkpoint()
    life.follow_start(8)
    life.restart()


WORKLOADS = (epochs, cuts, anew, log_starts)


def check(life: Life, state: CutState, path: Path) -> None:
    """Start on what is left; go on with what a leader has; start again."""
    state.make(path)
    data = DataDirectory(path / "data")
    data.member = True
    data.files = QuickFiles()
    if TOPIC not in data.open().topics():
        return
    promise = life.promise_at(state.operations_done)
    log = data.directory.log(TOPIC, 0)
    log.prepare()
    assert all(segment.damaged is None for segment in log.segments)
    assert log.log_end_offset >= promise.least_end
    assert log.log_start_offset >= min(promise.log_start, log.log_end_offset)
    assert_of_one_history(log)
    ReplicaLog(log).begin_to_lead(life.epoch + 1)
    end_offset = log.log_end_offset
    new = NewRecord(b"%d %d" % (life.epoch + 1, end_offset), timestamp_ms=5)
    log.appender.append(build_set([new]))
    data.restart()
    log = data.directory.log(TOPIC, 0)
    assert log.log_end_offset == end_offset + 1
    assert_of_one_history(log)
    data.close()


def assert_of_one_history(log: Log) -> None:
    """Each message is in its place, and of the epoch that the log says it is of."""
    log.hold_high_watermark(None)
    history = log.epochs.history
    told = 0
    for offset, _, _, value in read_messages(log):
        assert value is not None
        epoch, place = map(int, value.split())
        assert place == offset
        assert history.epoch_at(offset) == epoch, f"offset {offset}"
        assert epoch >= told
        told = epoch
    if log.log_end_offset > log.segments[0].base_offset:
        assert history.last_epoch == ReplicaLog(log).last_epoch


def survive(life: Life, folder: Path, random: Random, *, every: int = 1) -> int:
    """Check one in `every` of the states that a power cut may leave; how many there were."""
    found = PowerCuts(life.recording, random, exhaustive_max=32, samples=8)
    count = 0
    for state in found.states(life.promises):
        count += 1
        if every > 1 and random.randrange(every):
            continue
        path = folder / "state"
        try:
            check(life, state, path)
        except Exception as error:
            error.add_note(f"after operation {state.operations_done}, lost: {state.lost}")
            raise
        finally:
            shutil.rmtree(path, ignore_errors=True)
    return count


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_no_power_cut_leaves_messages_of_an_epoch_that_is_not_theirs(
    workload: Callable[[Life], None], folder: Path, random: Random
) -> None:
    life = Life(folder / "life")
    workload(life)
    life.end()
    assert survive(life, folder, random, every=2) > 50


@pytest.mark.parametrize(
    ("site", "workload"),
    [
        pytest.param(f"{EPOCH_WRITE}: sync leader-epoch-checkpoint.tmp", epochs, id="the-line"),
        pytest.param(f"{EPOCH_WRITE}: sync_directory", epochs, id="its-name"),
        pytest.param("segment.Segment.truncate: sync *.log", cuts, id="the-cut"),
    ],
)
def test_without_the_sync_it_is_noticed(
    site: str, workload: Callable[[Life], None], folder: Path
) -> None:
    """The same states each time: not every draw has one in which it shows."""
    life = Life(folder / "life", without=site)
    workload(life)
    life.end()
    assert site in life.recording.sites, sorted(life.recording.sites)
    with pytest.raises(Exception, match=r".") as caught:
        survive(life, folder, Random(1))
    assert any("after operation" in note for note in caught.value.__notes__)
