"""Files that nobody expects (fault 32; decision 31)."""

from pathlib import Path

import pytest

from horolog.protocol.errors import StorageError
from horolog.testing.directories import DataDirectory

ZERO = f"{0:020d}"
TIMES = [10, 30, 20, 50, 40]


@pytest.fixture(params=["clean", "killed"])
def filled(request: pytest.FixtureRequest, data: DataDirectory, place: Path) -> DataDirectory:
    """A directory with one topic of three segments, nobody using it."""
    directory = data.open()
    directory.create_topic("t", 1, {"segment.bytes": "90", "index.interval.bytes": "0"})
    for ms in TIMES:
        data.append("t", ms)
    directory.log("t", 0).flusher.flush()
    directory.write_checkpoints()
    copy = data.copy(place / "copy")
    data.close()
    return copy if request.param == "killed" else data


@pytest.mark.parametrize(
    "name",
    [
        "x.log",
        "0.log",
        f"{ZERO}.log.swap",
        f"{ZERO}.log.old",
        f"{ZERO}.txt",
        f".{ZERO}.log.swp",
        f"{ZERO}.LOG",
        "99999999999999999999.log",
        f"{ZERO}0.log",
        "lost+found",
    ],
)
def test_32_files_and_folders_beside_segments(filled: DataDirectory, name: str) -> None:
    for path in (filled.path / "t-0" / name, filled.path / name):
        path.write_bytes(b"?" * 50)
        filled.open()
        assert filled.times("t") == TIMES
        filled.append("t", 60)
        filled.restart()
        assert filled.times("t") == [*TIMES, 60]
        filled.directory.log("t", 0).truncate(5)
        filled.close()
        assert path.read_bytes() == b"?" * 50
        path.unlink()
        path.mkdir()
        filled.open()
        assert filled.times("t") == TIMES
        filled.close()
        assert path.is_dir()
        path.rmdir()


def test_32_a_gap_in_the_base_offsets(filled: DataDirectory) -> None:
    """A later segment that nothing leads up to is set aside, it does not move the log's end."""
    stray = filled.path / "t-0" / f"{999_999:020d}.log"
    stray.write_bytes(b"")
    filled.open()
    assert filled.times("t") == TIMES
    assert filled.directory.log("t", 0).log_end_offset == 5
    filled.append("t", 60)
    filled.restart()
    assert filled.times("t") == [*TIMES, 60]
    assert (filled.path / "t-0" / f"{stray.name}.broken").exists()
    filled.close()


@pytest.mark.parametrize("base", [1, 3])
def test_32_overlapping_segments_are_refused_by_name(filled: DataDirectory, base: int) -> None:
    folder = filled.path / "t-0"
    content = {path.name: path.read_bytes() for path in folder.glob("*.log")}
    (folder / f"{base:020d}.log").write_bytes(content[f"{2:020d}.log"])
    (filled.path / "recovery-point-offset-checkpoint").unlink()
    directory = filled.open()
    with pytest.raises(StorageError, match=f"begins at {base}; move one of the two elsewhere"):
        directory.log("t", 0)
    directory.create_topic("other", 1, {})
    filled.append("other", 1)
    filled.close()
    assert content.items() <= {p.name: p.read_bytes() for p in folder.glob("*.log")}.items()


def test_32_a_folder_in_the_place_of_a_log_file(filled: DataDirectory) -> None:
    (filled.path / "t-0" / f"{5:020d}.log").mkdir()
    directory = filled.open()
    with pytest.raises(StorageError, match=f"{5:020d}.log"):
        directory.log("t", 0)
    directory.create_topic("other", 1, {})
    filled.append("other", 1)
    filled.close()


def test_32_a_file_in_the_place_of_a_folder(filled: DataDirectory) -> None:
    directory = filled.open()
    directory.create_topic("other", 1, {})
    filled.append("other", 1)
    filled.close()
    for path in (filled.path / "other-0").iterdir():
        path.unlink()
    (filled.path / "other-0").rmdir()
    (filled.path / "other-0").write_bytes(b"?")
    directory = filled.open()
    with pytest.raises(StorageError, match="other-0"):
        directory.log("other", 0)
    assert filled.times("t") == TIMES
    filled.close()
    assert (filled.path / "other-0").read_bytes() == b"?"
