"""A power cut at any moment: topics and positions are those that some beginning of the committed
records says, never less than was applied where that was promised, and the broker goes on."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.directory.topics import TopicEntry
from horolog.storage.metadata.records import (
    MessagesRemoved,
    MetadataRecord,
    PartitionsAdded,
    PositionsCommitted,
    SettingsAltered,
    TopicCreated,
    TopicDeleted,
)
from horolog.testing.directories import DataDirectory
from horolog.testing.files import QuickFiles, ending_process
from horolog.testing.power_cuts import CutState, PowerCuts
from horolog.testing.recording import RecordingFiles

from .copies import Copy, Plain, removal, topic_id

A, B = topic_id(1), topic_id(2)


@pytest.fixture
def folder() -> Iterator[Path]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name, ending_process():
        yield Path(name)


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    return Random(f"{request.config.getoption('--hypothesis-seed')} {request.node.name}")


def created(name: str, known: str, partitions: int = 1) -> TopicCreated:
    return TopicCreated(TopicEntry(name=name, partitions=partitions, topic_id=known))


def committed(known: str, topic: str, offset: int) -> PositionsCommitted:
    return PositionsCommitted("g", ((known, StoredPosition(topic, 0, offset, -1, 5, "")),))


@dataclass
class Life:
    """A leader that is alone in the ISR, every change of its directory recorded."""

    path: Path
    without: str | None = None
    records: dict[int, MetadataRecord] = field(default_factory=dict)
    base: Plain = field(default_factory=Plain)
    """What there is at `start`."""
    start: int = 0
    promised: dict[int, int] = field(default_factory=lambda: {0: 0})
    """From so many operations on it has all records below the offset."""

    def __post_init__(self) -> None:
        self.path.mkdir()
        self.recording = RecordingFiles(QuickFiles(), self.path, without=self.without)
        self.copy = Copy(self.path / "data", files=self.recording)
        self.lead()

    def lead(self) -> None:
        log = self.copy.log
        self.copy.metadata.lead(1 + log.epochs.highest_seen)
        log.flusher.flush()
        log.hold_high_watermark(None)

    def make(self, *records: MetadataRecord) -> None:
        for record in records:
            self.records[self.copy.metadata.append(record)] = record
        self.copy.log.flusher.flush()
        self.copy.apply()
        self.promise()

    def promise(self) -> None:
        self.promised[len(self.recording.operations)] = self.copy.metadata.applied

    def shorten(self) -> None:
        self.copy.metadata.write_state()
        self.promise()

    def restart(self) -> None:
        self.copy.restart()
        self.lead()
        self.copy.apply()

    def at(self, offset: int) -> Plain:
        plain = Plain(dict(self.base.topics), dict(self.base.held))
        for each in range(self.start, offset):
            plain.apply(self.records[each])
        return plain


def topics(life: Life) -> None:
    life.make(created("a", A, 2))
    life.make(committed(A, "a", 3), PartitionsAdded("a", A, 3))
    life.make(SettingsAltered("a", A, {"retention.ms": "7"}), committed(A, "a", 5))
    life.make(TopicDeleted("a", A), created("a", B), committed(A, "a", 9), committed(B, "a", 1))


def states(life: Life) -> None:
    life.make(created("a", A), committed(A, "a", 3))
    life.shorten()
    life.make(committed(A, "a", 4), created("b", B))
    life.shorten()
    life.restart()
    life.make(TopicDeleted("b", B), committed(A, "a", 6))
    life.shorten()
    life.make(committed(A, "a", 7))


def journal(life: Life) -> None:
    life.make(created("a", A), MessagesRemoved((removal("a", A, 0, 3),)))
    life.make(MessagesRemoved((removal("a", A, 3, 5), removal("b", B, 0, 2))))
    life.shorten()
    life.make(TopicDeleted("a", A, (removal("a", A, 5, 9, cause="deletion"),)), created("a", B))
    life.make(MessagesRemoved((removal("a", B, 0, 1),)))


WORKLOADS = (topics, states, journal)


def check(life: Life, state: CutState, path: Path) -> None:
    state.make(path)
    copy = Copy(path / "data")
    promised = max(end for since, end in life.promised.items() if since <= state.operations_done)
    assert copy.metadata.failure is None
    assert not copy.metadata.in_doubt
    copy.apply()
    assert copy.plain() == life.at(copy.metadata.applied)
    assert copy.log.log_end_offset >= promised
    # It leads again: what was promised is there, and what comes next goes on from it.
    copy.metadata.lead(100)
    copy.log.flusher.flush()
    copy.log.hold_high_watermark(None)
    copy.apply()
    assert copy.metadata.applied == copy.log.log_end_offset >= promised
    expected = life.at(copy.metadata.applied)
    assert copy.plain() == expected
    last = created("last", topic_id(9))
    copy.metadata.append(last)
    copy.log.flusher.flush()
    copy.apply()
    expected.apply(last)
    assert copy.plain() == expected
    copy.restart()
    copy.apply()
    assert copy.plain() == expected
    copy.data.close()


def survive(
    life: Life,
    folder: Path,
    random: Random,
    check: Callable[..., None] = check,
    *,
    every: int = 1,
) -> int:
    """Check one in `every` of the states that a power cut may leave; how many there were."""
    found = PowerCuts(life.recording, random, exhaustive_max=16, samples=4)
    count = 0
    for state in found.states(life.promised):
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
def test_what_was_applied_is_there_and_nothing_half(
    workload: Callable[[Life], None], folder: Path, random: Random
) -> None:
    life = Life(folder / "life")
    workload(life)
    assert survive(life, folder, random, every=2) > 50


@pytest.mark.parametrize(
    ("site", "workload"),
    [
        pytest.param("flush.FlushWork.sync_messages: sync *.log", topics, id="records"),
        pytest.param(
            "folder.MetadataFolder._write > files.replacing: sync state.tmp", states, id="state"
        ),
    ],
)
def test_without_the_sync_it_is_noticed(
    site: str, workload: Callable[[Life], None], folder: Path
) -> None:
    """The same states each time: not every draw has one in which it shows."""
    life = Life(folder / "life", without=site)
    workload(life)
    assert site in life.recording.sites, sorted(life.recording.sites)
    with pytest.raises(Exception, match=r".") as caught:
        survive(life, folder, Random(1))
    assert any("after operation" in note for note in caught.value.__notes__)


class Migration(Life):
    """A single broker with topics and positions becomes a cluster member."""

    def __post_init__(self) -> None:
        self.path.mkdir()
        alone = DataDirectory(self.path / "data")
        alone.files = QuickFiles()
        alone.open().create_topic("a", 2, {"retention.ms": "5"})
        alone.directory.create_topic("b", 1, {})
        alone.commit("g", StoredPosition("a", 1, 7, -1, 5, "x"))
        alone.append("a", 1, 2, 3)
        alone.close()
        ids = {name: str(entry["id"]) for name, entry in alone.topics_file().items()}
        self.base = Plain(
            {"a": (ids["a"], 2, (("retention.ms", "5"),)), "b": (ids["b"], 1, ())},
            {("g", "a", 1): (7, "x", -1, -1)},
        )
        self.recording = RecordingFiles(QuickFiles(), self.path)
        self.copy = Copy(self.path / "data", files=self.recording)


def migrated(life: Life, state: CutState, path: Path) -> None:
    state.make(path)
    copy = Copy(path / "data")
    assert not copy.metadata.in_doubt
    assert copy.plain() == life.base
    assert "positions" not in copy.data.names()
    assert len(copy.data.times("a")) == 0, "nothing is seen before it is led"
    assert copy.data.directory.log("a", 0).log_end_offset == 3
    copy.restart()
    assert copy.plain() == life.base
    copy.metadata.lead(1)
    copy.metadata.append(TopicDeleted("a", life.base.topics["a"][0]))
    copy.log.flusher.flush()
    copy.log.hold_high_watermark(None)
    copy.apply()
    assert copy.plain() == Plain({"b": life.base.topics["b"]})
    copy.data.close()


def test_a_directory_becomes_one_of_several_at_once(folder: Path, random: Random) -> None:
    life = Migration(folder / "life")
    assert life.copy.plain() == life.base
    log = life.copy.log
    assert (log.log_start_offset, log.log_end_offset, life.copy.metadata.applied) == (0, 3, 3)
    life.copy.data.close()
    assert survive(life, folder, random, migrated) > 3
