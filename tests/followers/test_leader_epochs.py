"""The epochs that a log keeps: their file, what batches are stamped with, what cannot be read."""

import errno
import shutil
from pathlib import Path

import pytest

from horolog.protocol.errors import StorageError
from horolog.protocol.records.batch import build_batch, read_header
from horolog.protocol.records.kernel import walk
from horolog.protocol.records.messages.sets import NewRecord
from horolog.storage.check.repair_plan import plan_partition
from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.storage.log.log import Log
from horolog.storage.names import LEADER_EPOCHS, UNFINISHED_EPOCHS
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.logs import LogFolder, timed_set
from horolog.testing.recording import FileSync, FileWrite, RecordingFiles, Rename, SyncDirectory

from .copies import copied, copy_all, epoch_end

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-2.1"


def batch(*timestamps_ms: int) -> bytearray:
    return build_batch([NewRecord(b"v", timestamp_ms=ms) for ms in timestamps_ms])


def stamped(log: Log) -> list[int]:
    """The leader epoch in each batch."""
    data = b"".join(segment.log_path.read_bytes() for segment in log.segments)
    assert walk(data, 0, len(data)).end == len(data)
    epochs, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        epochs.append(header.leader_epoch)
        position += header.size_bytes
    return epochs


def content(folder: LogFolder) -> str:
    return (folder.path / LEADER_EPOCHS).read_text()


def test_without_replication_nothing_is_kept_or_stamped(leader: LogFolder) -> None:
    log = leader.open(retention_ms=-1)
    log.appender.append(batch(1, 2))
    log.appender.append_sets([batch(3), batch(4)])
    log.truncate(3)
    leader.restart()
    log.expiry.maintain(leader.clock.now_ms())
    assert stamped(leader.log) == [-1, -1]
    assert not leader.log.has_epochs
    assert leader.names("checkpoint") == []


def test_a_line_may_be_written_before_its_message_and_is_cut_with_the_log(
    leader: LogFolder,
) -> None:
    log = leader.open()
    log.appender.append(batch(1, 2))
    ahead = ReplicaLog(log).leading(3)
    assert ahead is not None
    ahead.run()
    log.epochs.note(ahead)
    assert content(leader) == "0\n1\n3 2\n"
    assert log.epochs.history.last_epoch == -1
    leader.restart()  # a line without a message is passed over
    log = leader.log
    assert (log.epochs.history.last_epoch, log.epochs.highest_seen) == (-1, 3)
    ahead = ReplicaLog(log).leading(4)
    assert ahead is not None
    ahead.run()
    log.epochs.note(ahead)
    assert ReplicaLog(log).leading(4) is None
    ReplicaLog(log).begin_to_lead(4)
    log.appender.append(batch(3))
    assert stamped(log) == [-1, 4]
    ReplicaLog(log).follow()
    log.truncate(2)
    assert content(leader) == "0\n0\n"


def test_an_older_line_does_not_take_the_place_of_a_newer_one(leader: LogFolder) -> None:
    log = leader.open()
    log.appender.append(batch(1))
    older, newer = ReplicaLog(log).leading(3), ReplicaLog(log).leading(4)
    assert older is not None
    assert newer is not None
    newer.run()
    older.run()
    assert content(leader) == "0\n1\n4 1\n"
    log.epochs.note(older)
    assert ReplicaLog(log).leading(3) is not None


def test_batches_are_stamped_with_the_epoch_of_their_leader(leader: LogFolder) -> None:
    log = leader.open(segment_bytes=400)
    log.appender.append(batch(1))
    ReplicaLog(log).begin_to_lead(3)
    log.appender.append(batch(2))
    log.appender.append_sets([batch(3), batch(4), batch(5, 6)])
    admitted = log.appender.begin_append(batch(7))()
    log.appender.end_append(admitted)
    ReplicaLog(log).begin_to_lead(8)
    log.appender.append(batch(8, 9))
    ReplicaLog(log).follow()
    assert stamped(log) == [-1, 3, 3, 3, 3, 3, 8]
    assert content(leader) == "0\n2\n3 1\n8 7\n"
    assert [log.epochs.history.epoch_at(offset) for offset in range(9)] == [-1, *[3] * 6, 8, 8]
    leader.restart()
    assert ReplicaLog(leader.log).last_epoch == 8


def test_converted_and_stamped_sets_too_and_older_formats_have_no_room(leader: LogFolder) -> None:
    log = leader.open(message_timestamp_type="LogAppendTime", compression_type="gzip")
    ReplicaLog(log).begin_to_lead(7)
    log.appender.append(batch(1, 2))
    assert stamped(log) == [7]
    leader.set(compression_type="producer")
    before = log.size_bytes
    log.appender.append(timed_set(5))
    assert log.size_bytes - before == 39
    assert log.epochs.history.epoch_at(2) == 7


@pytest.mark.parametrize("epoch", [-1, 0, 4, 5])
def test_an_epoch_that_is_not_new_is_refused(leader: LogFolder, epoch: int) -> None:
    log = leader.open()
    ReplicaLog(log).begin_to_lead(5)
    leader.restart()
    # No message came of it, and still it has been.
    assert leader.log.epochs.history.starts == ()
    with pytest.raises(ValueError, match="not new"):
        ReplicaLog(leader.log).begin_to_lead(epoch)
    ReplicaLog(leader.log).begin_to_lead(6)
    assert content(leader) == "0\n1\n6 0\n"


def test_the_two_steps_of_leading_may_be_in_two_threads(leader: LogFolder) -> None:
    log = leader.open()
    leader.append(1, 2)
    write = ReplicaLog(log).leading(4)
    assert write is not None
    assert leader.names("checkpoint") == []
    write.run()
    assert log.stamp_batches is None
    ReplicaLog(log).begin_to_lead(4, write)
    assert content(leader) == "0\n1\n4 2\n"
    assert log.stamp_batches is not None


def test_an_epoch_that_cannot_be_written_is_not_led(leader: LogFolder) -> None:
    log = leader.open()
    leader.append(1)
    leader.files.fail("sync", errno.EIO, name=UNFINISHED_EPOCHS)
    with pytest.raises(StorageError, match="epoch 4"):
        ReplicaLog(log).begin_to_lead(4)
    assert (log.stamp_batches, log.epochs.history.starts) == (None, ())
    leader.files.heal()
    ReplicaLog(log).begin_to_lead(4)
    assert content(leader) == "0\n1\n4 1\n"


def assert_synced_before_written(recording: RecordingFiles) -> None:
    """Each message's bytes come after the line of its epoch, its sync, and that of the folder."""
    named = synced = False
    epochs_file = -1
    for operation in recording.operations:
        match operation:
            case Rename(target_name=name, node=node) if name == LEADER_EPOCHS:
                epochs_file, named, synced = node, True, False
            case SyncDirectory():
                synced = named
            case FileWrite(node=node) if recording.paths[node].endswith(".log"):
                assert synced, "a message was written before its epoch was safe"
    file_synced = [one for one in recording.operations if isinstance(one, FileSync)]
    assert any(one.node == epochs_file for one in file_synced)


def test_the_line_is_safe_before_the_first_message_at_leader_and_follower(
    leader: LogFolder, follower: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings = []
    for folder in (leader, follower):
        recordings.append(RecordingFiles(SystemFiles(), folder.path))
        monkeypatch.setattr(folder, "files", recordings[-1])
    leader.open(follows=True)
    ReplicaLog(leader.log).begin_to_lead(1)
    leader.append(1, 2)
    ReplicaLog(leader.log).begin_to_lead(2)
    leader.append(3)
    follower.open(follows=True)
    copy_all(leader, follower, 50)
    for recording in recordings:
        assert_synced_before_written(recording)
        assert any(isinstance(one, FileWrite) for one in recording.operations)
    assert content(follower) == content(leader) == "0\n2\n1 0\n2 2\n"


def test_a_cut_takes_epochs_away_and_none_that_has_a_message(leader: LogFolder) -> None:
    log = leader.open(segment_bytes=100)
    for epoch in (2, 4, 9):
        ReplicaLog(log).begin_to_lead(epoch)
        leader.append(1, 2, 3)
    for offset, expected in [(7, "2 0\n4 3\n9 6"), (6, "2 0\n4 3"), (4, "2 0\n4 3"), (3, "2 0")]:
        log.truncate(offset)
        assert content(leader) == f"0\n{expected.count(chr(10)) + 1}\n{expected}\n"
    log.truncate_fully(100)
    assert content(leader) == "0\n0\n"
    assert ReplicaLog(log).last_epoch == -1


def test_epochs_of_dropped_segments_go(leader: LogFolder) -> None:
    log = leader.open(segment_bytes=100)
    for epoch in (2, 4, 9):
        ReplicaLog(log).begin_to_lead(epoch)
        leader.append(1, 2, 3)
    log.flusher.flush()
    log.expiry.trim(5)
    log.expiry.drop_expired()
    first_offset = log.segments[0].base_offset
    assert first_offset == 4
    assert log.epochs.history.starts == ((4, 3), (9, 6))
    assert epoch_end(log, 3) == (-1, log.log_start_offset) == (-1, 5)
    leader.restart()
    log = leader.log
    assert log.epochs.history.starts == ((4, 3), (9, 6))
    ReplicaLog(log).begin_to_lead(10)
    assert content(leader) == "0\n3\n4 3\n9 6\n10 9\n"


@pytest.fixture
def unreadable(leader: LogFolder) -> LogFolder:
    leader.open()
    ReplicaLog(leader.log).begin_to_lead(1)
    leader.append(1, 2)
    leader.log.close()
    (leader.path / LEADER_EPOCHS).write_bytes(b"0\n2\n1 0\n")
    leader.open(follows=True, recovery_point=2)
    return leader


def test_a_file_that_cannot_be_read_is_no_empty_history(unreadable: LogFolder) -> None:
    log = unreadable.log
    for ask in (
        lambda: ReplicaLog(log).last_epoch,
        lambda: epoch_end(log, 1),
        lambda: ReplicaLog(log).read(0, 100),
        lambda: ReplicaLog(log).begin_to_lead(9),
        lambda: log.epochs.history,
    ):
        with pytest.raises(StorageError, match="copied anew"):
            ask()
    assert "says 2 entries" in log.epochs.unreadable
    assert unreadable.events.named("leader_epochs_unreadable")
    # Whoever reads messages is served, and a cut does not heal it.
    assert [at for _, at in unreadable.times()] == [1, 2]
    log.truncate(1)
    unreadable.restart()
    with pytest.raises(StorageError, match="copied anew"):
        assert ReplicaLog(unreadable.log).last_epoch


def test_a_log_that_begins_anew_is_as_new(unreadable: LogFolder, follower: LogFolder) -> None:
    ReplicaLog(unreadable.log).begin_anew(0)
    assert content(unreadable) == "0\n0\n"
    follower.open()
    ReplicaLog(follower.log).begin_to_lead(3)
    follower.append(5, 6)
    copy_all(follower, unreadable)
    unreadable.restart()
    assert ReplicaLog(unreadable.log).last_epoch == 3
    assert content(unreadable) == "0\n1\n3 0\n"


def test_verify_tells_and_repair_leaves_it_alone(unreadable: LogFolder) -> None:
    unreadable.log.close()
    (found,) = verify(SystemFiles(), unreadable.path)
    assert found.path.name == LEADER_EPOCHS
    assert not found.error
    assert "says 2 entries" in found.rule
    assert "copies this partition anew" in found.advice
    plan = plan_partition(
        SystemFiles(), unreadable.path, ("t", 0), gaps=False, recovery_point=2, clean=True
    )
    assert plan.steps == []


def test_verify_knows_the_file(leader: LogFolder) -> None:
    leader.open(follows=True, segment_bytes=100)
    ReplicaLog(leader.log).begin_to_lead(1)
    leader.append(1, 2, 3)
    leader.log.close()
    assert list(verify(SystemFiles(), leader.path)) == []


def test_what_is_left_of_a_write_that_was_cut_off_goes(leader: LogFolder) -> None:
    leader.path.mkdir(exist_ok=True)
    (leader.path / UNFINISHED_EPOCHS).write_bytes(b"0\n")
    leader.open()
    assert leader.names(".tmp") == []
    assert not leader.log.has_epochs


def test_a_folder_of_kafka_goes_on_alone_and_can_be_led(
    leader: LogFolder, follower: LogFolder
) -> None:
    shutil.copytree(GOLDEN / "v2-gzip" / "clean", leader.path, dirs_exist_ok=True)
    before = content(leader)
    log = leader.open(clean=False, gaps=True)
    end_offset = log.log_end_offset
    log.appender.append(batch(1))
    leader.restart()
    assert content(leader) == before == "0\n1\n0 0\n"
    log = leader.log
    assert log.epochs.history.starts == ((0, 0),)
    with pytest.raises(ValueError, match="not new"):
        ReplicaLog(log).begin_to_lead(0)
    ReplicaLog(log).begin_to_lead(1)
    log.appender.append(batch(2))
    assert content(leader) == f"0\n2\n0 0\n1 {end_offset + 1}\n"
    follower.open(follows=True, index_interval_bytes=512)
    copy_all(leader, follower, 3000)
    assert content(follower) == content(leader)
    assert follower.log.gaps
    for ours, theirs in zip(follower.log.segments, log.segments, strict=True):
        assert ours.log_path.read_bytes() == theirs.log_path.read_bytes()


def test_facts_tell_the_epochs_of_a_stretch(leader: LogFolder) -> None:
    log = leader.open()
    leader.append(1)
    for epoch in (2, 4):
        ReplicaLog(log).begin_to_lead(epoch)
        leader.append(1, 2)
    assert copied(leader, 0, 10**6)[1].epochs == ((-1, 0), (2, 1), (4, 3))
    assert copied(leader, 2, 10**6)[1].epochs == ((2, 2), (4, 3))
    assert copied(leader, 2, 39)[1].epochs[:1] == ((2, 2),)
    assert copied(leader, 5, 39)[1].epochs == ((4, 5),)
