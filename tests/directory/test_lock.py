import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.directory.lock import DirectoryLock
from horolog.storage.files import SystemFiles
from horolog.testing.files import FaultyFiles

HOLD = """
import sys
from pathlib import Path
from horolog.storage.files import SystemFiles
from horolog.storage.directory.lock import DirectoryLock
lock = DirectoryLock(SystemFiles(), Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_second_process_is_refused_and_told_the_first_one_s_id(
    tmp_path: Path, files: SystemFiles
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StorageError, match=rf"process {holder.pid}\b.*--data-dir"):
        DirectoryLock(files, tmp_path)
    holder.kill()
    holder.wait()
    holder.communicate()
    DirectoryLock(files, tmp_path).release()


def test_it_can_be_taken_again_after_release(tmp_path: Path, files: SystemFiles) -> None:
    (tmp_path / ".lock").write_text("12345678901234567890")
    for _ in range(2):
        lock = DirectoryLock(files, tmp_path)
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(StorageError, match=f"process {os.getpid()}"):
            DirectoryLock(files, tmp_path)
        lock.release()
        lock.release()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"garbage"])
def test_a_lock_file_without_a_number(content: bytes, tmp_path: Path, files: SystemFiles) -> None:
    lock = DirectoryLock(files, tmp_path)
    (tmp_path / ".lock").write_bytes(content)
    with pytest.raises(StorageError, match="another process"):
        DirectoryLock(files, tmp_path)
    lock.release()


def test_it_remembers_when_the_directory_was_last_in_use(
    tmp_path: Path, files: SystemFiles
) -> None:
    first = DirectoryLock(files, tmp_path)
    assert first.last_seen_ms is None
    first.seen(1_479_144_272_509)
    first.release()
    for _ in range(2):
        # Taking the lock is no use yet: a start that fails, or is killed, changes nothing.
        again = DirectoryLock(files, tmp_path)
        assert again.last_seen_ms == 1_479_144_272_509
        again.release()


def test_a_time_that_cannot_be_read_or_set_keeps_nobody_out(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    DirectoryLock(files, tmp_path).release()
    files.fail("modified_ms", errno.EACCES)
    lock = DirectoryLock(files, tmp_path)
    assert lock.last_seen_ms is None
    lock.release()
    files.fail("set_modified_ms", errno.EPERM)
    lock = DirectoryLock(files, tmp_path)
    assert lock.last_seen_ms is not None
    lock.release()
