"""Append times after a power cut: each that is told is right, and those that were safe are told."""

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
from horolog.storage.read import reader
from horolog.testing.directories import DataDirectory, read_messages
from horolog.testing.files import QuickFiles, ending_process
from horolog.testing.power_cuts import CutState, PowerCuts
from horolog.testing.recording import RecordingFiles
from horolog.tests.followers.appending import append_copy

TOPIC = "t"
SMALL = {"segment.bytes": "250", "index.interval.bytes": "50"}


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

    certain_offset: int = 0
    """The append times of messages below it are known."""


@dataclass
class Life:
    """A data directory with one log, every change of it recorded."""

    path: Path
    without: str | None = None
    true: dict[bytes, int] = field(default_factory=dict)
    """Append time by value; -1 for what came from elsewhere."""
    promises: dict[int, Promise] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path.mkdir()
        self.data = DataDirectory(self.path / "data")
        self.recording = RecordingFiles(QuickFiles(), self.path, without=self.without)
        self.data.files = self.recording
        self.promise = Promise()
        self.note()
        self.data.open().create_topic(TOPIC, 1, SMALL)

    @property
    def log(self) -> Log:
        return self.data.directory.log(TOPIC, 0)

    def note(self, **changes: int) -> None:
        self.promise = replace(self.promise, **changes)
        self.promises[len(self.recording.operations)] = self.promise

    def promise_at(self, operations: int) -> Promise:
        return self.promises[max(since for since in self.promises if since <= operations)]

    def records(self, count: int, append_time_ms: int) -> list[NewRecord]:
        values = [b"%d" % (len(self.true) + number) for number in range(count)]
        self.true |= dict.fromkeys(values, append_time_ms)
        return [NewRecord(value, timestamp_ms=5) for value in values]

    def append(self, *sizes: int, step_ms: int = 10) -> None:
        for size in sizes:
            self.log.appender.append(build_set(self.records(size, self.data.clock.now_ms())))
            self.data.clock.step(step_ms)

    def append_stored(self, count: int) -> None:
        stored = build_set(self.records(count, -1), base_offset=self.log.log_end_offset)
        append_copy(self.log, stored)

    def checkpoint(self, *, flush: bool = True) -> None:
        """Sync if asked to, and write down how far everything is safe."""
        if flush:
            self.log.flusher.flush()
        self.data.directory.write_checkpoints()
        self.note(certain_offset=self.log.recovery_point)

    def truncate(self, offset: int) -> None:
        """No promise holds of segments that are cut, until the next checkpoint."""
        holding = [s.base_offset for s in self.log.segments if s.base_offset <= offset]
        self.note(certain_offset=min(self.promise.certain_offset, holding[-1]))
        self.log.truncate(offset)

    def restart(self) -> None:
        self.data.close()
        self.note(certain_offset=self.log.log_end_offset)
        self.data.open()


def sets(life: Life) -> None:
    life.append(2, 1)
    life.checkpoint()
    life.append(1, 2, step_ms=-30)
    life.log.flusher.flush()
    # It writes checkpoints too, without syncing append times.
    life.data.directory.secure_log_starts([life.log])
    life.append(1)
    life.checkpoint(flush=False)
    life.append(1)


def rolls(life: Life) -> None:
    life.append(2, 2)
    life.log.flusher.flush()
    life.append(2, 2, 1)
    life.checkpoint()
    life.append(2)
    life.append(3, 1)
    life.checkpoint()


def stops(life: Life) -> None:
    life.append(2, 1)
    life.restart()
    life.append(1, 3)
    life.checkpoint()
    life.append(2)
    life.restart()
    life.append(1)


def stored(life: Life) -> None:
    life.append(1)
    life.append_stored(2)
    life.append(1)
    life.checkpoint()
    life.append_stored(1)
    life.append_stored(1)
    life.append(1)
    life.checkpoint()


def truncations(life: Life) -> None:
    life.append(1, 1, 1, 1)
    life.checkpoint()
    life.truncate(1)
    life.append(3)
    life.checkpoint()
    life.append(1, 1)
    life.truncate(2)
    life.append(1)
    life.checkpoint()
    life.append(1)


WORKLOADS = (sets, rolls, stops, stored, truncations)


def check(life: Life, state: CutState, path: Path) -> None:
    """Start on what is left, ask for every append time, go on, and ask again."""
    state.make(path)
    data = DataDirectory(path / "data")
    data.files = QuickFiles()
    data.clock.step(10**6)
    if TOPIC not in data.open().topics():
        return
    promise = life.promise_at(state.operations_done)
    log = data.directory.log(TOPIC, 0)
    found = assert_right(log, life.true)
    for offset, (value, ms) in found.items():
        if offset < promise.certain_offset:
            assert ms == life.true[value], f"offset {offset} was safe"
    true = life.true | {b"more": data.clock.now_ms()}
    log.appender.append(build_set([NewRecord(b"more", timestamp_ms=5)]))
    for killed in (False, True):
        if killed:
            kill(data, path)
        else:
            data.restart()
        log = data.directory.log(TOPIC, 0)
        after = assert_right(log, true)
        assert {offset: after[offset] for offset in found} == found
        assert after[log.log_end_offset - 1] == (b"more", data.clock.now_ms())
    data.close()


def kill(data: DataDirectory, path: Path) -> None:
    """Start on what a kill would leave."""
    copy = data.copy(path / "copy")
    data.close()
    data.path = copy.path
    data.open()


def assert_right(log: Log, true: dict[bytes, int]) -> dict[int, tuple[bytes, int]]:
    """Value and append time by offset; what is told is right, and found by a search."""
    found = {}
    for offset, _, _, value in read_messages(log):
        assert value is not None
        ms = reader.append_time_ms(log, offset)
        assert ms in (-1, true[value]), f"offset {offset}"
        found[offset] = (value, ms)
    for target_ms in {ms for _, ms in found.values() if ms >= 0}:
        first = min(offset for offset, (_, ms) in found.items() if ms >= target_ms)
        answer = reader.find_append_time(log, target_ms).run()
        assert answer is not None
        assert answer.offset == first
    return found


def survive(life: Life, folder: Path, random: Random, *, every: int = 1) -> int:
    """Check one in `every` of the states that a power cut may leave; how many there were."""
    cuts = PowerCuts(life.recording, random, exhaustive_max=32, samples=8)
    count = 0
    for state in cuts.states(life.promises):
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
def test_25_no_power_cut_makes_a_time_wrong(
    workload: Callable[[Life], None], folder: Path, random: Random
) -> None:
    life = Life(folder / "life")
    workload(life)
    assert survive(life, folder, random, every=2) > 50


@pytest.mark.parametrize(
    ("site", "workload"),
    [
        pytest.param("append_times.AppendTimes.sync: sync *.appendtime", sets, id="checkpoint"),
        pytest.param("flush.FlushWork._sync_index: sync *.appendtime", rolls, id="roll"),
    ],
)
def test_26_without_the_sync_it_is_noticed(
    site: str, workload: Callable[[Life], None], folder: Path
) -> None:
    """The same states each time: one draw in 160 has none in which it shows."""
    life = Life(folder / "life", without=site)
    workload(life)
    assert site in life.recording.sites
    with pytest.raises(AssertionError):
        survive(life, folder, Random(1))
