import errno
import json
import os
import shutil
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
    UnsupportedForMessageFormat,
)
from horolog.storage.files import SystemFiles
from horolog.storage.positions import Position
from horolog.testing.directories import DataDirectory, read_messages
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import timed_set

MARKER = ".kafka_cleanshutdown"
POSITION = Position("a", 0, 1, 2, 3, "")


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    return DataDirectory(tmp_path / "data")


def names(data: DataDirectory) -> list[str]:
    return sorted(os.listdir(data.path))


def topics_file(data: DataDirectory) -> dict[str, dict[str, object]]:
    topics: dict[str, dict[str, object]] = json.loads((data.path / "topics.json").read_text())[
        "topics"
    ]
    return topics


def append(data: DataDirectory, topic: str, *timestamps_ms: int, partition: int = 0) -> None:
    data.directory.log(topic, partition).append(timed_set(*timestamps_ms))


def times(data: DataDirectory, topic: str, partition: int = 0) -> list[int]:
    return [message[1] for message in read_messages(data.directory.log(topic, partition))]


def test_a_topic_from_creation_to_a_restart(data: DataDirectory) -> None:
    directory = data.open()
    assert dict(directory.topics()) == {}
    entry = directory.create_topic("a.b-c", 2, {"log.retention.hours": "2"})
    assert entry.overrides == {"retention.ms": "7200000"}
    assert topics_file(data) == {
        "a.b-c": {"partitions": 2, "overrides": {"retention.ms": "7200000"}}
    }
    assert {"a.b-c-0", "a.b-c-1"} <= set(names(data))
    append(data, "a.b-c", 5, 3, 9, partition=1)

    directory = data.restart()
    assert list(directory.topics()) == ["a.b-c"]
    assert list(directory.partitions()) == [("a.b-c", 0), ("a.b-c", 1)]
    assert directory.topic_settings("a.b-c").retention_ms == 7_200_000
    assert times(data, "a.b-c", 1) == [5, 3, 9]
    assert times(data, "a.b-c", 0) == []
    data.close()


def test_the_marker_is_there_only_while_nobody_is(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    data.open()
    data.directory.create_topic("a", 1, {})
    append(data, "a", 1)
    assert MARKER not in names(data)
    data.close()
    assert MARKER in names(data)
    renamed = [name for kind, name in files.operations if kind == "rename"]
    assert renamed[-1] == MARKER + ".tmp"
    files.operations.clear()
    data.open()
    changing = [done for done in files.operations if done[0] in ("unlink", "rename", "pwrite")]
    assert changing[:2] == [("pwrite", ".lock"), ("unlink", MARKER)]
    at = files.operations.index(("unlink", MARKER))
    assert files.operations[at + 1] == ("sync_directory", "data")
    data.close()


def test_after_a_clean_stop_logs_are_opened_when_they_are_used_tc134(data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 3, {})
    append(data, "a", 1, 2, partition=1)
    directory = data.restart()
    assert list(directory.open_logs()) == []
    assert directory.log("a", 1).log_end_offset == 2
    assert [log.partition for log in directory.open_logs()] == [1]
    assert directory.log("a", 1) is directory.log("a", 1)
    assert data.events.seen == []
    data.close()


def test_after_a_kill_every_log_is_recovered_tc135(data: DataDirectory, tmp_path: Path) -> None:
    data.open()
    data.directory.create_topic("a", 2, {})
    append(data, "a", 4, 2, 3)
    killed = data.copy(tmp_path / "killed")
    killed.open()
    recovered = [(e["topic"], e["partition"]) for e in killed.events.named("log_recovered")]
    assert recovered == [("a", 0), ("a", 1)]
    assert all(e["ms"] >= 0 for e in killed.events.named("log_recovered"))
    assert times(killed, "a") == [4, 2, 3]
    killed.close()
    data.close()


@pytest.mark.parametrize(
    "content", [b"", b"0\n1\na 0 -5\n", b"1\n", b"\0" * 40, b"garbage"], ids=repr
)
def test_a_malformed_checkpoint_means_full_recovery_tc144(
    content: bytes, data: DataDirectory
) -> None:
    data.open()
    data.directory.create_topic("a", 1, {"segment.bytes": "200"})
    for time_ms in range(20):
        append(data, "a", time_ms)
    data.close()
    (data.path / "recovery-point-offset-checkpoint").write_bytes(content)
    directory = data.open()
    assert len(data.events.named("checkpoint_ignored")) == (content != b"")
    assert len(data.events.named("log_recovered")) == 1
    segments = directory.log("a", 0).segment_count
    assert segments > 3
    assert len(data.events.named("segment_recovered")) == segments
    assert times(data, "a") == list(range(20))
    data.close()


@pytest.mark.parametrize("content", [b"\0" * 9, b"\xff", b'{"version":0}', b"a\n"], ids=repr)
def test_a_marker_that_cannot_be_believed_is_none(content: bytes, data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 1, {})
    data.close()
    (data.path / MARKER).write_bytes(content)
    data.open()
    assert len(data.events.named("log_recovered")) == 1
    data.close()


def test_checkpoints_are_written_when_they_change(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    directory.create_topic("a", 2, {})
    append(data, "a", 1, 2, 3)
    directory.write_checkpoints()
    path = data.path / "recovery-point-offset-checkpoint"
    assert path.read_text() == "0\n2\na 0 0\na 1 0\n"
    directory.log("a", 0).flush()
    directory.write_checkpoints()
    assert path.read_text() == "0\n2\na 0 3\na 1 0\n"
    written = files.did("rename")
    directory.write_checkpoints()
    assert files.did("rename") == written
    data.restart()
    assert path.read_text() == "0\n2\na 0 3\na 1 0\n"
    data.close()
    assert path.read_text() == "0\n2\na 0 3\na 1 0\n"


def test_a_failed_checkpoint_is_told_and_written_again(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    directory.create_topic("a", 1, {})
    files.fail("rename", errno.ENOSPC)
    with pytest.raises(StorageError, match="checkpoints"):
        directory.write_checkpoints()
    directory.write_checkpoints()
    assert (data.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 0\n"
    data.close()


def test_the_log_start_offset_survives(data: DataDirectory, tmp_path: Path) -> None:
    directory = data.open()
    directory.create_topic("a", 1, {})
    append(data, "a", 1, 2, 3)
    directory.log("a", 0).log_start_offset = 2
    directory.write_checkpoints()
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert killed.directory.log("a", 0).log_start_offset == 2
    assert times(killed, "a") == [3]
    killed.close()
    data.restart()
    assert data.directory.log("a", 0).log_start_offset == 2
    data.close()


@pytest.mark.parametrize("name", ["a.index", "b.log", "c.timeindex", "d-0.deleted"])
def test_topics_named_like_files_tc143(name: str, data: DataDirectory, tmp_path: Path) -> None:
    data.open()
    data.directory.create_topic(name, 1, {"index.interval.bytes": "0"})
    for time_ms in (3, 1, 7):
        append(data, name, time_ms)
    data.restart()
    index = data.path / f"{name}-0" / ("0" * 20 + ".index")
    before = index.read_bytes()
    assert len(before) == 16
    assert times(data, name) == [3, 1, 7]
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert times(killed, name) == [3, 1, 7]
    assert (killed.path / f"{name}-0" / index.name).read_bytes() == before
    killed.close()
    data.close()


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
    assert not any(name.startswith("c-") for name in names(data))
    data.close()


def test_folder_names_stay_within_what_file_systems_take(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data", max_partitions=1_000_000)
    directory = data.open()
    with pytest.raises(InvalidPartitions, match="255 bytes"):
        directory.create_topic("x" * 249, 100_001, {})
    assert names(data) == [".lock"]
    directory.create_topic("x" * 249, 1, {})
    directory.delete_topic("x" * 249)
    data.close()


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"retention.ms": "x"}, "retention.ms"),
        ({"cleanup.policy": "compact"}, "compact"),
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
    assert "a-0" not in names(data)
    directory.create_topic("a", 1, {"retention.ms": "7"})
    with pytest.raises(InvalidConfig, match=text):
        directory.alter_topic("a", overrides)
    assert directory.topic_settings("a").retention_ms == 7
    assert topics_file(data)["a"]["overrides"] == {"retention.ms": "7"}
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
    append(data, "a", 1)
    directory.positions.commit("job", [POSITION])
    directory.write_checkpoints()
    directory.delete_topic("a")
    assert list(directory.topics()) == ["b"]
    with pytest.raises(UnknownTopicOrPartition):
        directory.log("a", 0)
    assert directory.positions.of("job") == []
    assert list(topics_file(data)) == ["b"]
    assert [name for name in names(data) if name.startswith("a-") and "deleted" in name] == [
        name for name in names(data) if name.startswith("a-")
    ]
    assert len([name for name in names(data) if name.startswith("a-")]) == 2
    now_ms = data.clock.now_ms()
    assert directory.deletions.run_due(now_ms + 999) == 0
    assert directory.deletions.run_due(now_ms + 1000) == 2
    assert not any(name.startswith("a-") for name in names(data))
    data.close()


def test_deleted_folders_that_are_left_go_at_start_tc131(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("a", 1, {})
    append(data, "a", 1)
    directory.delete_topic("a")
    data.close()
    assert any(name.endswith(".deleted") for name in names(data))
    data.open()
    assert not any(name.endswith(".deleted") for name in names(data))
    assert dict(data.directory.topics()) == {}
    data.close()


def test_a_new_topic_has_nothing_of_the_deleted_one(data: DataDirectory, tmp_path: Path) -> None:
    directory = data.open()
    directory.create_topic("a", 1, {"retention.ms": "5"})
    append(data, "a", *range(50))
    directory.log("a", 0).flush()
    directory.log("a", 0).log_start_offset = 20
    directory.write_checkpoints()
    directory.delete_topic("a")
    directory.create_topic("a", 1, {})
    append(data, "a", 7)
    assert times(data, "a") == [7]
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert times(killed, "a") == [7]
    assert killed.directory.log("a", 0).log_start_offset == 0
    assert killed.directory.topics()["a"].overrides == {}
    killed.close()
    data.close()


def test_a_deletion_that_was_begun_is_finished_at_start(data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 2, {})
    data.directory.positions.commit("job", [POSITION])
    append(data, "a", 1)
    data.close()
    document = json.loads((data.path / "topics.json").read_text())
    document["topics"]["a"]["deleting"] = True
    (data.path / "topics.json").write_text(json.dumps(document))
    (data.path / "a-1").rename(data.path / "a-1.00000000000000ff.deleted")
    directory = data.open()
    assert dict(directory.topics()) == {}
    assert topics_file(data) == {}
    assert not any(name.startswith("a-") for name in names(data))
    assert directory.positions.of("job") == []
    assert [e["topic"] for e in data.events.named("topic_deletion_finished")] == ["a"]
    data.close()


def test_a_folder_with_files_is_not_taken_for_a_new_topic(data: DataDirectory) -> None:
    directory = data.open()
    (data.path / "a-1").mkdir()
    (data.path / "a-1" / "precious").write_text("x")
    with pytest.raises(TopicAlreadyExists, match="a restart adopts it"):
        directory.create_topic("a", 2, {})
    assert "a-0" not in names(data)
    data.close()


def test_folders_are_adopted_with_default_settings(golden: Path, data: DataDirectory) -> None:
    data.path.mkdir()
    source = golden / "kafka-0.10.2" / "v1-create-time"
    shutil.copytree(source / "clean", data.path / "old-clicks-0")
    directory = data.open()
    entry = directory.topics()["old-clicks"]
    assert (entry.partitions, entry.overrides, entry.gaps) == (1, {}, True)
    assert topics_file(data)["old-clicks"]["gaps"] is True
    assert [e["topic"] for e in data.events.named("folder_adopted")] == ["old-clicks"]
    expected = json.loads((source / "expected.json").read_text())["messages"]
    assert len(read_messages(directory.log("old-clicks", 0))) == len(expected)
    data.restart()
    assert data.events.seen == []
    assert data.directory.topics()["old-clicks"] == entry
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
    append(data, "a", 1, 2)
    data.close()
    shutil.copytree(data.path / "a-0", data.path / "b-0")
    log = data.path / "b-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    data.open()
    assert [e["topic"] for e in data.events.named("log_recovered")] == ["b"]
    assert times(data, "b") == [1]
    assert times(data, "a") == [1, 2]
    data.close()


def test_folders_of_some_partitions_make_a_topic_of_all(data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 4, {"retention.ms": "9"})
    for partition in range(4):
        append(data, "a", partition, partition=partition)
    data.close()
    (data.path / "topics.json").unlink()
    shutil.rmtree(data.path / "a-0")
    shutil.rmtree(data.path / "a-2")
    directory = data.open()
    assert directory.topics()["a"].partitions == 4
    missing = [e["partition"] for e in data.events.named("partition_folder_missing")]
    assert missing == [0, 2]
    assert [times(data, "a", partition) for partition in range(4)] == [[], [1], [], [3]]
    data.close()


def test_a_folder_beyond_the_known_partitions_joins_its_topic(data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 1, {"retention.ms": "9"})
    append(data, "a", 5)
    data.close()
    shutil.copytree(data.path / "a-0", data.path / "a-1")
    entry = data.open().topics()["a"]
    assert (entry.partitions, entry.overrides, entry.gaps) == (2, {"retention.ms": "9"}, True)
    assert times(data, "a", 1) == [5]
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
    append(data, "a", *range(30))
    append(data, "a", 1, partition=1)
    data.close()
    shutil.rmtree(data.path / "a-0")
    data.open()
    [told] = data.events.named("partition_folder_missing")
    assert (told["topic"], told["partition"]) == ("a", 0)
    append(data, "a", 7)
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert times(killed, "a") == [7]
    assert times(killed, "a", 1) == [1]
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
    (data.path / "d-0").mkdir()
    (data.path / "positions.77.broken").write_text("x")
    (data.path / "topics.json.tmp").write_text("half")
    directory = data.open()
    assert dict(directory.topics()) == {}
    told = sorted(Path(e["path"]).name for e in data.events.named("stray_file"))
    strangers = ["a-0", "b-00", "c-5f2c-delete", "d-0", "lost+found", "notes.txt", "photos.deleted"]
    assert told == strangers
    assert set(strangers) <= set(names(data))
    assert "positions.77.broken" in names(data)
    assert "topics.json.tmp" not in names(data)
    data.close()


def test_an_empty_folder_of_an_unfinished_creation_is_used(data: DataDirectory) -> None:
    (data.path / "a-0").mkdir(parents=True)
    directory = data.open()
    assert dict(directory.topics()) == {}
    directory.create_topic("a", 3, {})
    append(data, "a", 4)
    assert times(data, "a") == [4]
    data.close()


def test_a_broken_topics_file_costs_no_message(data: DataDirectory) -> None:
    data.settings["retention.ms"] = "1"
    data.open()
    data.directory.create_topic("a", 1, {"retention.ms": "-1"})
    append(data, "a", 1, 2, 3)
    data.close()
    (data.path / "topics.json").write_bytes(b"\0" * 50)
    directory = data.open()
    [told] = data.events.named("topics_file_broken")
    assert Path(told["kept"]).read_bytes() == b"\0" * 50
    settings = directory.topic_settings("a")
    assert (settings.retention_ms, settings.retention_bytes) == (-1, -1)
    log = directory.log("a", 0)
    log.prepare()
    log.maintain(data.clock.now_ms())
    assert times(data, "a") == [1, 2, 3]
    data.close()


def test_a_later_version_s_directory_is_refused(data: DataDirectory) -> None:
    data.path.mkdir()
    (data.path / "topics.json").write_text('{"version": 2, "topics": {}}')
    for _ in range(2):
        with pytest.raises(StorageError, match="version 2"):
            data.open()
    assert (data.path / "topics.json").read_text() == '{"version": 2, "topics": {}}'


def test_settings_in_the_file_that_are_not_allowed(data: DataDirectory, tmp_path: Path) -> None:
    data.open()
    data.directory.create_topic("a", 1, {"retention.ms": "5"})
    data.directory.create_topic("b", 1, {})
    append(data, "a", 1, 2)
    killed = data.copy(tmp_path / "killed")
    path = killed.path / "topics.json"
    path.write_text(path.read_text().replace('"5"', '"five"'))
    directory = killed.open()
    for _ in range(2):
        with pytest.raises(InvalidConfig, match=r"retention\.ms.*alter the topic"):
            directory.log("a", 0)
    with pytest.raises(InvalidConfig):
        directory.topic_settings("a")
    append(killed, "b", 1)
    directory.alter_topic("a", {"retention.ms": "-1"})
    assert times(killed, "a") == [1, 2]
    killed.restart()
    assert times(killed, "a") == [1, 2]
    killed.close()
    data.close()


def test_one_broken_log_stops_no_other(data: DataDirectory, tmp_path: Path) -> None:
    data.open()
    data.directory.create_topic("a", 3, {})
    for partition in range(3):
        append(data, "a", 5, 6, partition=partition)
    killed = data.copy(tmp_path / "killed")
    log_path = killed.path / "a-1" / f"{0:020d}.log"
    content = log_path.read_bytes()
    log_path.unlink()
    log_path.mkdir()
    directory = killed.open()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"a-1.*cannot be opened"):
            directory.log("a", 1)
    [told] = killed.events.named("log_open_failed")
    assert (told["topic"], told["partition"]) == ("a", 1)
    assert times(killed, "a", 0) == times(killed, "a", 2) == [5, 6]
    killed.close()
    assert (killed.path / MARKER).read_text() == "a 1\n"

    log_path.rmdir()
    log_path.write_bytes(content)
    killed.open()
    assert [e["partition"] for e in killed.events.named("log_recovered")] == [1]
    assert times(killed, "a", 1) == [5, 6]
    killed.close()
    assert (killed.path / MARKER).read_text() == ""
    data.close()


def test_a_format_that_cannot_be_read_is_answered_by_name(
    data: DataDirectory, tmp_path: Path
) -> None:
    data.open()
    data.directory.create_topic("a", 1, {})
    append(data, "a", 5)
    killed = data.copy(tmp_path / "killed")
    log_path = killed.path / "a-0" / f"{0:020d}.log"
    batch = (1).to_bytes(8, "big") + (61).to_bytes(4, "big") + b"\0\0\0\0\x02" + bytes(56)
    log_path.write_bytes(log_path.read_bytes() + batch)
    directory = killed.open()
    for _ in range(2):
        with pytest.raises(UnsupportedForMessageFormat, match="magic 2"):
            directory.log("a", 0)
    assert log_path.read_bytes().endswith(batch)
    killed.close()
    assert log_path.read_bytes().endswith(batch)
    data.close()


def test_a_kept_failure_keeps_no_frames_of_those_who_asked(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    data.open()
    data.directory.create_topic("a", 1, {})
    data.restart()
    files.fail("names", errno.EIO, name="a-0")
    raised = []
    for _ in range(3):
        with pytest.raises(StorageError) as caught:
            data.directory.log("a", 0)
        raised.append(caught.value)
    assert len({id(error) for error in raised}) == 3
    data.close()


def test_running_out_of_file_handles_passes(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    data.open()
    data.directory.create_topic("a", 1, {})
    append(data, "a", 1)
    data.restart()
    files.fail("open", errno.EMFILE, name=".log")
    with pytest.raises(StorageError, match="Too many open files"):
        data.directory.log("a", 0)
    assert times(data, "a") == [1]
    data.close()
    assert (data.path / MARKER).read_text() == ""


def test_a_failed_read_at_opening_is_kept(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    data.open()
    data.directory.create_topic("a", 1, {})
    append(data, "a", 1)
    data.restart()
    files.fail("pread", errno.EIO, name=".log")
    for _ in range(2):
        with pytest.raises(StorageError, match=r"Input/output error.*restart"):
            data.directory.log("a", 0)
    data.close()
    assert (data.path / MARKER).read_text() == "a 0\n"
    data.open()
    assert times(data, "a") == [1]
    data.close()


def test_a_log_that_cannot_be_closed_is_recovered(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    data.open()
    data.directory.create_topic("a", 1, {})
    data.directory.create_topic("b", 1, {})
    append(data, "a", 1, 2)
    append(data, "b", 3)
    files.fail("sync", errno.EIO, name=".log")
    with pytest.raises(StorageError, match=r"not clean: a-0: "):
        data.close()
    assert (data.path / MARKER).read_text() == "a 0\n"
    assert files.open_count == 0
    data.open()
    assert [e["topic"] for e in data.events.named("log_recovered")] == ["a"]
    assert (times(data, "a"), times(data, "b")) == ([1, 2], [3])
    data.close()


def test_a_stop_that_cannot_write_leaves_no_marker(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    data.open()
    data.directory.create_topic("a", 1, {})
    append(data, "a", 1)
    files.fail("pwrite", errno.ENOSPC, name="checkpoint.tmp")
    with pytest.raises(StorageError, match="No space left"):
        data.close()
    assert MARKER not in names(data)
    data.close()
    data.open()
    assert times(data, "a") == [1]
    data.close()


def test_two_brokers_on_one_directory(data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 1, {})
    other = DataDirectory(data.path)
    with pytest.raises(StorageError, match=f"in use by process {os.getpid()}"):
        other.open()
    append(data, "a", 1)
    data.close()
    other.open()
    assert times(other, "a") == [1]
    other.close()


@pytest.mark.parametrize("kind", ["make_directory", "lock", "unlink", "names", "sync_directory"])
def test_an_unusable_directory_stops_the_start(kind: str, data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 1, {})
    data.close()
    files = FaultyFiles(SystemFiles())
    files.fail(kind, errno.EROFS)
    data.files = files
    with pytest.raises(StorageError, match=r"cannot be used.*--data-dir"):
        data.open()
    assert files.open_count == 0
    data.open()
    assert list(data.directory.topics()) == ["a"]
    data.close()


def test_a_file_in_the_directory_s_place(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(StorageError, match="cannot be used"):
        DataDirectory(tmp_path / "data").open()


def test_gaps_are_remembered_once_bytes_come_from_elsewhere(
    data: DataDirectory, tmp_path: Path
) -> None:
    data.open()
    data.directory.create_topic("a", 1, {})
    assert "gaps" not in topics_file(data)["a"]
    data.directory.log("a", 0).append_stored(timed_set(1, base_offset=0))
    data.directory.log("a", 0).append_stored(timed_set(2, 3, base_offset=10))
    assert topics_file(data)["a"]["gaps"] is True
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert times(killed, "a") == [1, 2, 3]
    killed.close()
    data.close()


@pytest.mark.parametrize("kind", ["make_directory", "open", "pwrite", "sync", "rename"])
def test_a_creation_that_fails_leaves_nothing(kind: str, data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    files.fail(kind, errno.ENOSPC)
    with pytest.raises(StorageError, match=r"cannot be made: .*No space left"):
        directory.create_topic("a", 2, {})
    assert dict(directory.topics()) == {}
    assert not any(name.startswith("a-") for name in names(data))
    directory.create_topic("a", 1, {})
    append(data, "a", 1)
    data.restart()
    assert times(data, "a") == [1]
    data.close()


def test_a_refused_change_does_not_come_true_at_the_next_start(
    data: DataDirectory, tmp_path: Path
) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    directory.create_topic("a", 1, {"retention.ms": "5"})
    files.fail("sync_directory", errno.EIO)
    with pytest.raises(StorageError):
        directory.delete_topic("a")
    files.fail("sync_directory", errno.EIO)
    with pytest.raises(StorageError, match="cannot be altered"):
        directory.alter_topic("a", {"retention.ms": "6"})
    append(data, "a", 1)
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert times(killed, "a") == [1]
    assert killed.directory.topic_settings("a").retention_ms == 5
    killed.close()
    data.close()


@pytest.mark.parametrize("kind", ["rename", "sync_directory"])
@pytest.mark.parametrize("passing", range(6))
def test_a_deletion_that_fails_can_be_called_again(
    kind: str, passing: int, data: DataDirectory
) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    directory = data.open()
    directory.create_topic("a", 2, {})
    directory.positions.commit("job", [POSITION])
    append(data, "a", 1)
    files.fail(kind, errno.EIO, passing=passing)
    try:
        directory.delete_topic("a")
    except HorologError:
        if "a" not in directory.topics():
            with pytest.raises(TopicAlreadyExists, match="being deleted"):
                directory.create_topic("a", 1, {})
        directory.delete_topic("a")
    files.heal()
    assert dict(directory.topics()) == {}
    directory.create_topic("a", 1, {})
    assert times(data, "a") == []
    assert directory.positions.of("job") == []
    data.close()
