"""Producers stay known when the segments with their batches are dropped, whatever comes then."""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from horolog.protocol.errors import DuplicateSequenceNumber
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.storage.log.log import Log
from horolog.storage.producers.producer_snapshots import encode_snapshot
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.directories import DataDirectory
from horolog.testing.logs import LogFolder

NOW = 1_479_144_272_509


def batch(sequence: int, producer_id: int = 7) -> bytearray:
    encoder = RecordEncoder()
    encoder.add(b"v" * 50, None, NOW, ())
    return finish_batch(encoder, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def is_known(log: Log, sequence: int, producer_id: int = 7) -> bool:
    """Whether a batch that was stored is known for a retry; nothing is appended either way."""
    end = log.log_end_offset
    try:
        repeated = log.appender.append(batch(sequence, producer_id)).repeated
    except DuplicateSequenceNumber:
        repeated = True
    assert not repeated or log.log_end_offset == end
    return repeated


def snapshots(path: Path) -> list[int]:
    return sorted(int(one.stem) for one in path.glob("*.producers"))


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    return DataDirectory(tmp_path / "data")


def killed(data: DataDirectory) -> DataDirectory:
    """What a kill leaves now."""
    return data.copy(data.path.with_name(data.path.name + "-killed"))


def trim(data: DataDirectory, log: Log) -> None:
    """Drop all messages, in the steps of the request for it, when they are synced already."""
    log.flusher.flush()
    log.expiry.roll_before(log.log_end_offset)
    log.expiry.trim(log.log_end_offset)
    data.directory.secure_log_starts([log])


def retain(data: DataDirectory, log: Log) -> None:
    """Drop all messages, in the steps of a retention pass, before they are synced."""
    log.set_settings(replace(log.settings, retention_ms=1))
    log.expiry.expire(NOW + 86_400_000)
    data.directory.secure_log_starts([log])


@pytest.mark.parametrize("drop", [trim, retain])
@pytest.mark.parametrize("dropped", [False, True])
def test_a_batch_that_was_dropped_is_known_after_a_kill(
    data: DataDirectory, drop: Callable[[DataDirectory, Log], None], dropped: bool
) -> None:
    """The roll's snapshot is on stable storage before the log begins behind the batches."""
    data.open().create_topic("a", 1, {})
    log = data.directory.log("a", 0)
    log.appender.append(batch(0, producer_id=8))
    for sequence in range(3):
        log.appender.append(batch(sequence))
    drop(data, log)
    if dropped:
        log.expiry.drop_expired()
        assert [segment.base_offset for segment in log.segments] == [4]
    left = killed(data)
    data.close()
    # A second kill, because the first start drops what the first kill has left.
    left.open().log("a", 0)
    again = killed(left)
    left.close()
    log = again.open().log("a", 0)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    assert is_known(log, 2)
    assert is_known(log, 0, producer_id=8)
    again.close()


def test_a_start_that_drops_segments_keeps_what_is_known(folder: LogFolder) -> None:
    """A folder without snapshots: only the batches tell, and a kill may follow."""
    folder.open(segment_bytes=150, retention_ms=-1)
    folder.log.appender.append(batch(0, producer_id=8))
    for sequence in range(5):
        folder.log.appender.append(batch(sequence))
    folder.let_go()
    assert snapshots(folder.path) == []
    data = DataDirectory(folder.path.parent / "data")
    data.open().close()
    folder.path.rename(data.path / "t-0")
    (data.path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    (data.path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    log = data.open().log("t", 0)
    assert log.segment_count == 1
    left = killed(data)
    data.close()
    log = left.open().log("t", 0)
    assert is_known(log, 4)
    assert is_known(log, 0, producer_id=8)
    left.close()


def test_retention_of_a_log_without_snapshots_takes_one(folder: LogFolder) -> None:
    """As of a folder that another broker left."""
    folder.open(segment_bytes=150, retention_ms=-1)
    for sequence in range(5):
        folder.log.appender.append(batch(sequence))
    log = folder.kill_and_restart(checkpointed=False)
    assert snapshots(folder.path) == []
    log.flusher.flush()
    folder.set(retention_bytes=100)
    plan = log.expiry.expire(NOW)
    log.producers.write_waiting()
    assert snapshots(folder.path) == [5]
    log.expiry.drop_expired(plan)
    log = folder.kill_and_restart()
    assert log.log_start_offset > 0
    assert is_known(log, 4)


def test_no_snapshot_is_taken_where_no_producer_is_known(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=150, retention_bytes=100, retention_ms=-1)
    for _ in range(5):
        encoder = RecordEncoder()
        encoder.add(b"v" * 50, None, NOW, ())
        log.appender.append(finish_batch(encoder))
    log = folder.kill_and_restart(checkpointed=False)
    log.expiry.expire(NOW)
    assert not log.producers.to_be_written


def test_a_copy_that_begins_anew_keeps_what_its_leader_knew(folder: LogFolder) -> None:
    """No message may follow that would have it synced."""
    log = folder.open(follows=True, high_watermark=0)
    log.appender.append(batch(0))
    known = encode_snapshot(log.producers.states, 9)
    ReplicaLog(log).begin_anew(9, known)
    assert snapshots(folder.path) == [9]
    assert not log.producers.to_be_written
    assert is_known(folder.kill_and_restart(), 0)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_snapshot_that_found_no_room_is_written_by_the_next_sync(
    folder: LogFolder, error: int
) -> None:
    log = folder.open()
    log.appender.append(batch(0))
    log.appender.roll()
    folder.files.fail("pwrite", error, name=".producers.tmp")
    log.flusher.flush()
    assert (snapshots(folder.path), log.failure) == ([], None)
    assert log.producers.to_be_written
    log.flusher.flush()
    assert snapshots(folder.path) == [1]
    assert not log.producers.to_be_written


def test_one_that_was_written_ahead_is_not_written_again(folder: LogFolder) -> None:
    """A sync under way had it handed out, too."""
    log = folder.open()
    log.appender.append(batch(0))
    log.appender.roll()
    work = log.flusher.begin_flush()
    assert work is not None
    log.producers.write_waiting()
    assert snapshots(folder.path) == [1]
    before = (folder.path / f"{1:020d}.producers").stat().st_mtime_ns
    work.run()
    log.flusher.end_flush(work)
    assert (folder.path / f"{1:020d}.producers").stat().st_mtime_ns == before


def test_a_snapshot_that_is_gone_already_is_no_error(folder: LogFolder) -> None:
    """A sync that writes a newer one removes it, in another thread."""
    log = folder.open(segment_bytes=150, retention_bytes=100, retention_ms=-1)
    for sequence in range(8):
        log.appender.append(batch(sequence))
        log.flusher.flush()
    (folder.path / f"{1:020d}.producers").write_bytes(b"older")
    folder.files.fail("unlink", errno.ENOENT, name=".producers")
    log.expiry.maintain(NOW)
    assert not folder.files.heal()
    assert is_known(log, 7)


@pytest.mark.parametrize(
    ("kind", "name"), [("rename", f"{1:020d}.log"), ("unlink", ".producers"), ("names", "")]
)
def test_epochs_begin_with_the_log_whatever_fails(folder: LogFolder, kind: str, name: str) -> None:
    """What is left of a pass that failed has the epochs of the segments that are left."""
    log = folder.open(segment_bytes=150, retention_ms=-1, follows=True)
    for epoch in range(5):
        ReplicaLog(log).begin_to_lead(epoch)
        log.appender.append(batch(epoch))
        log.flusher.flush()
    (folder.path / f"{1:020d}.producers").write_bytes(b"older")
    folder.set(retention_bytes=100)
    folder.files.fail(kind, errno.EIO, name=name)
    with pytest.raises(OSError, match="Input/output"):
        log.expiry.maintain(NOW)
    assert not folder.files.heal()
    first = log.segments[0].base_offset
    assert first > 0
    assert log.epochs.history.starts[0].start_offset == first
    log.expiry.maintain(NOW)
    assert log.epochs.history.starts[0].start_offset == log.segments[0].base_offset
