"""Logs that cannot be opened or closed stop no other."""

import errno
from pathlib import Path

import pytest

from horolog.protocol.errors import (
    InvalidConfig,
    StorageError,
    UnsupportedForMessageFormat,
)
from horolog.storage.files import SystemFiles
from horolog.storage.metadata.records import SettingsAltered
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles

MARKER = ".kafka_cleanshutdown"


def test_settings_that_are_not_allowed(data: DataDirectory, tmp_path: Path) -> None:
    data.open()
    data.directory.create_topic("a", 1, {"retention.ms": "5"})
    data.directory.create_topic("b", 1, {})
    data.append("a", 1, 2)
    # As a version with other rules may have recorded them.
    altered = SettingsAltered("a", data.directory.topics()["a"].topic_id, {"retention.ms": "five"})
    data.directory.metadata.append(altered)
    data.directory.metadata.log.flusher.flush()
    killed = data.copy(tmp_path / "killed")
    directory = killed.open()
    for _ in range(2):
        with pytest.raises(InvalidConfig, match=r"retention\.ms.*alter the topic"):
            directory.log("a", 0)
    with pytest.raises(InvalidConfig):
        directory.topic_settings("a")
    killed.append("b", 1)
    directory.alter_topic("a", {"retention.ms": "-1"})
    assert killed.times("a") == [1, 2]
    killed.restart()
    assert killed.times("a") == [1, 2]
    killed.close()
    data.close()


def test_one_broken_log_stops_no_other(data: DataDirectory, tmp_path: Path) -> None:
    data.open()
    data.directory.create_topic("a", 3, {})
    for partition in range(3):
        data.append("a", 5, 6, partition=partition)
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
    assert killed.times("a", 0) == killed.times("a", 2) == [5, 6]
    killed.close()
    assert (killed.path / MARKER).read_text() == "a 1\n"

    log_path.rmdir()
    log_path.write_bytes(content)
    killed.open()
    assert [e["partition"] for e in killed.events.named("log_recovered")] == [1]
    assert killed.times("a", 1) == [5, 6]
    killed.close()
    assert (killed.path / MARKER).read_text() == ""
    data.close()


def test_a_format_that_cannot_be_read_is_answered_by_name(
    data: DataDirectory, tmp_path: Path
) -> None:
    data.open()
    data.directory.create_topic("a", 1, {})
    data.append("a", 5)
    killed = data.copy(tmp_path / "killed")
    log_path = killed.path / "a-0" / f"{0:020d}.log"
    batch = (1).to_bytes(8, "big") + (61).to_bytes(4, "big") + b"\0\0\0\0\x03" + bytes(56)
    log_path.write_bytes(log_path.read_bytes() + batch)
    directory = killed.open()
    for _ in range(2):
        with pytest.raises(UnsupportedForMessageFormat, match="magic byte"):
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
    data.append("a", 1)
    data.restart()
    files.fail("open", errno.EMFILE, name=".log", times=2)
    with pytest.raises(StorageError, match="Too many open files"):
        data.directory.log("a", 0)
    assert data.times("a") == [1]
    data.close()
    assert (data.path / MARKER).read_text() == ""


def test_a_failed_read_at_opening_is_kept(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    data.open()
    data.directory.create_topic("a", 1, {})
    data.append("a", 1)
    data.restart()
    files.fail("pread", errno.EIO, name=".log")
    for _ in range(2):
        with pytest.raises(StorageError, match=r"Input/output error.*restart"):
            data.directory.log("a", 0)
    data.close()
    assert (data.path / MARKER).read_text() == "a 0\n"
    data.open()
    assert data.times("a") == [1]
    data.close()


def test_a_log_that_cannot_be_closed_is_recovered(data: DataDirectory) -> None:
    files = FaultyFiles(SystemFiles())
    data.files = files
    data.open()
    data.directory.create_topic("a", 1, {})
    data.directory.create_topic("b", 1, {})
    data.append("a", 1, 2)
    data.append("b", 3)
    files.fail("sync", errno.EIO, name=".log")
    with pytest.raises(StorageError, match=r"not clean: a-0: "):
        data.close()
    assert (data.path / MARKER).read_text() == "a 0\n"
    assert files.open_count == 0
    data.open()
    assert [e["topic"] for e in data.events.named("log_recovered")] == ["a"]
    assert (data.times("a"), data.times("b")) == ([1, 2], [3])
    data.close()
