"""Making, altering and deleting topics."""

import errno
import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from horolog.protocol.errors import (
    HorologError,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    PolicyViolation,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.files import SystemFiles
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import delete_due, timed_set
from horolog.tests.followers.appending import append_copy

POSITION = StoredPosition("a", 0, 1, 2, 3, "")


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250])
def test_names_that_no_topic_may_have(name: str, data: DataDirectory) -> None:
    directory = data.open()
    with pytest.raises(InvalidTopic, match="1 to 249 characters"):
        directory.create_topic(name, 1, {})
    assert dict(directory.topics()) == {}
    data.close()


def test_a_topic_exists_once(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("a", 1, {})
    with pytest.raises(TopicAlreadyExists):
        directory.create_topic("a", 2, {})
    assert directory.topics()["a"].partitions == 1
    data.close()


def test_the_number_of_partitions_is_bounded(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data", max_partitions=5)
    directory = data.open()
    directory.create_topic("a", 2, {})
    for partitions in (-1, 0, 4):
        with pytest.raises(InvalidPartitions, match=r"1 to 3 \(max.partitions is 5"):
            directory.create_topic("b", partitions, {})
    directory.create_topic("b", 3, {})
    with pytest.raises(InvalidPartitions, match=r"max\.partitions"):
        directory.create_topic("c", 1, {})
    directory.delete_topic("a")
    directory.create_topic("c", 1, {})
    data.close()


def test_the_number_of_topics_is_bounded(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data", max_topics=2)
    directory = data.open()
    directory.create_topic("a", 1, {})
    directory.create_topic("b", 1, {})
    with pytest.raises(PolicyViolation, match=r"max\.topics is 2"):
        directory.create_topic("c", 1, {})
    assert not any(name.startswith("c-") for name in data.names())
    data.close()


def test_folder_names_stay_within_what_file_systems_take(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data", max_partitions=1_000_000)
    directory = data.open()
    with pytest.raises(InvalidPartitions, match="255 bytes"):
        directory.create_topic("x" * 249, 100_001, {})
    assert data.names() == [".lock", "metadata-log", "topics.json"]
    directory.create_topic("x" * 249, 1, {})
    directory.delete_topic("x" * 249)
    data.close()


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"retention.ms": "x"}, "retention.ms"),
        ({"cleanup.policy": "keep"}, "delete, compact"),
        ({"no.such.thing": "1"}, "no.such.thing"),
        ({"segment.index.bytes": "23"}, "24"),
    ],
)
def test_settings_that_are_refused_change_nothing(
    overrides: dict[str, str], text: str, data: DataDirectory
) -> None:
    directory = data.open()
    with pytest.raises(InvalidConfig, match=text):
        directory.create_topic("a", 1, overrides)
    assert "a-0" not in data.names()
    directory.create_topic("a", 1, {"retention.ms": "7"})
    with pytest.raises(InvalidConfig, match=text):
        directory.alter_topic("a", overrides)
    assert directory.topic_settings("a").retention_ms == 7
    assert data.topics_file()["a"]["overrides"] == {"retention.ms": "7"}
    data.close()


def test_altered_settings_reach_open_logs_and_the_file(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("a", 2, {"retention.ms": "7"})
    log = directory.log("a", 1)
    entry = directory.alter_topic("a", {"retention.bytes": "9", "log.retention.minutes": "1"})
    assert entry.overrides == {"retention.bytes": "9", "retention.ms": "60000"}
    assert log.settings.retention_bytes == 9
    assert directory.log("a", 0).settings.retention_ms == 60_000
    data.restart()
    assert data.directory.topics()["a"] == entry
    assert data.directory.log("a", 1).settings.retention_bytes == 9
    with pytest.raises(UnknownTopicOrPartition):
        data.directory.alter_topic("b", {})
    data.close()


def test_what_is_not_there_is_unknown(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("a", 2, {})
    for topic, partition in (("b", 0), ("a", 2), ("a", -1)):
        with pytest.raises(UnknownTopicOrPartition):
            directory.log(topic, partition)
    with pytest.raises(UnknownTopicOrPartition):
        directory.topic_settings("b")
    with pytest.raises(UnknownTopicOrPartition):
        directory.delete_topic("b")
    data.close()


def test_deletion_is_at_once_and_the_bytes_go_later(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("a", 2, {"file.delete.delay.ms": "1000"})
    directory.create_topic("b", 1, {})
    data.append("a", 1)
    data.commit("job", POSITION)
    directory.write_checkpoints()
    directory.delete_topic("a")
    assert list(directory.topics()) == ["b"]
    with pytest.raises(UnknownTopicOrPartition):
        directory.log("a", 0)
    assert directory.committed.of("job") == []
    assert list(data.topics_file()) == ["b"]
    assert [name for name in data.names() if name.startswith("a-") and "deleted" in name] == [
        name for name in data.names() if name.startswith("a-")
    ]
    assert len([name for name in data.names() if name.startswith("a-")]) == 2
    data.clock.advance(999)
    assert delete_due(directory.deletions) == 0
    data.clock.advance(1)
    assert delete_due(directory.deletions) == 2
    assert not any(name.startswith("a-") for name in data.names())
    data.close()


def test_deleted_folders_that_are_left_go_at_start_tc131(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("a", 1, {})
    data.append("a", 1)
    directory.delete_topic("a")
    data.close()
    assert any(name.endswith(".deleted") for name in data.names())
    data.open()
    assert not any(name.endswith(".deleted") for name in data.names())
    assert dict(data.directory.topics()) == {}
    data.close()


def test_a_new_topic_has_nothing_of_the_deleted_one(data: DataDirectory, tmp_path: Path) -> None:
    directory = data.open()
    directory.create_topic("a", 1, {"retention.ms": "5"})
    data.append("a", *range(50))
    directory.log("a", 0).flusher.flush()
    directory.log("a", 0).log_start_offset = 20
    directory.write_checkpoints()
    directory.delete_topic("a")
    directory.create_topic("a", 1, {})
    data.append("a", 7)
    assert data.times("a") == [7]
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert killed.times("a") == [7]
    assert killed.directory.log("a", 0).log_start_offset == 0
    assert killed.directory.topics()["a"].overrides == {}
    killed.close()
    data.close()


def test_a_deletion_that_was_begun_is_finished_at_start(data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 2, {})
    data.commit("job", POSITION)
    data.append("a", 1)
    data.close()
    document = json.loads((data.path / "topics.json").read_text())
    document["topics"]["a"]["deleting"] = True
    (data.path / "topics.json").write_text(json.dumps(document))
    (data.path / "a-1").rename(data.path / "a-1.00000000000000ff.deleted")
    directory = data.open()
    assert dict(directory.topics()) == {}
    assert data.topics_file() == {}
    assert not any(name.startswith("a-") for name in data.names())
    assert directory.committed.of("job") == []
    assert [e["topic"] for e in data.events.named("topic_deletion_finished")] == ["a"]
    data.close()


def test_a_folder_with_files_is_not_taken_for_a_new_topic(data: DataDirectory) -> None:
    directory = data.open()
    (data.path / "a-1").mkdir()
    (data.path / "a-1" / "precious").write_text("x")
    with pytest.raises(TopicAlreadyExists, match="a restart adopts it"):
        directory.create_topic("a", 2, {})
    assert "a-0" not in data.names()
    data.close()


def test_gaps_are_remembered_once_bytes_come_from_elsewhere(
    data: DataDirectory, tmp_path: Path
) -> None:
    data.open()
    data.directory.create_topic("a", 1, {})
    assert "gaps" not in data.topics_file()["a"]
    append_copy(data.directory.log("a", 0), timed_set(1, base_offset=0))
    append_copy(data.directory.log("a", 0), timed_set(2, 3, base_offset=10))
    assert data.topics_file()["a"]["gaps"] is True
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert killed.times("a") == [1, 2, 3]
    killed.close()
    data.close()


LOG = f"{0:020d}.log"
TEMPORARY = "topics.json.tmp"
REFUSED = [
    ("make_directory", "a-1"),
    ("open", TEMPORARY),
    ("pwrite", TEMPORARY),
    ("sync", TEMPORARY),
    ("rename", TEMPORARY),
]
"""What the disk may refuse of a creation that has been recorded."""


def test_a_change_that_cannot_be_recorded_leaves_nothing(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    files.fail("pwrite", errno.ENOSPC, name=LOG)
    with pytest.raises(StorageError, match="No space left"):
        directory.create_topic("a", 2, {})
    assert dict(directory.topics()) == {}
    assert not any(name.startswith("a-") for name in data.names())
    directory.create_topic("a", 1, {"retention.ms": "5"})
    changes: list[Callable[[], object]] = [
        partial(directory.create_partitions, "a", 3),
        partial(directory.alter_topic, "a", {}),
        partial(directory.delete_topic, "a"),
    ]
    for change in changes:
        files.fail("pwrite", errno.ENOSPC, name=LOG)
        with pytest.raises(StorageError, match="No space left"):
            change()
    entry = directory.topics()["a"]
    assert (entry.partitions, entry.overrides) == (1, {"retention.ms": "5"})
    data.restart()
    assert data.directory.topics()["a"] == entry
    data.close()


@pytest.mark.parametrize(("kind", "name"), REFUSED)
def test_a_creation_that_the_disk_refuses_is_made_later(
    kind: str, name: str, data: DataDirectory, tmp_path: Path
) -> None:
    """It is told, and recorded: the next change of a topic, or the next start, makes it."""
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    files.fail(kind, errno.ENOSPC, name=name)
    with pytest.raises(StorageError, match=r"cannot be made: .*No space left"):
        directory.create_topic("a", 2, {})
    assert dict(directory.topics()) == {}
    assert not any(name.startswith("a-") for name in data.names())
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert killed.directory.topics()["a"].partitions == 2
    killed.close()
    files.fail(kind, errno.ENOSPC, name=name)
    with pytest.raises(StorageError, match="No space left"):
        directory.create_topic("a", 1, {})
    assert dict(directory.topics()) == {}
    # Another topic does not have to wait for it.
    files.fail(kind, errno.ENOSPC, name=name)
    directory.create_topic("b", 1, {})
    with pytest.raises(TopicAlreadyExists):
        directory.create_topic("a", 1, {})
    assert {name: entry.partitions for name, entry in directory.topics().items()} == {
        "a": 2,
        "b": 1,
    }
    data.append("a", 1)
    data.restart()
    assert data.times("a") == [1]
    data.close()


def test_a_change_that_the_disk_refuses_comes_true_at_the_next_start(
    data: DataDirectory, tmp_path: Path
) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    directory.create_topic("a", 1, {"retention.ms": "5"})
    directory.create_topic("gone", 1, {})
    data.append("a", 1)
    files.fail("sync_directory", errno.EIO, name="data")
    with pytest.raises(StorageError, match="cannot be altered"):
        directory.alter_topic("a", {"retention.ms": "6"})
    assert directory.topic_settings("a").retention_ms == 5
    files.fail("sync_directory", errno.EIO, name="data", times=4)
    with pytest.raises(StorageError, match="cannot be deleted"):
        directory.delete_topic("gone")
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert list(killed.directory.topics()) == ["a"]
    assert killed.times("a") == [1]
    assert killed.directory.topic_settings("a").retention_ms == 6
    killed.close()
    files.heal()
    data.close()


@pytest.mark.parametrize("kind", ["rename", "sync_directory"])
@pytest.mark.parametrize("passing", range(6))
def test_a_deletion_that_fails_is_made_by_the_next_change(
    kind: str, passing: int, data: DataDirectory
) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    directory.create_topic("a", 2, {})
    data.commit("job", POSITION)
    data.append("a", 1)
    files.fail(kind, errno.EIO, passing=passing)
    with suppress(HorologError):
        directory.delete_topic("a")
    files.heal()
    directory.create_topic("a", 1, {})
    assert data.times("a") == []
    assert directory.committed.of("job") == []
    data.close()


def done_by(files: FaultyFiles) -> list[tuple[str, str]]:
    """What was done that a power cut could undo or reorder, and the syncs against it."""
    kinds = {"make_directory", "rename", "sync", "sync_directory"}
    done = [(kind, name) for kind, name in files.operations if kind in kinds]
    files.operations.clear()
    return done


def test_names_are_safe_before_what_depends_on_them(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    done_by(files)
    replaced = [("sync", "topics.json.tmp"), ("rename", "topics.json.tmp")]
    directory.create_topic("a", 2, {})
    assert done_by(files) == [
        ("sync", LOG),
        ("sync_directory", "__metadata-0"),
        ("make_directory", "a-0"),
        ("make_directory", "a-1"),
        ("sync_directory", "data"),
        *replaced,
        ("sync_directory", "data"),
    ]
    directory.delete_topic("a")
    assert done_by(files) == [
        ("sync", LOG),
        *replaced,
        ("sync_directory", "data"),
        ("rename", "a-0"),
        ("rename", "a-1"),
        ("sync_directory", "data"),
        *replaced,
        ("sync_directory", "data"),
    ]
    data.close()
