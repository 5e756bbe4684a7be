"""Where the high watermark of a log is after a start, in a cluster member."""

from pathlib import Path

import pytest

from horolog.storage.check.verify import verify
from horolog.storage.directory.checkpoints import HIGH_WATERMARKS
from horolog.storage.files import SystemFiles
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.directories import DataDirectory


@pytest.fixture
def data(place: Path) -> DataDirectory:
    data = DataDirectory(place / "data")
    data.member = True
    return data


def content(data: DataDirectory) -> str:
    return (data.path / HIGH_WATERMARKS).read_text()


def test_a_log_opens_with_its_watermark_at_the_checkpoint(data: DataDirectory) -> None:
    data.opened_with_topic("t", 2, {})
    log = data.directory.log("t", 0)
    data.append("t", 1, 2, 3)
    assert (log.log_end_offset, log.high_watermark) == (3, 0)
    log.hold_high_watermark(2)
    data.restart()
    assert content(data) == "0\n1\nt 0 2\n"
    log = data.directory.log("t", 0)
    assert (log.log_end_offset, log.high_watermark) == (3, 2)
    # What comes is not seen before somebody says that it is committed.
    data.append("t", 4)
    assert log.high_watermark == 2
    log.hold_high_watermark(4)
    assert data.times("t") == [1, 2, 3, 4]
    data.directory.write_checkpoints()
    # The other log was not asked for.
    assert content(data) == "0\n1\nt 0 4\n"
    data.close()
    assert list(verify(SystemFiles(), data.path)) == []


def test_after_a_kill_too(data: DataDirectory, place: Path) -> None:
    data.opened_with_topic("t", 1, {})
    data.append("t", 1, 2, 3)
    data.directory.log("t", 0).hold_high_watermark(1)
    data.directory.write_checkpoints()
    data.directory.log("t", 0).hold_high_watermark(3)
    killed = data.copy(place / "killed")
    killed.open()
    log = killed.directory.log("t", 0)
    assert (log.log_end_offset, log.high_watermark) == (3, 1)
    killed.close()
    data.close()


@pytest.mark.parametrize("lines", ["t 0 9", "t 0 1", "u 0 3", "t 0 x", ""])
def test_a_checkpoint_that_cannot_be_is_the_log_start(data: DataDirectory, lines: str) -> None:
    data.opened_with_topic("t", 1, {"segment.bytes": "80"})
    data.append("t", 1, 2)
    data.append("t", 3, 4)
    log = data.directory.log("t", 0)
    log.flusher.flush()
    ReplicaLog(log).begin_at(2)
    data.directory.secure_log_starts([log])
    log.expiry.drop_expired()
    data.close()
    (data.path / HIGH_WATERMARKS).write_text(f"0\n1\n{lines}\n" if lines else "")
    data.open()
    log = data.directory.log("t", 0)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 2, 4)
    data.close()


def test_alone_nothing_is_kept_and_all_is_seen(data: DataDirectory) -> None:
    data.member = False
    data.open().create_topic("t", 1, {})
    data.append("t", 1, 2)
    data.restart()
    log = data.directory.log("t", 0)
    assert (log.high_watermark, log.watermark.held, log.expires) == (2, False, True)
    assert HIGH_WATERMARKS not in data.names()
    # Of a broker that was a cluster member, and is alone now.
    (data.path / HIGH_WATERMARKS).write_text("0\n1\nt 0 1\n")
    data.restart()
    assert data.directory.log("t", 0).high_watermark == 2
    assert content(data) == "0\n1\nt 0 1\n"
    data.close()


def test_a_topic_of_the_same_name_does_not_inherit_it(data: DataDirectory) -> None:
    data.opened_with_topic("t", 1, {})
    data.append("t", 1, 2, 3)
    data.directory.log("t", 0).hold_high_watermark(3)
    data.directory.write_checkpoints()
    data.drop_topic("t")
    data.make_topic("t", 1, {})
    assert content(data) == "0\n0\n"
    data.append("t", 1, 2, 3)
    assert data.directory.log("t", 0).high_watermark == 0
    data.restart()
    assert data.directory.log("t", 0).high_watermark == 0
    data.close()


def test_every_log_is_opened_as_a_follower_s(data: DataDirectory) -> None:
    data.opened_with_topic("t", 1, {"retention.ms": "1"})
    data.append("t", 1, 2)
    log = data.directory.log("t", 0)
    log.hold_high_watermark(2)
    log.expiry.maintain(data.clock.now_ms())
    assert log.log_start_offset == 0
    ReplicaLog(log).begin_to_lead(1)
    log.expiry.maintain(data.clock.now_ms())
    assert log.log_start_offset == 2
    data.close()


def test_a_watermark_that_cannot_be_read_is_told_by_verify(data: DataDirectory) -> None:
    data.opened_with_topic("t", 1, {})
    data.close()
    (data.path / HIGH_WATERMARKS).write_text("0\n2\nt 0 1\n")
    (found,) = verify(SystemFiles(), data.path)
    assert (found.path.name, found.error) == (HIGH_WATERMARKS, False)
