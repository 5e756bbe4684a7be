"""Folders and topics file that do not agree at start."""

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from horolog.protocol.errors import (
    StorageError,
)
from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.testing.directories import DataDirectory, read_messages
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import timed_set


def test_folders_are_adopted_with_default_settings(golden: Path, data: DataDirectory) -> None:
    data.path.mkdir()
    source = golden / "kafka-0.10.2" / "v1-create-time"
    shutil.copytree(source / "clean", data.path / "old-clicks-0")
    directory = data.open()
    entry = directory.topics()["old-clicks"]
    assert (entry.partitions, entry.overrides, entry.gaps) == (1, {}, True)
    assert data.topics_file()["old-clicks"]["gaps"] is True
    assert [e["topic"] for e in data.events.named("folder_adopted")] == ["old-clicks"]
    expected = json.loads((source / "expected.json").read_text())["messages"]
    assert len(read_messages(directory.log("old-clicks", 0))) == len(expected)
    data.restart()
    assert data.events.seen == []
    assert data.directory.topics()["old-clicks"] == entry
    data.close()


def test_topics_whose_file_was_lost_keep_all_messages(data: DataDirectory) -> None:
    """Their own retention is not known, and the default could delete what was to be kept."""
    directory = data.open()
    directory.create_topic("clicks", 1, {"retention.ms": "-1"})
    directory.log("clicks", 0).appender.append(timed_set(1))
    directory.cluster_id()
    data.close()
    (data.path / "topics.json").unlink()
    shutil.rmtree(data.path / "metadata-log")
    directory = data.open()
    assert directory.topics()["clicks"].overrides == {
        "retention.bytes": "-1",
        "retention.ms": "-1",
    }
    (adopted,) = data.events.named("folder_adopted")
    assert "all of them are kept" in adopted["settings"]
    data.close()


def test_topics_whose_file_was_lost_are_in_the_metadata_log(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("clicks", 2, {"retention.ms": "9"})
    directory.create_topic("idle", 1, {})
    data.append("clicks", 1)
    before = dict(directory.topics())
    directory.cluster_id()
    data.close()
    (data.path / "topics.json").unlink()
    shutil.rmtree(data.path / "clicks-1")
    topics = data.open().topics()
    assert topics["idle"] == replace(before["idle"], gaps=True)
    again = topics["clicks"]
    assert (again.partitions, again.overrides, again.gaps) == (2, {"retention.ms": "9"}, True)
    assert again.topic_id != before["clicks"].topic_id, "a partition of it begins anew"
    assert data.events.named("folder_adopted") == []
    assert [e["partition"] for e in data.events.named("partition_folder_missing")] == [1]
    assert data.times("clicks") == [1]
    data.restart()
    assert data.events.seen == []
    data.close()


def test_kafka_s_whole_directory_opens_as_it_is(golden: Path, data: DataDirectory) -> None:
    source = golden / "kafka-0.10.2"
    shutil.copytree(source / "log-directory", data.path)
    topics = sorted(path.name for path in source.iterdir() if (path / "clean").is_dir())
    for name in topics:
        shutil.copytree(source / name / "clean", data.path / f"{name}-0")
    offsets = data.path / "__consumer_offsets-0"
    offsets.mkdir()
    (offsets / f"{0:020d}.log").touch()
    directory = data.open()
    assert sorted(directory.topics()) == ["__consumer_offsets", *topics]
    assert data.events.named("log_recovered") == []
    assert data.events.named("stray_file") == []
    for name in topics:
        messages = json.loads((source / name / "expected.json").read_text())["messages"]
        found = [(offset, time) for offset, time, _, _ in read_messages(directory.log(name, 0))]
        assert found == [(message[0], message[1]) for message in messages]
    assert directory.log("__consumer_offsets", 0).log_end_offset == 0
    data.close()


def test_a_folder_copied_into_a_cleanly_stopped_directory_is_recovered(
    data: DataDirectory, tmp_path: Path
) -> None:
    data.open()
    data.directory.create_topic("a", 1, {})
    data.append("a", 1, 2)
    data.close()
    shutil.copytree(data.path / "a-0", data.path / "b-0")
    log = data.path / "b-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    data.open()
    assert [e["topic"] for e in data.events.named("log_recovered")] == ["b"]
    assert data.times("b") == [1]
    assert data.times("a") == [1, 2]
    data.close()


def test_folders_of_some_partitions_make_a_topic_of_all(data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 4, {"retention.ms": "9"})
    for partition in range(4):
        data.append("a", partition, partition=partition)
    data.close()
    (data.path / "topics.json").unlink()
    shutil.rmtree(data.path / "a-0")
    shutil.rmtree(data.path / "a-2")
    directory = data.open()
    assert directory.topics()["a"].partitions == 4
    missing = [e["partition"] for e in data.events.named("partition_folder_missing")]
    assert missing == [0, 2]
    assert [data.times("a", partition) for partition in range(4)] == [[], [1], [], [3]]
    data.close()


def test_a_folder_beyond_the_known_partitions_joins_its_topic(data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 1, {"retention.ms": "9"})
    data.append("a", 5)
    data.close()
    shutil.copytree(data.path / "a-0", data.path / "a-1")
    entry = data.open().topics()["a"]
    assert (entry.partitions, entry.overrides, entry.gaps) == (2, {"retention.ms": "9"}, True)
    assert data.times("a", 1) == [5]
    data.close()


def test_a_partition_number_out_of_all_bounds_makes_no_folders(data: DataDirectory) -> None:
    folder = data.path / "a-999999999"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").touch()
    directory = data.open()
    assert dict(directory.topics()) == {}
    assert "max.partitions" in data.events.named("stray_file")[0]["reason"]
    data.close()


def test_a_missing_folder_is_made_anew_and_told(data: DataDirectory, tmp_path: Path) -> None:
    data.open()
    data.directory.create_topic("a", 2, {})
    data.append("a", *range(30))
    data.append("a", 1, partition=1)
    data.close()
    shutil.rmtree(data.path / "a-0")
    data.open()
    [told] = data.events.named("partition_folder_missing")
    assert (told["topic"], told["partition"]) == ("a", 0)
    data.append("a", 7)
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert killed.times("a") == [7]
    assert killed.times("a", 1) == [1]
    killed.close()
    data.close()


def test_strangers_are_told_and_left_alone(data: DataDirectory) -> None:
    data.path.mkdir()
    (data.path / "notes.txt").write_text("x")
    (data.path / "a-0").write_text("a file with a partition's name")
    (data.path / "lost+found").mkdir()
    (data.path / "b-00").mkdir()
    (data.path / "c-5f2c-delete").mkdir()
    (data.path / "photos.deleted").mkdir()
    (data.path / "positions.77.broken").write_text("x")
    (data.path / "topics.json.tmp").write_text("half")
    directory = data.open()
    assert dict(directory.topics()) == {}
    told = sorted(Path(e["path"]).name for e in data.events.named("stray_file"))
    strangers = ["a-0", "b-00", "c-5f2c-delete", "lost+found", "notes.txt", "photos.deleted"]
    assert told == strangers
    assert set(strangers) <= set(data.names())
    assert "positions.77.broken" in data.names()
    assert "topics.json.tmp" not in data.names()
    data.close()


@pytest.mark.parametrize("first", [True, False], ids=["first-topic", "later-topic"])
def test_what_an_unfinished_creation_left_is_removed_once(data: DataDirectory, first: bool) -> None:
    """It comes before anything else that a directory gets, or beside topics."""
    if not first:
        data.open()
        data.directory.create_topic("other", 2, {})
        data.append("other", 1)
        data.close()
    for number in range(3):
        (data.path / f"a-{number}").mkdir(parents=True)
    (data.path / "other-2").mkdir()
    found = {one.path.name: one for one in verify(SystemFiles(), data.path)}
    assert {"a-0", "a-1", "a-2", "other-2"} <= found.keys()
    for name in ("a-0", "other-2"):
        assert "the next start removes it" in found[name].rule
        assert not found[name].error
    directory = data.open()
    assert list(directory.topics()) == ([] if first else ["other"])
    [told] = data.events.named("unfinished_creation_removed")
    assert told == {"folders": ["a-0", "a-1", "a-2", "other-2"], "count": 4}
    assert data.events.named("stray_file") == []
    assert not set(found) & {"a-0", "other-2"} & set(data.names())
    directory.create_topic("a", 3, {})
    data.append("a", 4)
    data.restart()
    assert data.events.seen == []
    assert data.times("a") == [4]
    data.close()


def test_an_empty_folder_that_cannot_be_removed_is_told(data: DataDirectory) -> None:
    (data.path / "a-0").mkdir(parents=True)
    data.files = files = FaultyFiles(SystemFiles())
    files.fail("remove_directory", errno.EBUSY)
    directory = data.open()
    assert dict(directory.topics()) == {}
    [told] = data.events.named("stray_file")
    assert "cannot be removed" in str(told["reason"])
    data.close()


@pytest.mark.parametrize("lost", ["missing", "damaged"])
def test_a_topic_without_messages_survives_a_lost_topics_file(
    data: DataDirectory, lost: str
) -> None:
    """Its folder is empty, and no creation was cut off."""
    data.open()
    data.directory.create_topic("a", 1, {})
    data.directory.create_topic("idle", 2, {})
    data.append("a", 1)
    data.close()
    path = data.path / "topics.json"
    path.unlink() if lost == "missing" else path.write_bytes(b"{")
    shutil.rmtree(data.path / "metadata-log")
    rules = {one.path.name: one.rule for one in verify(SystemFiles(), data.path)}
    assert "the next start adopts it" in rules["idle-1"]
    topics = data.open().topics()
    assert topics["idle"].partitions == 2
    assert data.times("a") == [1]
    data.close()


def test_a_broken_topics_file_costs_no_message(data: DataDirectory) -> None:
    data.settings["retention.ms"] = "1"
    data.open()
    data.directory.create_topic("a", 1, {"retention.ms": "-1"})
    data.append("a", 1, 2, 3)
    data.close()
    (data.path / "topics.json").write_bytes(b"\0" * 50)
    shutil.rmtree(data.path / "metadata-log")
    directory = data.open()
    [told] = data.events.named("topics_file_broken")
    assert Path(told["kept"]).read_bytes() == b"\0" * 50
    settings = directory.topic_settings("a")
    assert (settings.retention_ms, settings.retention_bytes) == (-1, -1)
    log = directory.log("a", 0)
    log.prepare()
    log.expiry.maintain(data.clock.now_ms())
    assert data.times("a") == [1, 2, 3]
    data.close()


def test_a_later_version_s_directory_is_refused(data: DataDirectory) -> None:
    data.path.mkdir()
    (data.path / "topics.json").write_text('{"version": 2, "topics": {}}')
    for _ in range(2):
        with pytest.raises(StorageError, match="version 2"):
            data.open()
    assert (data.path / "topics.json").read_text() == '{"version": 2, "topics": {}}'
