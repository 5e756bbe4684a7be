"""Files that stay open between uses."""

from pathlib import Path

import pytest

from horolog.storage.files import File, SystemFiles
from horolog.storage.open_files import OpenFiles
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import LogFolder


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(SystemFiles())


def opened(files: FaultyFiles, path: Path) -> File:
    return files.open(path, create=True)


def test_a_file_that_was_opened_elsewhere_is_ready(files: FaultyFiles, tmp_path: Path) -> None:
    open_files = OpenFiles(files, 2)
    file = opened(files, tmp_path / "a")
    open_files.keep(str(tmp_path / "a"), file)
    assert open_files.use(str(tmp_path / "a")) is file
    open_files.close()
    assert files.open_count == 0


def test_a_second_handle_of_a_file_is_closed(files: FaultyFiles, tmp_path: Path) -> None:
    open_files = OpenFiles(files, 2)
    first, second = (opened(files, tmp_path / "a") for _ in range(2))
    for file in (first, second):
        open_files.keep(str(tmp_path / "a"), file)
    assert open_files.use(str(tmp_path / "a")) is first
    assert files.open_count == 1
    open_files.close()


def test_of_those_that_are_kept_the_least_recently_used_is_closed(
    files: FaultyFiles, tmp_path: Path
) -> None:
    open_files = OpenFiles(files, 2)
    kept = {name: opened(files, tmp_path / name) for name in "abc"}
    open_files.keep(str(tmp_path / "a"), kept["a"])
    open_files.keep(str(tmp_path / "b"), kept["b"])
    open_files.use(str(tmp_path / "a"))
    open_files.keep(str(tmp_path / "c"), kept["c"])
    assert files.open_count == 2
    for name in "ac":
        assert open_files.use(str(tmp_path / name)) is kept[name]
    open_files.close()


def test_files_beside_the_log_of_a_closed_segment_are_not_kept_open(tmp_path: Path) -> None:
    """They would push out logs, which are read far more often."""
    folder = LogFolder(tmp_path / "t-0", open_files_max=100)
    folder.open(index_interval_bytes=0)
    for time in range(5):
        folder.append(time)
        folder.log.appender.roll()
    folder.append(9)
    folder.log.flusher.flush()
    kept = sorted(Path(name).name for name in folder.open_files._open)
    logs = [f"{base:020d}.log" for base in range(5)]
    assert [name for name in kept if not name.startswith(f"{5:020d}")] == logs
    folder.let_go()
