"""Starts of a single broker whose metadata log, topics file and folders do not agree, with a power
cut at each step: the next start comes to the same."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.check.verify import verify
from horolog.storage.directory.known_files import EARLIER_FILES
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.directory.topics import TopicEntry
from horolog.storage.files import SystemFiles
from horolog.storage.metadata.access_records import (
    CredentialsAltered,
    RulesAdded,
    StoredCredential,
    StoredRule,
)
from horolog.storage.metadata.records import MetadataRecord, TopicCreated, TopicDeleted
from horolog.testing.directories import DataDirectory
from horolog.testing.files import QuickFiles, ending_process
from horolog.testing.power_cuts import PowerCuts
from horolog.testing.recording import RecordingFiles

KEPT = {"retention.bytes": "-1", "retention.ms": "-1"}
LOG = Path("metadata-log") / "__metadata-0" / f"{0:020d}.log"
STATE = Path("metadata-log") / "state"
KEY = bytes(32)


@pytest.fixture
def folder() -> Iterator[Path]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name, ending_process():
        yield Path(name)


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    return Random(f"{request.config.getoption('--hypothesis-seed')} {request.node.name}")


@dataclass
class Expected:
    """What there is after a start."""

    topics: dict[str, tuple[int, Mapping[str, str]]]
    """Partitions and settings."""
    same_ids: set[str]
    """Topics that have the id that they had."""
    times: dict[tuple[str, int], list[int]]
    positions: dict[str, int | None] = field(default_factory=dict)
    """Of partition 0, by topic."""
    users: set[str] = field(default_factory=set)
    gaps: set[str] = field(default_factory=set)


def whole() -> Expected:
    return Expected(
        topics={"a": (2, {"retention.ms": "5"}), "b": (1, {})},
        same_ids={"a", "b"},
        times={("a", 0): [1, 2], ("a", 1): [3], ("b", 0): [4]},
        positions={"a": 7, "b": 9},
        users={"alice"},
    )


def record(data: DataDirectory, *records: MetadataRecord) -> None:
    metadata = data.directory.metadata
    for each in records:
        metadata.append(each)
    metadata.log.flusher.flush()


def filled(path: Path) -> DataDirectory:
    """A directory with all that is recorded, stopped cleanly."""
    data = DataDirectory(path)
    data.files = QuickFiles()
    directory = data.open()
    directory.cluster_id()
    directory.create_topic("a", 2, {"retention.ms": "5"})
    directory.create_topic("b", 1, {})
    data.append("a", 1, 2)
    data.append("a", 3, partition=1)
    data.append("b", 4)
    data.commit("job", StoredPosition("a", 0, 7, -1, 5, ""))
    rule = StoredRule("User:alice", "*", "READ", "ALLOW", "TOPIC", "LITERAL", "a")
    credential = StoredCredential(b"salt", 4096, KEY, KEY)
    record(data, CredentialsAltered([("alice", "SCRAM-SHA-256", credential)]), RulesAdded([rule]))
    directory.metadata.apply()
    data.commit("job", StoredPosition("b", 0, 9, -1, 5, ""))
    data.close()
    return data


def ids(data: DataDirectory) -> dict[str, str]:
    return {name: str(entry["id"]) for name, entry in data.topics_file().items()}


def check(data: DataDirectory, expected: Expected, before: Mapping[str, str]) -> None:
    directory = data.open()
    try:
        topics = directory.topics()
        found = {name: (each.partitions, dict(each.overrides)) for name, each in topics.items()}
        assert found == expected.topics
        now = {name: each.topic_id for name, each in topics.items()}
        assert {name for name in before if now.get(name) == before[name]} == expected.same_ids
        assert {name for name, each in topics.items() if each.gaps} == expected.gaps
        assert {key: data.times(*key) for key in directory.partitions()} == expected.times
        held = {name: directory.committed.get("job", name, 0) for name in topics}
        assert {name: each and each.offset for name, each in held.items()} == (
            dict.fromkeys(topics) | expected.positions
        )
        state = directory.metadata.state
        assert set(state.access.users) == expected.users
        assert {rule.principal for rule in state.access.rules} == {
            f"User:{user}" for user in expected.users
        }
        assert dict(state.topics).keys() == topics.keys()
        assert {name: each.topic_id for name, each in state.topics.items()} == {
            name: each.topic_id for name, each in topics.items()
        }
    finally:
        data.close()


# What is done to a directory that was stopped, and what a start makes of it.


def nothing_lost(data: DataDirectory) -> Expected:
    return whole()


def killed(data: DataDirectory) -> Expected:
    (data.path / ".kafka_cleanshutdown").unlink()
    (data.path / "metadata-log" / ".kafka_cleanshutdown").unlink()
    return whole()


def without_access(**changes: Any) -> Expected:
    expected = whole()
    expected.users = set()
    expected.positions = {}
    for name, value in changes.items():
        setattr(expected, name, value)
    return expected


def log_lost(data: DataDirectory) -> Expected:
    shutil.rmtree(data.path / "metadata-log")
    return without_access()


def segments_lost(data: DataDirectory) -> Expected:
    shutil.rmtree(data.path / LOG.parent)
    return without_access()


def log_cut(data: DataDirectory) -> Expected:
    """Its end is gone, with records that were confirmed."""
    content = (data.path / LOG).read_bytes()
    (data.path / LOG).write_bytes(content[: len(content) * 2 // 3])
    return without_access(positions={"a": 7})


def log_damaged(data: DataDirectory) -> Expected:
    """Positions that can be read stay; what came behind may have taken rights away."""
    content = bytearray((data.path / LOG).read_bytes())
    content[len(content) * 2 // 3] ^= 1
    (data.path / LOG).write_bytes(content)
    return without_access(positions={"a": 7})


def state_lost_behind_which_the_log_begins(data: DataDirectory) -> Expected:
    data.open().metadata.write_state()
    data.close()
    (data.path / STATE).write_bytes(b"?")
    return without_access()


def state_lost_that_is_not_needed(data: DataDirectory) -> Expected:
    (data.path / STATE).unlink()
    return whole()


def topics_file_lost(data: DataDirectory) -> Expected:
    (data.path / "topics.json").unlink()
    expected = whole()
    expected.gaps = {"a", "b"}
    return expected


def topics_file_damaged(data: DataDirectory) -> Expected:
    (data.path / "topics.json").write_bytes(b"{")
    expected = whole()
    expected.gaps = {"a", "b"}
    return expected


def both_lost(data: DataDirectory) -> Expected:
    (data.path / "topics.json").unlink()
    shutil.rmtree(data.path / "metadata-log")
    return without_access(topics={"a": (2, KEPT), "b": (1, KEPT)}, same_ids=set(), gaps={"a", "b"})


def topics_file_lost_and_log_damaged(data: DataDirectory) -> Expected:
    log_damaged(data)
    (data.path / "topics.json").unlink()
    return without_access(topics={"a": (2, KEPT), "b": (1, KEPT)}, same_ids=set(), gaps={"a", "b"})


def folders_copied(data: DataDirectory) -> Expected:
    shutil.copytree(data.path / "b-0", data.path / "c-1")
    shutil.copytree(data.path / "b-0", data.path / "a-2")
    expected = whole()
    expected.topics |= {"a": (3, {"retention.ms": "5"}), "c": (2, {})}
    expected.times |= {("a", 2): [4], ("c", 0): [], ("c", 1): [4]}
    expected.gaps = {"a", "c"}
    return expected


def folder_lost(data: DataDirectory) -> Expected:
    """Its offsets come again with other messages: the topic has another id, and nothing else."""
    shutil.rmtree(data.path / "a-1")
    expected = whole()
    expected.same_ids = {"b"}
    expected.times["a", 1] = []
    return expected


def creation_not_made(data: DataDirectory) -> Expected:
    entry = TopicEntry(name="new", partitions=2, topic_id="n" * 22, overrides={"segment.ms": "9"})
    data.open()
    record(data, TopicCreated(entry))
    data.close()
    (data.path / "new-0").mkdir()
    expected = whole()
    expected.topics["new"] = (2, {"segment.ms": "9"})
    expected.times |= {("new", 0): [], ("new", 1): []}
    return expected


def creation_not_recorded(data: DataDirectory) -> Expected:
    (data.path / "new-0").mkdir()
    return whole()


def deletion_not_made(data: DataDirectory) -> Expected:
    data.open()
    record(data, TopicDeleted("a", ids(data)["a"]))
    data.close()
    expected = whole()
    del expected.topics["a"], expected.times["a", 0], expected.times["a", 1]
    del expected.positions["a"]
    expected.same_ids = {"b"}
    return expected


def made_again_and_not_made(data: DataDirectory) -> Expected:
    """The topic of this name is another one: nothing of the first one is in it."""
    data.open()
    other = TopicEntry(name="a", partitions=1, topic_id="o" * 22)
    record(data, TopicDeleted("a", ids(data)["a"]), TopicCreated(other))
    data.close()
    expected = whole()
    expected.topics["a"] = (1, {})
    expected.times = {("a", 0): [], ("b", 0): [4]}
    del expected.positions["a"]
    expected.same_ids = {"b"}
    return expected


CASES = (
    nothing_lost,
    killed,
    log_lost,
    segments_lost,
    log_cut,
    log_damaged,
    state_lost_behind_which_the_log_begins,
    state_lost_that_is_not_needed,
    topics_file_lost,
    topics_file_damaged,
    both_lost,
    topics_file_lost_and_log_damaged,
    folders_copied,
    folder_lost,
    creation_not_made,
    creation_not_recorded,
    deletion_not_made,
    made_again_and_not_made,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_power_cut_at_each_step_of_a_start(
    case: Callable[[DataDirectory], Expected], folder: Path, random: Random
) -> None:
    (folder / "life").mkdir()
    data = filled(folder / "life" / "data")
    before = ids(data)
    expected = case(data)
    recording = RecordingFiles(QuickFiles(), folder / "life")
    data.files = recording
    data.open()
    opened = len(recording.operations)
    data.close()
    cuts = PowerCuts(recording, random, exhaustive_max=8, samples=2)
    count = 0
    for state in cuts.states():
        if state.operations_done > opened:
            break
        count += 1
        path = folder / "state"
        state.make(path)
        survivor = DataDirectory(path / "data")
        survivor.files = QuickFiles()
        survivor.random = Random(random.random())
        try:
            check(survivor, expected, before)
            first = ids(survivor)
            check(survivor, expected, before)
            assert ids(survivor) == first, "a start after a clean stop changes nothing"
            assert not [one for one in verify(SystemFiles(), survivor.path) if one.error]
        except Exception as error:
            error.add_note(f"after operation {state.operations_done}, lost: {state.lost}")
            raise
        finally:
            shutil.rmtree(path, ignore_errors=True)
    assert count > 2


def test_a_log_that_is_given_up_is_kept_and_told(folder: Path) -> None:
    data = filled(folder / "data")
    log_damaged(data)
    data.open()
    [told] = data.events.named("metadata_log_set_aside")
    assert Path(str(told["kept"])).name == "metadata-log.broken"
    assert (Path(str(told["kept"])) / "__metadata-0").is_dir()
    assert "add them again" in str(told["consequence"])
    data.close()


def test_damage_that_no_record_needs_costs_nothing(folder: Path) -> None:
    data = filled(folder / "data")
    data.open().metadata.write_state()
    data.close()
    content = bytearray((data.path / LOG).read_bytes())
    content[30] ^= 1
    (data.path / LOG).write_bytes(content)
    check(data, whole(), ids(data))


@pytest.mark.parametrize("name", sorted(EARLIER_FILES))
def test_what_an_earlier_build_kept_in_files_is_refused(folder: Path, name: str) -> None:
    data = filled(folder / "data")
    (data.path / name).write_bytes(b"{}")
    for _ in range(2):
        with pytest.raises(StorageError, match=f"of an earlier build .*{name}.*does not convert"):
            data.open()
    data.member = True
    with pytest.raises(StorageError, match="of an earlier build"):
        data.open()
    data.member = False
    (data.path / name).unlink()
    check(data, whole(), ids(data))


def test_a_later_version_s_record_stops_the_start(folder: Path) -> None:
    """Nothing is set aside: the version that wrote it reads it."""
    import msgpack

    from horolog.protocol.records.batch import finish_batch
    from horolog.protocol.records.kernel import RecordEncoder

    data = filled(folder / "data")
    log = data.open().metadata.log
    encoder = RecordEncoder()
    encoder.add(msgpack.packb([99, "new kind"]), None, 5, ())
    log.appender.append(finish_batch(encoder), wait_for_sync=True)
    data.close()
    for _ in range(2):
        with pytest.raises(StorageError, match="start the version that wrote it"):
            data.open()
    assert (data.path / LOG).is_file()


def test_an_empty_log_is_nothing_to_recover(folder: Path) -> None:
    data = DataDirectory(folder / "data")
    data.open()
    for number in range(3):
        data = data.copy(folder / f"killed{number}")
        data.open()
        assert data.events.seen == []
    data.close()
