"""A stop with many logs that are not synced: they are synced together, each tells how it went."""

from errno import EIO
from pathlib import Path

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.directory.log_table import CLOSING_LOGS
from horolog.storage.files import SystemFiles
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles

COUNT = CLOSING_LOGS + 10


def filled(path: Path) -> tuple[DataDirectory, FaultyFiles]:
    data, files = DataDirectory(path), FaultyFiles(SystemFiles())
    data.files = files
    data.open().create_topic("t", COUNT, {})
    for partition in range(COUNT):
        data.append("t", *range(1, partition + 2), partition=partition)
    return data, files


def ends(data: DataDirectory) -> list[int]:
    return [data.directory.log("t", partition).log_end_offset for partition in range(COUNT)]


def test_all_are_safe_when_it_is_over(tmp_path: Path) -> None:
    data, files = filled(tmp_path / "data")
    before = files.did("sync", ".log")
    logs = [data.directory.log("t", partition) for partition in range(COUNT)]
    data.close()
    assert files.did("sync", ".log") - before == COUNT
    assert files.open_count == 0
    assert all(log.recovery_point == log.flusher.safe_point == log.log_end_offset for log in logs)
    data.open()
    assert ends(data) == list(range(1, COUNT + 1))
    assert not data.events.named("log_recovered")
    data.close()


def test_one_that_cannot_be_synced_is_told_and_recovered_and_stops_no_other(
    tmp_path: Path,
) -> None:
    data, files = filled(tmp_path / "data")
    files.fail("sync", EIO, passing=20, name=".log")
    with pytest.raises(StorageError, match=r"the stop was not clean: .*a sync failed"):
        data.close()
    assert files.open_count == 0
    assert len(data.events.named("log_close_failed")) == 1
    files.heal()
    data.open()
    assert ends(data) == list(range(1, COUNT + 1))
    assert len(data.events.named("log_recovered")) == 1
    data.close()
