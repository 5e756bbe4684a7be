"""Where the process has no free handle: what needs one is refused for now, and nothing ends."""

import errno
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.files import SystemFiles
from horolog.testing.crashing import in_child
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import LogFolder, timed_set

NO_HANDLE = pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
WHERE = ("open", "duplicate", "sync_directory")


def without_handles(files: FaultyFiles, error: int, passing: int, kind: str = "") -> None:
    """After `passing` operations of one kind that takes a handle, or of each, none gets one."""
    for one in [kind] if kind else WHERE:
        files.fail(one, error, passing=passing, times=-1)


@pytest.fixture(params=[1, 8], ids=["one file open", "eight"])
def scarce(request: pytest.FixtureRequest, tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "t-0", open_files_max=request.param)


@NO_HANDLE
@pytest.mark.parametrize("passing", range(14))
def test_appends_are_refused_for_now(scarce: LogFolder, error: int, passing: int) -> None:
    folder = scarce
    folder.open(segment_bytes=4 * 39, index_interval_bytes=0, retention_ms=-1)
    stored = list(enumerate([10, 20]))
    folder.append(10, 20)
    without_handles(folder.files, error, passing)
    refused = 0
    for time_ms in range(30, 130, 10):
        end = folder.log.log_end_offset
        try:
            folder.log.appender.append(timed_set(time_ms))
        except StorageError:
            refused += 1
            assert folder.log.log_end_offset == end
        else:
            stored.append((end, time_ms))
        assert folder.log.failure is None
    assert passing > 5 or refused
    folder.files.heal()
    assert folder.times() == stored
    stored += zip(folder.append(500, 510), (500, 510), strict=True)
    folder.events.seen.clear()
    for again in (folder.kill_and_restart, folder.restart):
        again()
        assert folder.times() == stored
        assert folder.found(495) == [(500, stored[-2][0])]
    assert not folder.events.named("index_rebuilt")
    folder.let_go()


@NO_HANDLE
@pytest.mark.parametrize("kind", ["", *WHERE])
@pytest.mark.parametrize("passing", range(4))
def test_a_sync_that_could_not_begin_is_tried_again(
    scarce: LogFolder, error: int, kind: str, passing: int
) -> None:
    folder = scarce
    folder.open(segment_bytes=2 * 39, index_interval_bytes=0, retention_ms=-1)
    folder.append(10, 20)
    folder.append(30)
    log = folder.log
    without_handles(folder.files, error, passing, kind)
    for _ in range(2):
        with suppress(StorageError):
            log.flusher.flush()
        assert log.failure is None
        synced = folder.files.did("sync_directory")
        assert log.recovery_point in (0, 3)
        assert log.recovery_point == 0 or synced
    assert log.unflushed_since is not None or log.recovery_point == 3
    folder.files.heal()
    log.flusher.flush()
    assert log.recovery_point == 3
    assert folder.append(40) == [3]
    folder.restart()
    assert folder.times() == list(enumerate([10, 20, 30, 40]))
    assert not folder.events.named("index_rebuilt")
    folder.let_go()


def test_files_that_are_kept_open_are_given_up_for_a_handle(folder: LogFolder) -> None:
    folder.open(segment_bytes=39, index_interval_bytes=0, retention_ms=-1)
    folder.append(*range(10, 90, 10))
    folder.log.flusher.flush()
    assert len(folder.open_files._open) >= 7, "the logs of closed segments"
    opened = folder.files.open

    def scarce_open(path: Path, *, create: bool = False, read_only: bool = False) -> object:
        if len(folder.open_files._open) > 5:
            raise OSError(errno.EMFILE, "no handle")
        return opened(path, create=create, read_only=read_only)

    folder.files.open = scarce_open  # type: ignore[method-assign, assignment]
    folder.append(100)
    assert folder.times()[-1] == (8, 100)
    assert len(folder.open_files._open) <= 6


@NO_HANDLE
@pytest.mark.parametrize("kind", ["", *WHERE])
@pytest.mark.parametrize("passing", range(3))
def test_positions_go_on_after_a_rewriting_without_handles(
    tmp_path: Path, error: int, kind: str, passing: int
) -> None:
    data = DataDirectory(tmp_path / "data")
    data.files = files = FaultyFiles(SystemFiles())
    metadata = data.open().metadata
    data.directory.create_topic("a", 1, {})
    long = "m" * (1 << 19)
    data.commit("job", StoredPosition("a", 0, 1, 1, 1, long))
    without_handles(files, error, passing, kind)
    for offset in range(2, 5):
        with suppress(StorageError):
            data.commit("job", StoredPosition("a", 0, offset, 1, 1, long))
        with suppress(StorageError):
            metadata.write_state()
    files.heal()
    data.commit("job", StoredPosition("a", 0, 9, 1, 1, long))
    metadata.write_state()
    for _ in range(2):
        assert data.directory.committed.of("job") == [StoredPosition("a", 0, 9, 1, 1, long)]
        data.restart()
    data.close()


def test_the_spare_handle_syncs_a_folder(tmp_path: Path) -> None:
    """In a child, which has one thread: another one would take handles, and give them back."""

    def look() -> None:
        files = SystemFiles()
        with no_handles_left(), pytest.raises(OSError, match="Too many open files"):
            files.sync_directory(tmp_path)
        files.keep_spare()
        with no_handles_left():
            for _ in range(3):
                files.sync_directory(tmp_path)
            with pytest.raises(OSError, match="Too many open files"):
                files.open(tmp_path / "a", create=True)
        before = len(os.listdir("/proc/self/fd"))
        files.drop_spare()
        files.drop_spare()
        assert len(os.listdir("/proc/self/fd")) == before - 1
        files.sync_directory(tmp_path)

    gc.disable()  # It would close files that earlier tests have left.
    try:
        assert in_child(look) == 0
    finally:
        gc.enable()


@contextmanager
def no_handles_left() -> Iterator[None]:
    """Let this process open no further file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
