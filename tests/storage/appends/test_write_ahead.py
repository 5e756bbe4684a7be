"""Large sets that a thread writes before they are appended (`Appender.write_ahead`)."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Lock, Thread, current_thread, main_thread
from typing import Any

import pytest

from horolog.protocol.errors import StorageError
from horolog.protocol.records.batch import set_producer
from horolog.storage.files import SystemFile
from horolog.storage.log import appender
from horolog.storage.log.admitted import Admitted
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.storage.segment.write_ahead import WriteAhead
from horolog.testing.logs import LogFolder, timed_set

NOW = 1_479_144_272_509
SUFFIXES = (".log", ".index", ".timeindex")
BEFORE = [timed_set(NOW, value=b"first"), timed_set(NOW + 1, magic=2, value=b"second")]


@pytest.fixture(autouse=True)
def every_set_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "AHEAD_BYTES", 1)


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[LogFolder]:
    folder = LogFolder(tmp_path / "twin" / "t-0")
    yield folder
    folder.let_go()


def large(value: bytes = b"large") -> bytes:
    return bytes(timed_set(NOW + 5, NOW + 3, magic=2, value=value * 200))


def opened(folder: LogFolder, **settings: Any) -> None:
    folder.open(index_interval_bytes=0, **settings)
    for one in BEFORE:
        folder.log.appender.append(bytearray(one))


def begun(folder: LogFolder, data: bytes | None = None) -> tuple[Admitted, WriteAhead]:
    admitted = folder.log.appender.begin_append(bytearray(data or large()))()
    assert admitted is not None
    ahead = folder.log.appender.write_ahead(admitted)
    assert ahead is not None
    return admitted, ahead


def end_of_file(folder: LogFolder) -> int:
    return folder.log.segments[-1].log_path.stat().st_size


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 3000], ids=["fits", "rolls"])
def test_the_log_is_as_if_it_was_written_at_once(
    folder: LogFolder, twin: LogFolder, timestamp_type: str, segment_bytes: int
) -> None:
    for one in (folder, twin):
        opened(one, message_timestamp_type=timestamp_type, segment_bytes=segment_bytes)
    for _ in range(2):
        admitted, ahead = begun(folder)
        ahead.write()
        assert folder.log.log_end_offset == twin.log.log_end_offset
        found = folder.log.appender.end_append(admitted)
        folder.log.appender.end_write()
        expected = twin.log.appender.append(bytearray(large()))
        assert (list(found.first_offsets), found.append_time_ms, found.rolled) == (
            list(expected.first_offsets),
            expected.append_time_ms,
            expected.rolled,
        )
    assert folder.content(SUFFIXES) == twin.content(SUFFIXES)
    folder.restart()
    assert folder.times() == twin.times()


def test_a_thread_that_did_not_write_changes_nothing(folder: LogFolder, twin: LogFolder) -> None:
    for one in (folder, twin):
        opened(one)
    admitted, _ = begun(folder)
    folder.log.appender.end_append(admitted)
    twin.log.appender.append(bytearray(large()))
    assert folder.content(SUFFIXES) == twin.content(SUFFIXES)


def rolled(folder: LogFolder) -> None:
    folder.log.appender.roll()


def appended(folder: LogFolder) -> None:
    folder.log.appender.append(bytearray(timed_set(NOW + 2, value=b"other")))


def cut(folder: LogFolder) -> None:
    folder.log.truncate(1)


def emptied(folder: LogFolder) -> None:
    folder.log.truncate_fully(7)


def given_up(folder: LogFolder) -> None:
    folder.log.appender.end_write()


@pytest.mark.parametrize("other", [rolled, appended, cut, emptied, given_up])
@pytest.mark.parametrize("written", ["before", "after", "not"])
def test_what_changes_the_end_meanwhile_drops_the_bytes(
    folder: LogFolder, twin: LogFolder, other: Callable[[LogFolder], None], written: str
) -> None:
    for one in (folder, twin):
        opened(one)
    admitted, ahead = begun(folder)
    if written == "before":
        ahead.write()
    other(folder)
    other(twin)
    if written == "after":
        ahead.write()
    assert folder.content(SUFFIXES) == twin.content(SUFFIXES)
    if other in (appended, cut, emptied):
        with pytest.raises(StorageError, match="the log ends at offset"):
            folder.log.appender.end_append(admitted)
    else:
        folder.log.appender.end_append(admitted)
        twin.log.appender.append(bytearray(large()))
    folder.log.appender.end_write()
    assert folder.content(SUFFIXES) == twin.content(SUFFIXES)
    folder.restart()
    assert folder.times() == twin.times()
    assert folder.events.named("log_truncated") == twin.events.named("log_truncated")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("written", [0, 50])
def test_a_write_that_fails_is_the_result(folder: LogFolder, code: int, written: int) -> None:
    opened(folder)
    before = folder.content(SUFFIXES)
    admitted, ahead = begun(folder)
    folder.files.fail("pwrite", code, name=".log", written=written)
    ahead.write()
    with pytest.raises(StorageError, match="could not be written"):
        folder.log.appender.end_append(admitted)
    folder.log.appender.end_write()
    assert folder.content(SUFFIXES) == before
    assert (folder.log.failure is None) == (code == errno.ENOSPC)


def test_bytes_that_cannot_be_removed_end_appends(folder: LogFolder) -> None:
    opened(folder)
    _, ahead = begun(folder)
    ahead.write()
    folder.files.fail("truncate", errno.EIO, name=".log")
    with pytest.raises(StorageError, match="could not be taken back"):
        folder.log.appender.end_write()
    assert folder.log.failure is not None


def test_a_retry_is_not_stored_twice(folder: LogFolder) -> None:
    opened(folder)
    batch = timed_set(NOW, magic=2)
    set_producer(batch, 0, 7, 0, 0)
    sent = bytes(batch)
    folder.log.appender.append(bytearray(sent))
    before = folder.content(SUFFIXES)
    admitted, ahead = begun(folder, sent)
    ahead.write()
    assert folder.log.appender.end_append(admitted).repeated
    folder.log.appender.end_write()
    assert folder.content(SUFFIXES) == before


def test_a_log_that_is_closed_meanwhile_opens_without_the_bytes(folder: LogFolder) -> None:
    opened(folder)
    times = folder.times()
    _, ahead = begun(folder)
    ahead.write()
    folder.restart()
    assert folder.times() == times
    assert not folder.events.named("log_truncated")


def test_after_a_kill_all_of_the_set_is_there_or_nothing(folder: LogFolder) -> None:
    opened(folder)
    times = folder.times()
    _, ahead = begun(folder)
    folder.files.fail("pwrite", errno.EIO, name=".log", written=60)
    ahead.write()
    folder.kill_and_restart(checkpointed=False)
    assert folder.times() == times


@pytest.mark.parametrize("epoch", [3, 4], ids=["same", "another"])
def test_the_bytes_have_the_epoch_of_the_append(
    folder: LogFolder, twin: LogFolder, epoch: int
) -> None:
    for one in (folder, twin):
        opened(one)
        ReplicaLog(one.log).begin_to_lead(3)
    admitted, ahead = begun(folder)
    ahead.write()
    if epoch != 3:
        for one in (folder, twin):
            ReplicaLog(one.log).follow()
            ReplicaLog(one.log).begin_to_lead(epoch)
    folder.log.appender.end_append(admitted)
    twin.log.appender.append(bytearray(large()))
    assert folder.content(SUFFIXES) == twin.content(SUFFIXES)


class ObservedLock:
    """A lock that tells when the main thread waits for it."""

    def __init__(self, asked: Event) -> None:
        self._lock = Lock()
        self._asked = asked

    def __enter__(self) -> None:
        if current_thread() is main_thread():
            self._asked.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_cut_waits_for_the_thread(folder: LogFolder) -> None:
    """A cut beside a write would leave bytes of it behind the end."""
    opened(folder)
    _, ahead = begun(folder)
    began, goes_on = Event(), Event()
    pwrite = SystemFile.pwrite

    def slow(file: SystemFile, data: Any, position: int) -> None:
        if current_thread() is thread:  # and not a broker of the test kit
            began.set()
            assert goes_on.wait(60)
        pwrite(file, data, position)

    ahead._lock = ObservedLock(goes_on)  # type: ignore[assignment]
    thread = Thread(target=ahead.write)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SystemFile, "pwrite", slow)
        thread.start()
        try:
            assert began.wait(60)
            patched.undo()
            folder.log.truncate(1)
            assert ahead._written
        finally:
            goes_on.set()
            thread.join()
    assert end_of_file(folder) == folder.log.segments[-1].size_bytes
