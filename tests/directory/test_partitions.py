"""Giving a topic more partitions."""

import errno
from pathlib import Path

import pytest

from horolog.protocol.errors import (
    InvalidPartitions,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from horolog.storage.files import SystemFiles
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles


def test_new_partitions_are_empty_and_the_old_ones_untouched(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("a", 1, {"retention.ms": "7"})
    data.append("a", 1, 2)
    entry = directory.create_partitions("a", 3)
    assert (entry.partitions, dict(entry.overrides)) == (3, {"retention.ms": "7"})
    assert directory.topics()["a"] == entry
    assert data.times("a") == [1, 2]
    assert [directory.log("a", number).log_end_offset for number in range(3)] == [2, 0, 0]
    assert directory.log("a", 2).settings.retention_ms == 7
    data.restart()
    assert data.topics_file()["a"]["partitions"] == 3
    assert data.times("a") == [1, 2]
    assert data.directory.log("a", 2).log_end_offset == 0
    data.close()


@pytest.mark.parametrize("partitions", [-1, 0, 1, 2])
def test_their_number_only_grows(partitions: int, data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("a", 2, {})
    with pytest.raises(InvalidPartitions, match=f"has 2 partitions.*{partitions}; .* only grow"):
        directory.create_partitions("a", partitions)
    with pytest.raises(UnknownTopicOrPartition):
        directory.create_partitions("b", 5)
    assert directory.topics()["a"].partitions == 2
    data.close()


def test_their_number_is_bounded(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data", max_partitions=5)
    directory = data.open()
    directory.create_topic("a", 2, {})
    directory.create_topic("b", 1, {})
    with pytest.raises(InvalidPartitions, match=r"1 to 4 \(max\.partitions is 5, and 3 exist"):
        directory.create_partitions("a", 5)
    directory.create_partitions("a", 4)
    with pytest.raises(InvalidPartitions, match=r"max\.partitions"):
        directory.create_partitions("b", 2)
    data.close()


def test_a_folder_with_files_is_not_taken_for_a_new_partition(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("a", 1, {})
    (data.path / "a-2").mkdir()
    (data.path / "a-2" / "precious").write_text("x")
    with pytest.raises(TopicAlreadyExists, match="a restart adopts it"):
        directory.create_partitions("a", 3)
    assert "a-1" not in data.names()
    assert directory.create_partitions("a", 2).partitions == 2
    data.close()


@pytest.mark.parametrize("kind", ["make_directory", "open", "pwrite", "sync", "rename"])
def test_what_the_disk_refuses_is_made_later(kind: str, data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    directory.create_topic("a", 1, {})
    data.append("a", 1)
    files.fail(kind, errno.ENOSPC, name="a-2" if kind == "make_directory" else "topics.json.tmp")
    with pytest.raises(StorageError, match=r"cannot be given more partitions: .*No space left"):
        directory.create_partitions("a", 3)
    assert directory.topics()["a"].partitions == 1
    assert [name for name in data.names() if name.startswith("a-")] == ["a-0"]
    with pytest.raises(InvalidPartitions, match="has 3 partitions"):
        directory.create_partitions("a", 2)
    data.restart()
    assert data.times("a") == [1]
    assert data.directory.topics()["a"].partitions == 3
    data.close()


def test_a_crash_between_folders_and_file_leaves_the_old_number(
    data: DataDirectory, tmp_path: Path
) -> None:
    data.open()
    data.directory.create_topic("a", 1, {})
    data.close()
    (data.path / "a-1").mkdir()
    data.open()
    assert data.directory.topics()["a"].partitions == 1
    assert data.directory.create_partitions("a", 2).partitions == 2
    data.close()


def test_names_are_safe_before_what_depends_on_them(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    directory.create_topic("a", 1, {})
    files.operations.clear()
    directory.create_partitions("a", 2)
    kinds = {"make_directory", "rename", "sync", "sync_directory"}
    assert [(kind, name) for kind, name in files.operations if kind in kinds] == [
        ("sync", f"{0:020d}.log"),
        ("make_directory", "a-1"),
        ("sync_directory", "data"),
        ("sync", "topics.json.tmp"),
        ("rename", "topics.json.tmp"),
        ("sync_directory", "data"),
    ]
    data.close()
