"""Syncs: what they cover, in which order, what they let consumers see (decisions 20, 23, 29)."""

import errno

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, delete_due, timed_set
from horolog.tests.followers.appending import append_copy

NOW = 1_479_144_272_509


def append_waiting(log: Log, *timestamps_ms: int) -> int:
    return log.appender.append(timed_set(*timestamps_ms), wait_for_sync=True).first_offset


def test_nothing_to_sync(folder: LogFolder) -> None:
    log = folder.open()
    log.flusher.flush()
    assert log.flusher.begin_flush() is None
    folder.append(1)
    log.flusher.flush()
    assert log.flusher.begin_flush() is None
    assert log.recovery_point == 1


def test_what_is_not_synced_is_counted(folder: LogFolder) -> None:
    log = folder.open()
    began = folder.clock.monotonic()
    assert (log.unflushed_messages, log.unflushed_since) == (0, None)
    folder.append(1, 2)
    folder.clock.advance(500)
    folder.append(3)
    assert (log.unflushed_messages, log.unflushed_since) == (3, began)
    work = log.flusher.begin_flush()
    assert work is not None
    folder.clock.advance(500)
    folder.append(4)
    assert (log.unflushed_messages, log.unflushed_since) == (4, began + 1)
    work.run()
    log.flusher.end_flush(work)
    assert (log.recovery_point, log.unflushed_messages) == (3, 1)
    assert log.unflushed_since == began + 1
    log.flusher.flush()
    assert log.recovery_point == 4
    assert folder.log.unflushed_since is None


def test_order_s39(folder: LogFolder) -> None:
    log = folder.open(index_interval_bytes=0)
    folder.append(1, 2)
    log.appender.roll()
    folder.append(3)
    folder.files.operations.clear()
    log.flusher.flush()
    done = [
        (kind, name)
        for kind, name in folder.files.operations
        if kind in ("sync", "sync_directory", "rename")
    ]
    logs = [("sync", f"{base:020d}.log") for base in (0, 2)]
    indexes = [("sync", f"{0:020d}.{kind}") for kind in ("index", "timeindex")]
    assert done[:3] == [*logs, ("sync_directory", "t-0")]
    assert set(done[3:-3]) >= set(indexes)
    assert done[-3:] == [
        ("sync", "index-checksums.tmp"),
        ("rename", "index-checksums.tmp"),
        ("sync_directory", "t-0"),
    ]


def test_the_name_of_a_new_segment_is_synced_before_its_checksums_are_trusted(
    folder: LogFolder,
) -> None:
    log = folder.open()
    folder.append(1)
    log.flusher.flush()
    log.appender.roll()
    folder.append(2)
    folder.files.operations.clear()
    log.flusher.flush()
    names = [name for kind, name in folder.files.operations if kind in ("sync_directory", "rename")]
    assert names == ["t-0", "index-checksums.tmp", "t-0"]


def test_a_sync_covers_all_earlier_segments_decision_20(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=39)
    folder.append(1, 2, 3)
    folder.files.operations.clear()
    log.flusher.flush()
    assert [folder.files.did("sync", f"{base}.log") for base in (0, 1, 2)] == [1, 1, 1]
    folder.append(4)
    folder.files.operations.clear()
    log.flusher.flush()
    assert [folder.files.did("sync", f"{base}.log") for base in (0, 1, 2, 3)] == [0, 0, 0, 1]


def test_a_sync_of_closed_segments_leaves_the_active_one_out_r13(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=39)
    folder.append(1, 2, 3)
    appended_at = log.unflushed_since
    folder.clock.advance(500)
    folder.files.operations.clear()
    work = log.flusher.begin_flush(closed_only=True)
    assert work is not None
    work.run()
    log.flusher.end_flush(work)
    assert [folder.files.did("sync", f"{base}.log") for base in (0, 1, 2)] == [1, 1, 0]
    assert (log.recovery_point, log.unflushed_messages) == (2, 1)
    assert log.unflushed_since == appended_at, "flush.ms still counts for the message that is left"
    assert log.flusher.begin_flush(closed_only=True) is None
    log.flusher.flush()
    assert (log.recovery_point, log.unflushed_since) == (3, None)


def test_a_sync_of_closed_segments_is_whole_when_the_active_one_is_empty(
    folder: LogFolder,
) -> None:
    log = folder.open()
    folder.append(1)
    log.appender.roll()
    work = log.flusher.begin_flush(closed_only=True)
    assert work is not None
    work.run()
    log.flusher.end_flush(work)
    assert (log.recovery_point, log.unflushed_since) == (1, None)


def test_handles_of_closed_segments_are_given_up_once_synced(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=39)
    folder.append(*range(6))
    held = folder.files.open_count
    log.flusher.flush()
    assert [segment._file is not None for segment in log.segments] == [False] * 5 + [True]
    assert folder.files.open_count == held, "they are there for readers"
    folder.files.operations.clear()
    assert len(folder.times()) == 6
    assert folder.files.did("open") == 0
    log.segment_list.drop_below(5, log.settings, {})
    assert folder.files.open_count == held - 5


def test_a_sync_gives_up_the_handles_of_what_it_made_safe(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=39)
    folder.append(*range(4))
    work = log.flusher.begin_flush()
    assert work is not None
    folder.append(*range(4, 9))
    work.run()
    log.flusher.end_flush(work)
    held_open = [segment.base_offset for segment in log.segment_list.segments if segment._file]
    assert held_open == [4, 5, 6, 7, 8]
    log.flusher.flush()
    held_open = [segment.base_offset for segment in log.segment_list.segments if segment._file]
    assert held_open == [8]


@pytest.mark.parametrize("waiting", [True, False])
def test_the_high_watermark_waits_for_the_sync_decision_29(
    folder: LogFolder, waiting: bool
) -> None:
    log = folder.open()
    log.appender.append(timed_set(1, 2), wait_for_sync=waiting)
    assert log.high_watermark == (0 if waiting else 2)
    log.flusher.flush()
    assert log.high_watermark == 2


def test_sets_around_a_waiting_one(folder: LogFolder) -> None:
    log = folder.open()
    advanced: list[int] = []
    log.on_advance = lambda log: advanced.append(log.high_watermark)
    folder.append(1)
    append_waiting(log, 2, 3)
    folder.append(4)
    assert (log.high_watermark, log.log_end_offset) == (1, 4)
    assert folder.times() == [(0, 1)]
    assert reader.read(log, 2, 1000).size == 0
    assert folder.found(2) == [None]
    log.flusher.flush()
    assert log.high_watermark == 4
    assert folder.found(2) == [(2, 1)]
    assert advanced == [1, 4]


def test_sets_appended_during_a_sync_wait_for_the_next(folder: LogFolder) -> None:
    log = folder.open()
    append_waiting(log, 1)
    first = log.flusher.begin_flush()
    assert first is not None
    append_waiting(log, 2)
    folder.append(3)
    first.run()
    log.flusher.end_flush(first)
    assert (log.high_watermark, log.recovery_point) == (1, 1)
    log.flusher.flush()
    assert (log.high_watermark, log.recovery_point) == (3, 3)


def test_a_held_watermark_stays_where_it_is_held(folder: LogFolder) -> None:
    log = folder.open()
    folder.append(1, 2, 3)
    log.hold_high_watermark(1)
    assert log.high_watermark == 1
    append_waiting(log, 4)
    log.flusher.flush()
    assert log.high_watermark == 1
    advanced: list[int] = []
    log.on_advance = lambda log: advanced.append(log.high_watermark)
    log.hold_high_watermark(2)
    log.hold_high_watermark(None)
    assert advanced == [2, 4]


def test_truncation_takes_waiting_sets_away(folder: LogFolder) -> None:
    log = folder.open()
    append_waiting(log, 1)
    append_waiting(log, 2)
    log.truncate(1)
    assert log.high_watermark == 0
    log.flusher.flush()
    assert log.high_watermark == 1
    folder.append(9)
    assert (log.high_watermark, folder.times()) == (2, [(0, 1), (1, 9)])


def test_a_restart_shows_everything_that_is_there(folder: LogFolder) -> None:
    log = folder.open()
    append_waiting(log, 1)
    log = folder.kill_and_restart()
    assert (log.high_watermark, folder.times()) == (1, [(0, 1)])


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param("sync", ".log", id="log"),
        pytest.param("sync", "index", id="index"),
        pytest.param("sync_directory", "", id="directory"),
        pytest.param("sync", ".tmp", id="checksums"),
        pytest.param("rename", ".tmp", id="checksums-in-place"),
    ],
)
def test_a_failed_sync_is_final_decision_22(folder: LogFolder, kind: str, name: str) -> None:
    log = folder.open()
    folder.append(1)
    log.appender.roll()
    append_waiting(log, 2)
    folder.files.fail(kind, errno.EIO, name=name)
    told: list[StorageError | None] = []
    log.on_advance = lambda log: told.append(log.failure)
    with pytest.raises(StorageError, match="restarted"):
        log.flusher.flush()
    assert [failure is not None for failure in told] == [True], "whoever waits is told"
    assert (log.recovery_point, log.high_watermark) == (0, 1)
    before = folder.content()
    with pytest.raises(StorageError, match="restarted") as refused:
        folder.append(3)
    assert refused.value.code == 56
    with pytest.raises(StorageError, match="restarted"):
        append_copy(log, timed_set(3, base_offset=2))
    assert folder.content() == before
    assert folder.times() == [(0, 1)], "reads go on"
    # It is never tried again: what the first attempt lost cannot be seen by a second one.
    folder.files.operations.clear()
    assert log.flusher.begin_flush() is None
    with pytest.raises(StorageError):
        log.flusher.flush()
    with pytest.raises(StorageError):
        log.close()
    assert folder.files.did("sync") == folder.files.did("sync_directory") == 0
    log = folder.kill_and_restart()
    assert folder.times() == [(0, 1), (1, 2)]
    assert folder.append(3) == [2]


def test_a_sync_that_cannot_begin_is_tried_again(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=39)
    folder.append(1, 2, 3)
    folder.files.fail("duplicate", errno.EMFILE, passing=2, times=-1)
    held = sum(segment.release() for segment in log.segments)
    assert held == 3
    assert log.flusher.begin_flush() is None
    assert folder.files.open_count == held, "no duplicates, and none of the files used last"
    folder.files.heal()
    assert log.unflushed_since == folder.clock.monotonic()
    assert len(folder.events.named("sync_not_started")) == 1
    log.flusher.flush()
    assert log.recovery_point == 3
    assert log.segment_count == 3
    checksum = (folder.path / "index-checksums").read_bytes()
    assert len(checksum.splitlines()) == 3


@pytest.mark.parametrize("remove", [False, True], ids=["renamed", "removed"])
def test_segments_dropped_during_a_sync_do_not_fail_it(folder: LogFolder, remove: bool) -> None:
    folder.set(file_delete_delay_ms=0)
    log = folder.open(segment_bytes=39, retention_bytes=39, retention_ms=-1)
    folder.append(1, 2, 3)
    work = log.flusher.begin_flush()
    assert work is not None
    log.expiry.maintain(NOW)
    assert folder.bases() == [2]
    if remove:
        assert delete_due(folder.deletions) == 8
    work.run()
    log.flusher.end_flush(work)
    assert (log.failure, log.recovery_point) == (None, 3)
    assert folder.append(4) == [3]


def test_a_roll_during_a_sync(folder: LogFolder) -> None:
    log = folder.open()
    folder.append(1)
    work = log.flusher.begin_flush()
    assert work is not None
    log.appender.roll()
    folder.append(2)
    work.run()
    log.flusher.end_flush(work)
    assert log.recovery_point == 1
    log.flusher.flush()
    assert log.recovery_point == 2
    assert (folder.path / "index-checksums").read_bytes().splitlines()[1].startswith(b"0 ")


def test_a_close_syncs_everything_s3(folder: LogFolder) -> None:
    log = folder.open(index_interval_bytes=0)
    folder.append(1, 2)
    log.appender.roll()
    folder.append(3, 4)
    folder.files.operations.clear()
    log.close()
    assert [folder.files.did("sync", f"{base}.log") for base in (0, 2)] == [1, 1]
    assert folder.files.did("sync", "0.timeindex") == folder.files.did("sync", "2.timeindex") == 1
    assert (log.recovery_point, log.high_watermark) == (4, 4)
    lines = (folder.path / "index-checksums").read_bytes().splitlines()
    assert [line.split()[0] for line in lines[1:]] == [b"0", b"2"]
    assert folder.files.open_count == 0
