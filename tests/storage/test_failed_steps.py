"""Retention, truncation, start and stop when one of their operations fails, whichever it is."""

import errno
from contextlib import suppress

import pytest

from horolog.protocol.errors import HorologError, StorageError
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, delete_due

NOW = 1_479_144_272_509
TIMES = [50, 10, 90, 30, 70, 20, 60, 80, 40, 100]
EXPECTED = list(enumerate(TIMES))


def fill(folder: LogFolder) -> None:
    """Segments of three messages: 0-2, 3-5, 6-8, and 9 alone."""
    folder.open(segment_bytes=3 * 39, index_interval_bytes=0, retention_ms=-1)
    folder.append(*TIMES)


def check_from(folder: LogFolder, start: int) -> None:
    """The log holds what it did from `start` on, and works, now and after restarts."""
    expected = EXPECTED[start:]
    assert folder.times() == expected
    assert folder.append(110) == [10]
    for again in (folder.kill_and_restart, folder.restart):
        again()
        assert folder.log.log_start_offset == start
        assert folder.times() == [*expected, (10, 110)]
        assert folder.found(0) == [(TIMES[start], start)]
        assert folder.found(105) == [(110, 10)]


@pytest.mark.parametrize("number", range(16))
def test_retention_that_fails_at_its_nth_operation(folder: LogFolder, number: int) -> None:
    fill(folder)
    folder.set(retention_bytes=39 * 4, file_delete_delay_ms=0)
    folder.log.flusher.flush()
    folder.files.fail("", errno.EIO, passing=number)
    try:
        folder.log.expiry.maintain(NOW)
    except OSError:
        start = folder.log.log_start_offset
        assert start >= folder.bases()[0], "what is not dropped can be read"
        assert folder.times() == EXPECTED[start:]
    folder.files.heal()
    folder.log.expiry.maintain(NOW)
    assert folder.bases() == [6, 9]
    delete_due(folder.deletions)
    assert folder.names(".deleted") == []
    assert len(folder.names(".log")) == len(folder.names(".timeindex")) == 2
    check_from(folder, 6)


@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("again", ["clean", "unclean"])
def test_a_restart_after_a_deletion_that_failed_half_way(
    folder: LogFolder, number: int, again: str
) -> None:
    fill(folder)
    folder.set(retention_bytes=39 * 4)
    folder.log.flusher.flush()
    folder.files.fail("", errno.EIO, passing=number)
    with suppress(OSError):
        folder.log.expiry.maintain(NOW)
    folder.files.heal()
    start = folder.log.log_start_offset
    if again == "clean":
        folder.restart()
    else:
        folder.kill_and_restart(checkpointed=False)
    assert folder.names(".deleted") == []
    assert folder.log.log_start_offset == (start if again == "clean" else folder.bases()[0])
    assert folder.log.log_start_offset <= start
    assert folder.times() == EXPECTED[folder.log.log_start_offset :]


@pytest.mark.parametrize("number", range(20))
def test_idle_rolls_that_fail_at_their_nth_operation(folder: LogFolder, number: int) -> None:
    fill(folder)
    folder.set(retention_ms=1000, file_delete_delay_ms=0)
    folder.files.fail("", errno.ENOSPC, passing=number)
    try:
        folder.log.expiry.maintain(NOW)
    except OSError:
        assert folder.log.log_end_offset == 10
    folder.files.heal()
    folder.log.expiry.maintain(NOW)
    delete_due(folder.deletions)
    assert folder.bases() == [10]
    assert len(folder.names(".log")) == 1
    assert folder.append(110) == [10]
    folder.kill_and_restart()
    assert folder.times() == [(10, 110)]


@pytest.mark.parametrize("number", range(26))
@pytest.mark.parametrize("offset", [4, 3, 0])
def test_truncation_that_fails_at_its_nth_operation(
    folder: LogFolder, number: int, offset: int
) -> None:
    fill(folder)
    folder.log.flusher.flush()
    folder.files.fail("", errno.EIO, passing=number)
    try:
        folder.log.truncate(offset)
    except StorageError:
        assert folder.log.failure is not None
        with pytest.raises(StorageError):
            folder.append(110)
        folder.files.heal()
        folder.kill_and_restart()
        left = folder.log.log_end_offset
        # What is left has no hole: all of it, or what was before a segment that went already.
        assert left in (10, 9, 6, 5, 4, 3, 2, 1, 0)
        assert left >= offset
        assert folder.times() == EXPECTED[:left]
        assert folder.names(".broken") == []
        folder.log.truncate(offset)
    folder.files.heal()
    assert folder.times() == EXPECTED[:offset]
    assert folder.append(110) == [offset]
    folder.kill_and_restart()
    assert folder.times() == [*EXPECTED[:offset], (offset, 110)]
    assert folder.found(105) == [(110, offset)]


@pytest.mark.parametrize("number", range(20))
def test_full_truncation_that_fails_at_its_nth_operation(folder: LogFolder, number: int) -> None:
    fill(folder)
    folder.files.fail("", errno.EIO, passing=number)
    try:
        folder.log.truncate_fully(50)
    except StorageError:
        assert folder.log.failure is not None
        folder.files.heal()
        folder.kill_and_restart()
        # The oldest went first, so that there is no hole.
        left = slice(folder.log.log_start_offset, folder.log.log_end_offset)
        assert folder.times() == EXPECTED[left]
        folder.log.truncate_fully(50)
    folder.files.heal()
    assert folder.append(110) == [50]
    folder.kill_and_restart()
    assert folder.times() == [(50, 110)]


@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_start_that_fails_at_its_nth_operation(
    folder: LogFolder, number: int, clean: bool
) -> None:
    fill(folder)
    if clean:
        folder.log.close()
    folder.let_go()
    folder.files.fail("", errno.EIO, passing=number)
    try:
        folder.open(clean=clean)
    except (OSError, HorologError):
        folder.files.heal()
        assert folder.files.open_count <= 1, "at most the file that the cache keeps"
        folder.open(clean=clean)
    folder.files.heal()
    assert folder.names(".broken") == []
    check_from(folder, 0)


@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_recovery_that_fails_at_its_nth_operation(
    folder: LogFolder, number: int, clean: bool
) -> None:
    """With a torn tail to cut off, and indexes to write anew."""
    fill(folder)
    path = folder.log.segments[-1].log_path
    folder.let_go()
    with path.open("ab") as file:
        file.write(b"torn")
    for name in folder.names("index"):
        (folder.path / name).write_bytes(b"nonsense")
    folder.files.fail("", errno.ENOSPC, passing=number)
    try:
        folder.open(clean=clean)
    except (OSError, HorologError):
        folder.files.heal()
        folder.open(clean=clean)
    folder.files.heal()
    folder.log.prepare()
    kept = folder.content([".broken"])
    assert list(kept.values()) == [b"torn"]
    check_from(folder, 0)


@pytest.mark.parametrize("number", range(24))
def test_preparing_that_fails_at_its_nth_operation(folder: LogFolder, number: int) -> None:
    fill(folder)
    folder.log.close()
    for name in [*folder.names("index"), "index-checksums"]:
        (folder.path / name).unlink()
    log = folder.open()
    folder.files.fail("", errno.EIO, passing=number)
    try:
        log.prepare()
    except OSError:
        assert not log.prepared
        assert folder.append(110) == [10], "appends need no preparation"
        folder.files.heal()
        log.prepare()
        log.truncate(10)
    folder.files.heal()
    assert log.prepared
    assert folder.found(*range(0, 101, 10)) == [
        next((at, offset) for offset, at in EXPECTED if at >= target)
        for target in range(0, 101, 10)
    ]
    check_from(folder, 0)


@pytest.mark.parametrize("number", range(24))
def test_a_stop_that_fails_at_its_nth_operation(folder: LogFolder, number: int) -> None:
    fill(folder)
    folder.files.fail("", errno.EIO, passing=number)
    try:
        folder.log.close()
    except (OSError, StorageError):
        stopped = False
    else:
        stopped = True
    folder.files.heal()
    assert folder.files.open_count == 0
    folder.open(clean=stopped, recovery_point=folder.log.recovery_point)
    check_from(folder, 0)


@pytest.mark.parametrize("number", range(20))
def test_a_sync_that_fails_at_its_nth_operation(folder: LogFolder, number: int) -> None:
    fill(folder)
    folder.files.fail("", errno.EIO, passing=number)
    try:
        folder.log.flusher.flush()
    except StorageError:
        begun = folder.files.did("sync", ".log") > 0
        assert (folder.log.recovery_point, folder.log.failure is not None) == (0, begun)
    folder.files.heal()
    folder.kill_and_restart()
    check_from(folder, 0)


@pytest.mark.parametrize("number", range(12))
def test_a_search_that_fails_at_its_nth_operation(folder: LogFolder, number: int) -> None:
    fill(folder)
    folder.restart()
    folder.log.prepare()
    folder.files.fail("", errno.EIO, passing=number)
    try:
        found = reader.find_time(folder.log, 65).run()
    except OSError:
        pass
    else:
        assert found is not None
        assert (found.timestamp_ms, found.offset) == (90, 2)
    folder.files.heal()
    assert folder.found(65, 95) == [(90, 2), (100, 9)]
