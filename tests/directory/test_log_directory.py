"""A data directory from start to stop: marker, checkpoints, lazily opened logs, the lock."""

import errno
import os
from pathlib import Path

import pytest

from horolog.protocol.errors import (
    StorageError,
)
from horolog.storage.files import SystemFiles
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import timed_set

MARKER = ".kafka_cleanshutdown"


def test_a_topic_from_creation_to_a_restart(data: DataDirectory) -> None:
    directory = data.open()
    assert dict(directory.topics()) == {}
    entry = directory.create_topic("a.b-c", 2, {"log.retention.hours": "2"})
    assert entry.overrides == {"retention.ms": "7200000"}
    assert data.topics_file() == {
        "a.b-c": {
            "id": entry.topic_id,
            "partitions": 2,
            "overrides": {"retention.ms": "7200000"},
        }
    }
    assert {"a.b-c-0", "a.b-c-1"} <= set(data.names())
    data.append("a.b-c", 5, 3, 9, partition=1)

    directory = data.restart()
    assert dict(directory.topics()) == {"a.b-c": entry}
    assert list(directory.partitions()) == [("a.b-c", 0), ("a.b-c", 1)]
    assert directory.topic_settings("a.b-c").retention_ms == 7_200_000
    assert data.times("a.b-c", 1) == [5, 3, 9]
    assert data.times("a.b-c", 0) == []
    data.close()


def test_the_marker_is_there_only_while_nobody_is(data: DataDirectory) -> None:
    """decision 24."""
    files = FaultyFiles(SystemFiles())
    data.files = files
    data.open()
    data.directory.create_topic("a", 1, {})
    data.append("a", 1)
    assert MARKER not in data.names()
    data.close()
    assert MARKER in data.names()
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
    """S-38."""
    data.open()
    data.directory.create_topic("a", 3, {})
    data.append("a", 1, 2, partition=1)
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
    data.append("a", 4, 2, 3)
    killed = data.copy(tmp_path / "killed")
    killed.open()
    recovered = [(e["topic"], e["partition"]) for e in killed.events.named("log_recovered")]
    assert recovered == [("a", 0), ("a", 1)]
    assert all(e["ms"] >= 0 for e in killed.events.named("log_recovered"))
    assert killed.times("a") == [4, 2, 3]
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
        data.append("a", time_ms)
    data.close()
    (data.path / "recovery-point-offset-checkpoint").write_bytes(content)
    directory = data.open()
    assert len(data.events.named("checkpoint_ignored")) == (content != b"")
    assert len(data.events.named("log_recovered")) == 1
    segments = directory.log("a", 0).segment_count
    assert segments > 3
    assert len(data.events.named("segment_recovered")) == segments
    assert data.times("a") == list(range(20))
    data.close()


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_an_offset_past_the_end_is_not_believed(
    name: str, data: DataDirectory, tmp_path: Path
) -> None:
    data.open()
    data.directory.create_topic("a", 1, {"segment.bytes": "200"})
    for time_ms in range(20):
        data.append("a", time_ms)
    segments = data.directory.log("a", 0).segment_count
    killed = data.copy(tmp_path / "killed")
    (killed.path / name).write_text("0\n1\na 0 21\n")
    killed.open()
    assert len(killed.events.named("checkpoint_ignored")) == 1
    assert len(killed.events.named("segment_recovered")) >= segments
    assert killed.times("a") == list(range(20))
    killed.close()
    assert (killed.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 20\n"
    assert (killed.path / "log-start-offset-checkpoint").read_text() == "0\n1\na 0 0\n"
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
    data.append("a", 1, 2, 3)
    directory.write_checkpoints()
    path = data.path / "recovery-point-offset-checkpoint"
    assert path.read_text() == "0\n2\na 0 0\na 1 0\n"
    directory.log("a", 0).flusher.flush()
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
    data.append("a", 1, 2, 3)
    directory.log("a", 0).log_start_offset = 2
    directory.write_checkpoints()
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert killed.directory.log("a", 0).log_start_offset == 2
    assert killed.times("a") == [3]
    killed.close()
    data.restart()
    assert data.directory.log("a", 0).log_start_offset == 2
    data.close()


@pytest.mark.parametrize("name", ["a.index", "b.log", "c.timeindex", "d-0.deleted"])
def test_topics_named_like_files_tc143(name: str, data: DataDirectory, tmp_path: Path) -> None:
    data.open()
    data.directory.create_topic(name, 1, {"index.interval.bytes": "0"})
    for time_ms in (3, 1, 7):
        data.append(name, time_ms)
    data.restart()
    index = data.path / f"{name}-0" / ("0" * 20 + ".index")
    before = index.read_bytes()
    assert len(before) == 16
    assert data.times(name) == [3, 1, 7]
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert killed.times(name) == [3, 1, 7]
    assert (killed.path / f"{name}-0" / index.name).read_bytes() == before
    killed.close()
    data.close()


def test_a_stop_that_cannot_write_leaves_no_marker(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    data.open()
    data.directory.create_topic("a", 1, {})
    data.append("a", 1)
    files.fail("pwrite", errno.ENOSPC, name="checkpoint.tmp", times=2)
    with pytest.raises(StorageError, match="No space left"):
        data.close()
    assert MARKER not in data.names()
    data.close()
    data.open()
    assert data.times("a") == [1]
    data.close()


def test_two_brokers_on_one_directory(data: DataDirectory) -> None:
    """S-1."""
    data.open()
    data.directory.create_topic("a", 1, {})
    other = DataDirectory(data.path)
    with pytest.raises(StorageError, match=f"in use by process {os.getpid()}"):
        other.open()
    data.append("a", 1)
    data.close()
    other.open()
    assert other.times("a") == [1]
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
    with pytest.raises(StorageError, match=r"cannot be used: .*; start with another data.dir"):
        DataDirectory(tmp_path / "data").open()


def test_a_log_that_begins_earlier_does_so_after_a_kill(tmp_path: Path) -> None:
    """A follower whose log began later than its new leader's copies what lies in front."""
    data = DataDirectory(tmp_path / "first")
    data.open().create_topic("a", 1, {})
    now_ms = data.clock.now_ms()
    data.append("a", *range(now_ms, now_ms + 5))
    log = data.directory.log("a", 0)
    log.expiry.trim(3)
    data.directory.write_checkpoints()
    ReplicaLog(log).begin_anew(0)
    log.appender.append(timed_set(*range(now_ms, now_ms + 4)))
    log.flusher.flush()
    left = data.copy(tmp_path / "second")
    data.close()
    log = left.open().log("a", 0)
    log.prepare()
    assert (log.log_start_offset, left.times("a")) == (0, [*range(now_ms, now_ms + 4)])
    left.close()
