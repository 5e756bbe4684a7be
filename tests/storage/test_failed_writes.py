"""Disks that are full, disks that break: what an append leaves behind (decision 22)."""

import errno

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, timed_set, untimed_set

NOW = 1_479_144_272_509
SUFFIXES = (".log", ".index", ".timeindex")
RETRIABLE = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]
NAMES = {errno.ENOSPC: "ENOSPC", errno.EDQUOT: "EDQUOT", errno.EFBIG: "EFBIG", errno.EIO: "EIO"}


def name(error: int) -> str:
    return NAMES[error]


def some_messages(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=0)
    folder.append(10, 30, 20)


@pytest.mark.parametrize("error", RETRIABLE, ids=name)
@pytest.mark.parametrize(
    ("kind", "file", "written"),
    [
        pytest.param("pwrite", ".log", 0, id="log-nothing-written"),
        pytest.param("pwrite", ".log", 1, id="log-short-write"),
        pytest.param("pwrite", ".log", 50, id="log-write-short-in-the-second-message"),
        pytest.param("pwrite", ".index", 0, id="offset-index"),
        pytest.param("pwrite", ".index", 5, id="offset-index-short-write"),
        pytest.param("pwrite", ".timeindex", 0, id="time-index"),
        pytest.param("pwrite", ".timeindex", 13, id="time-index-short-write"),
    ],
)
def test_a_full_disk_passes(
    folder: LogFolder, error: int, kind: str, file: str, written: int
) -> None:
    some_messages(folder)
    log = folder.log
    before = folder.content(SUFFIXES)
    state = (folder.time_entries(), folder.offset_entries(), log.segments[0].largest)
    folder.files.fail(kind, error, name=file, written=written)
    with pytest.raises(StorageError, match="could not be written") as refused:
        log.appender.append(timed_set(40, 50))
    assert (refused.value.code, refused.value.retriable) == (56, True)
    assert folder.content(SUFFIXES) == before
    assert state == (folder.time_entries(), folder.offset_entries(), log.segments[0].largest)
    assert (log.log_end_offset, log.high_watermark, log.failure) == (3, 3, None)
    assert folder.found(35) == [None]
    assert folder.append(40, 50) == [3, 4]
    live = folder.content(SUFFIXES)
    folder.kill_and_restart(checkpointed=False)
    assert folder.content(SUFFIXES) == live
    assert folder.times() == [(0, 10), (1, 30), (2, 20), (3, 40), (4, 50)]


@pytest.mark.parametrize("left", [0, 20, 39, 116])
def test_nothing_is_appended_behind_a_file_that_was_cut_short(folder: LogFolder, left: int) -> None:
    """The file system would fill the hole with zeros, and the messages behind it were lost."""
    some_messages(folder)
    log = folder.log
    with log.segments[0].log_path.open("r+b") as file:
        file.truncate(left)
    for _ in range(2):
        with pytest.raises(StorageError, match=f"cut short: it ends at byte {left}, and did at"):
            log.appender.append(timed_set(40, 50))
    assert log.segments[0].log_path.stat().st_size == left
    assert (log.log_end_offset, log.high_watermark, log.failure) == (3, 3, None)
    assert len(folder.events.named("segment_damaged")) == 1
    if left < 39:
        with pytest.raises(StorageError, match="damaged at byte 0"):
            reader.read(log, 0, 1 << 20)
    else:
        assert reader.read(log, 0, 1 << 20).size == left // 39 * 39


@pytest.mark.parametrize("error", RETRIABLE, ids=name)
def test_a_full_disk_at_the_very_first_append(folder: LogFolder, error: int) -> None:
    log = folder.open(segment_ms=100)
    folder.files.fail("pwrite", error, name=".log", written=30)
    with pytest.raises(StorageError):
        log.appender.append(timed_set(NOW))
    log.appender.append(untimed_set())
    assert log.segments[0].first_timestamp_ms == -1
    folder.clock.advance(101)
    assert log.appender.append(timed_set(NOW)).rolled == "time"


def test_a_wait_for_a_sync_is_not_left_over(folder: LogFolder) -> None:
    some_messages(folder)
    folder.files.fail("pwrite", errno.ENOSPC, name=".log")
    with pytest.raises(StorageError):
        folder.log.appender.append(timed_set(40), wait_for_sync=True)
    folder.append(40)
    assert folder.log.high_watermark == 4


def test_the_last_stamp_does_not_move_with_a_failed_append(folder: LogFolder) -> None:
    log = folder.open(message_timestamp_type="LogAppendTime")
    folder.append(1)
    folder.clock.step(1000)
    folder.files.fail("pwrite", errno.ENOSPC, name=".log")
    with pytest.raises(StorageError):
        log.appender.append(timed_set(1))
    folder.clock.step(-1000)
    assert log.appender.append(timed_set(1)).append_time_ms == NOW


@pytest.mark.parametrize(
    ("kind", "file", "written"),
    [
        pytest.param("pwrite", ".log", 0, id="log"),
        pytest.param("pwrite", ".log", 50, id="log-short-write"),
        pytest.param("pwrite", ".index", 0, id="offset-index"),
        pytest.param("pwrite", ".timeindex", 0, id="time-index"),
    ],
)
def test_an_io_error_is_final(folder: LogFolder, kind: str, file: str, written: int) -> None:
    some_messages(folder)
    log = folder.log
    before = folder.content(SUFFIXES)
    folder.files.fail(kind, errno.EIO, name=file, written=written)
    told: list[bool] = []
    log.on_advance = lambda log: told.append(log.failure is not None)
    with pytest.raises(StorageError):
        log.appender.append(timed_set(40, 50))
    assert told == [True]
    assert folder.content(SUFFIXES) == before
    assert len(folder.events.named("log_failed")) == 1
    for _ in range(2):
        with pytest.raises(StorageError):
            folder.append(40)
    assert folder.content(SUFFIXES) == before
    assert folder.times() == [(0, 10), (1, 30), (2, 20)], "reads go on"
    folder.kill_and_restart()
    assert folder.append(40) == [3]
    assert folder.found(35) == [(40, 3)]


@pytest.mark.parametrize(
    "cut_back",
    [
        pytest.param(("truncate", ".log"), id="log"),
        pytest.param(("truncate", ".index"), id="offset-index"),
        pytest.param(("truncate", ".timeindex"), id="time-index"),
    ],
)
@pytest.mark.parametrize("written", [0, 20, 39, 60])
def test_a_write_that_cannot_be_taken_back_is_final(
    folder: LogFolder, cut_back: tuple[str, str], written: int
) -> None:
    some_messages(folder)
    log = folder.log
    folder.files.fail("pwrite", errno.ENOSPC, name=".log", written=written)
    folder.files.fail(cut_back[0], errno.EIO, name=cut_back[1])
    with pytest.raises(StorageError, match="restarted"):
        log.appender.append(timed_set(40, 50))
    assert log.failure is not None
    assert (log.log_end_offset, log.high_watermark) == (3, 3)
    assert folder.times() == [(0, 10), (1, 30), (2, 20)]
    assert folder.found(30, 35) == [(30, 1), None]
    with pytest.raises(StorageError):
        folder.append(60)
    folder.kill_and_restart()
    # A message that reached the disk whole may come back: its sender got no answer to count on.
    whole = 3 + (written >= 39 and cut_back == ("truncate", ".log"))
    assert [offset for offset, _ in folder.times()] == list(range(whole))
    assert folder.append(60) == [whole]
    assert folder.found(55) == [(60, whole)]


def test_failed_logs_are_not_synced_nor_closed_cleanly(folder: LogFolder) -> None:
    some_messages(folder)
    folder.files.fail("pwrite", errno.EIO, name=".log")
    with pytest.raises(StorageError):
        folder.append(40)
    folder.files.operations.clear()
    with pytest.raises(StorageError):
        folder.log.close()
    assert folder.files.did("sync") == 0
    assert folder.files.open_count == 0


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=name)
def test_an_append_that_rolls_fails_at_its_nth_operation(
    folder: LogFolder, number: int, error: int
) -> None:
    """Neither leaves anything half done: the log goes on, or a restart puts it right."""
    folder.open(segment_bytes=3 * 39, index_interval_bytes=0)
    folder.append(10, 30, 20)
    folder.files.fail("", error, passing=number)
    try:
        folder.append(5)
    except StorageError:
        assert folder.log.log_end_offset == 3
        assert folder.times() == [(0, 10), (1, 30), (2, 20)]
        assert (folder.log.failure is None) is (error == errno.ENOSPC)
    else:
        assert folder.log.log_end_offset == 4
    folder.files.heal()
    if folder.log.failure is not None:
        folder.kill_and_restart()
    while folder.log.log_end_offset < 7:
        folder.append(100 + folder.log.log_end_offset)
    expected = folder.times()
    assert [offset for offset, _ in expected] == list(range(7))
    assert folder.bases() == [0, 3, 6]
    assert folder.found(25, 104) == [(30, 1), (104, 4)]
    folder.kill_and_restart()
    assert folder.times() == expected
    folder.restart()
    assert folder.times() == expected
    assert folder.found(25, 104) == [(30, 1), (104, 4)]
    assert folder.bases() == [0, 3, 6]


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("again", ["clean", "unclean"])
def test_a_failed_roll_leaves_no_segment_behind(folder: LogFolder, number: int, again: str) -> None:
    """What was appended after it must not be hidden by an empty segment at an older offset."""
    folder.open(segment_ms=100, index_interval_bytes=0)
    folder.append(1000, 1010)
    folder.files.fail("", errno.ENOSPC, passing=number)
    try:
        folder.append(5000)
    except StorageError:
        folder.files.heal()
        # A message that needs no roll comes first when there is room again.
        assert folder.append(1020, 1030) == [2, 3]
        assert folder.bases()[0] == 0
    folder.files.heal()
    expected = folder.times()
    if again == "clean":
        folder.restart()
    else:
        folder.kill_and_restart()
    assert folder.times() == expected
    assert folder.append(1040) == [len(expected)]
    assert folder.found(1015) == [(expected[2][1], 2)]
