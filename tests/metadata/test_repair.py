"""Verify and repair of a data directory look at the metadata log in it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.protocol.errors import StorageError
from horolog.protocol.records.messages.sets import entries
from horolog.storage.check.repair import Repair, RepairPlan
from horolog.storage.check.verify import Finding, verify
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.directory.topics import TopicEntry
from horolog.storage.events import ignore_events
from horolog.storage.files import SystemFiles
from horolog.storage.metadata.records import MetadataRecord, PositionsCommitted, TopicCreated
from horolog.storage.names import METADATA_FOLDER
from horolog.testing.clock import ManualClock
from horolog.testing.files import ending_process
from horolog.tests.faults.damage.damaging import flip

from .copies import Copy, agree, commit, copy_all, tell, topic_id

A, B = topic_id(1), topic_id(2)
LOG = f"{METADATA_FOLDER}/__metadata-0"


@pytest.fixture
def folder() -> Iterator[Path]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name, ending_process():
        yield Path(name)


def created(name: str, known: str) -> TopicCreated:
    return TopicCreated(TopicEntry(name=name, partitions=1, topic_id=known))


def committed(offset: int) -> PositionsCommitted:
    return PositionsCommitted("g", ((A, StoredPosition("a", 0, offset, -1, 5, "")),))


def filled(folder: Path, *, rolled: bool = False) -> tuple[Copy, Copy]:
    """A leader and a follower with five records that both have applied; the follower is stopped.

    When it is `rolled` three are in a first segment, two in a second, and a third is empty.
    """
    first, second = Copy(folder / "first"), Copy(folder / "second")
    first.metadata.lead(1)
    agree(first, second)
    records: list[MetadataRecord] = [created("a", A), committed(1), committed(2)]
    records += [created("b", B), committed(3)]
    for number, record in enumerate(records, 1):
        first.metadata.append(record)
        if rolled and number in (3, 5):
            first.log.appender.roll()
    first.log.flusher.flush()
    replicate(first, second)
    second.data.close()
    return first, second


def replicate(leader: Copy, follower: Copy) -> None:
    copy_all(leader, follower)
    commit(leader, [leader, follower])
    tell(leader, follower)
    leader.apply()
    follower.apply()


def errors(path: Path) -> list[Finding]:
    return [finding for finding in verify(SystemFiles(), path) if finding.error]


def repair(path: Path) -> RepairPlan:
    repairing = Repair(SystemFiles(), path, clock=ManualClock(), observe=ignore_events)
    try:
        plan = repairing.plan()
        if plan.possible:
            repairing.carry_out(plan)
    finally:
        repairing.release()
    return plan


def entry_positions(path: Path) -> list[int]:
    """Where the records of the log file begin."""
    return [entry.position for entry in entries(path.read_bytes())]


@pytest.mark.parametrize("named", ["", METADATA_FOLDER, LOG])
@pytest.mark.parametrize("bad", [0, 2, 4])
def test_a_damaged_record_is_found_and_what_is_behind_it_copied_again(
    folder: Path, bad: int, named: str
) -> None:
    """Whichever of the folders is named. The broker is in doubt until it has what it lacks."""
    first, second = filled(folder)
    path = second.data.path
    log_path = path / LOG / f"{0:020d}.log"
    position = entry_positions(log_path)[bad]
    before = log_path.read_bytes()
    flip(log_path, position + 70, 0)
    found = errors(path / named)
    assert [(one.path, one.position) for one in found] == [(log_path, position)]
    assert "CRC" in found[0].rule
    plan = repair(path / named)
    assert plan.possible
    assert all(step.done for step in plan.steps)
    assert errors(path) == []
    assert log_path.read_bytes() == before[:position]
    second.open()
    assert second.log.log_end_offset == bad
    assert second.metadata.in_doubt
    assert sorted(second.data.directory.topics()) == ["a", "b"]
    agree(first, second)
    replicate(first, second)
    assert second.plain() == first.plain()
    second.restart()
    assert not second.metadata.in_doubt


@pytest.mark.parametrize("harm", ["a record", "a segment"])
def test_segments_behind_the_damage_are_set_aside(folder: Path, harm: str) -> None:
    first, second = filled(folder, rolled=True)
    log = second.data.path / LOG
    assert len(list(log.glob("*.log"))) == 3
    if harm == "a record":
        flip(log / f"{0:020d}.log", entry_positions(log / f"{0:020d}.log")[1] + 70, 0)
    else:
        (log / f"{3:020d}.log").unlink()
    assert errors(second.data.path)
    plan = repair(second.data.path)
    assert all(step.done for step in plan.steps)
    assert errors(second.data.path) == []
    second.open()
    assert second.log.log_end_offset == (1 if harm == "a record" else 3)
    assert second.metadata.in_doubt
    agree(first, second)
    replicate(first, second)
    assert second.plain() == first.plain()


def test_a_torn_end_costs_nothing(folder: Path) -> None:
    _, second = filled(folder)
    log_path = second.data.path / LOG / f"{0:020d}.log"
    with log_path.open("ab") as file:
        file.write(b"\0\0\0")
    assert [one.path for one in errors(second.data.path)] == [log_path]
    repair(second.data.path)
    assert errors(second.data.path) == []
    second.open()
    assert second.log.log_end_offset == 5
    assert not second.metadata.in_doubt


def test_a_state_that_cannot_be_read_is_found_and_set_aside(folder: Path) -> None:
    first, second = filled(folder)
    second.open()
    second.metadata.write_state()
    second.data.close()
    state = second.data.path / METADATA_FOLDER / "state"
    flip(state, 30, 0)
    (found,) = errors(second.data.path)
    assert found.path == state
    assert found.rule.startswith("the stored state cannot be read: ")
    repair(second.data.path)
    assert errors(second.data.path) == []
    assert state.with_name("state.broken").exists()
    second.open()
    assert second.metadata.in_doubt
    assert sorted(second.data.directory.topics()) == ["a", "b"]
    agree(first, second)
    replicate(first, second)


def test_a_log_that_is_gone_is_made_anew(folder: Path) -> None:
    first, second = filled(folder)
    log = second.data.path / LOG
    log.rename(folder / "elsewhere")
    assert [one.path for one in errors(second.data.path)] == [log]
    repair(second.data.path)
    second.open()
    assert second.metadata.in_doubt
    agree(first, second)
    replicate(first, second)
    assert second.plain() == first.plain()


def test_an_empty_metadata_folder_is_put_right(folder: Path) -> None:
    """Not even which folder it is can be told by what is in it."""
    first, second = filled(folder)
    path = second.data.path / METADATA_FOLDER
    path.rename(folder / "elsewhere")
    path.mkdir()
    assert [one.path.name for one in errors(second.data.path)] == ["__metadata-0"]
    repair(second.data.path)
    assert errors(second.data.path) == []
    second.open()
    assert second.metadata.in_doubt
    agree(first, second)
    replicate(first, second)
    assert second.plain() == first.plain()


@pytest.mark.parametrize("named", ["", METADATA_FOLDER, LOG])
def test_a_broker_keeps_a_repair_of_its_metadata_out(folder: Path, named: str) -> None:
    copy = Copy(folder / "data")
    with pytest.raises(StorageError, match="stop that broker first"):
        Repair(SystemFiles(), copy.data.path / named, clock=ManualClock(), observe=ignore_events)
    copy.data.close()


def test_a_repair_of_a_topic_keeps_in_mind_how_far_the_metadata_reached(folder: Path) -> None:
    _, second = filled(folder)
    second.open()
    second.data.append("a", 1)
    second.data.append("a", 2)
    second.data.close()
    flip(second.data.path / "a-0" / f"{0:020d}.log", 30, 0)
    before = (second.data.path / "topics.json").read_text()
    repair(second.data.path)
    after = (second.data.path / "topics.json").read_text()
    assert '"gaps": true' in after
    (line,) = [line for line in before.splitlines() if "metadata_offset" in line]
    assert line in after
