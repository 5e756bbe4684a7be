"""Files that are opened to be read: the disk is not written to because of it."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from horolog.storage.files import SystemFiles
from horolog.storage.read import reader
from horolog.testing.crashing import in_child
from horolog.testing.logs import LogFolder, timed_set

OLD_NS = 1_000_000_000 * 10**9
ANOTHER_USER = 65534


def test_that_a_closed_segment_was_read_is_not_noted(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path / "t-0")
    folder.open(segment_bytes=100)
    for time in range(4):
        folder.log.appender.append(timed_set(time))
    folder.log.close()
    paths = sorted(folder.path.glob("*.log"))
    assert len(paths) > 1
    for path in paths:
        # A file whose last change is behind its last read is noted as read the next time.
        os.utime(path, ns=(OLD_NS, OLD_NS + 1))
    log = folder.open()
    log.prepare()
    assert folder.found(0) == [(0, 0)]
    assert reader.read(log, 0, 1000).read()
    assert paths[0].stat().st_atime_ns == OLD_NS
    folder.let_go()


def test_nor_is_it_of_one_that_was_written_since_the_start(tmp_path: Path) -> None:
    """Neither of the active one nor of those whose handles a sync gave to readers."""
    folder = LogFolder(tmp_path / "t-0")
    folder.open(segment_bytes=100)
    for time in range(4):
        folder.log.appender.append(timed_set(time))
    folder.log.flusher.flush()
    paths = sorted(folder.path.glob("*.log"))
    assert len(paths) > 1
    for path in paths:
        os.utime(path, ns=(OLD_NS, OLD_NS + 1))
    assert [ms for _, ms in folder.times()] == [0, 1, 2, 3]
    assert {path.stat().st_atime_ns for path in paths} == {OLD_NS}
    folder.let_go()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_of_another_user_is_read(read_only: bool) -> None:
    # The folders of tests are closed to other users, the system's for temporary files is not.
    with NamedTemporaryFile() as made:
        made.write(b"content")
        made.flush()
        os.chmod(made.name, 0o666)

        def read() -> None:
            os.setuid(ANOTHER_USER)
            file = SystemFiles().open(Path(made.name), read_only=read_only)
            assert file.pread(7, 0) == b"content"

        assert in_child(read) == 0


def test_what_is_opened_to_be_read_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    file = SystemFiles().open(path, read_only=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"other", 0)
    file.close()
