"""The file of truncations: bounded, whole after a power cut, and never an obstacle."""

import errno
import json
from pathlib import Path
from shutil import rmtree

import pytest

from horolog.storage.directory import truncations as module
from horolog.storage.directory.journal import Cause, Removal
from horolog.storage.directory.truncations import TRUNCATIONS_FILE, Truncations
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles, QuickFiles

ID = "0" * 22


def cut(number: int, topic: str = "t") -> Removal:
    numbers = (0, number, number + 1, 1, -1, number, number, number)
    return Removal(str(Cause.TRUNCATION), "to follow its leader", topic, ID, *numbers)


def test_each_line_that_is_whole_counts(tmp_path: Path) -> None:
    files = QuickFiles()
    for number in range(3):
        Truncations(tmp_path, files).add(cut(number))
    path = tmp_path / TRUNCATIONS_FILE
    whole = path.read_bytes()
    ends = [0] + [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        complete = sum(end <= size for end in ends) - 1
        found = Truncations(tmp_path, files)
        assert found.of("t") == [cut(number) for number in range(complete)]
        found.add(cut(9))
        again = Truncations(tmp_path, files)
        assert again.of("t") == [*map(cut, range(complete)), cut(9)]


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 10)
    truncations = Truncations(tmp_path, QuickFiles())
    for number in range(57):
        truncations.add(cut(number))
        lines = (tmp_path / TRUNCATIONS_FILE).read_bytes().splitlines()
        assert len(lines) <= 10
    found = Truncations(tmp_path, QuickFiles()).of("t")
    assert found[-5:] == [cut(number) for number in range(52, 57)]


@pytest.mark.parametrize(
    ("kind", "before"),
    [("pwrite", 0), ("sync", 0), ("sync_directory", 0), ("pwrite", 2), ("sync", 2)],
)
def test_a_file_whose_change_failed_is_replaced(tmp_path: Path, kind: str, before: int) -> None:
    """After a failed sync another sync of the same file proves nothing."""
    files = FaultyFiles(QuickFiles())
    truncations = Truncations(tmp_path, files)
    for number in range(before):
        truncations.add(cut(number))
    files.fail(kind, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        truncations.add(cut(before))
    files.operations.clear()
    truncations.add(cut(before + 1))
    assert ("sync", TRUNCATIONS_FILE) not in files.operations
    assert ("rename", TRUNCATIONS_FILE + ".tmp") in files.operations
    files.operations.clear()
    truncations.add(cut(before + 2))
    assert ("sync", TRUNCATIONS_FILE) in files.operations
    assert Truncations(tmp_path, files).of("t") == [cut(number) for number in range(before + 3)]


def test_a_topic_with_a_new_id_keeps_its_truncations(tmp_path: Path) -> None:
    """As the journal does, when a partition whose folder is gone begins anew."""
    data = DataDirectory(tmp_path / "data")
    data.open().create_topic("t", 2, {})
    data.append("t", 1, 2, 3)
    data.directory.log("t", 0).truncate(1)
    data.close()
    former_id = data.topics_file()["t"]["id"]
    rmtree(data.path / "t-1")
    for _ in range(2):
        data.open()
        new_id = data.topics_file()["t"]["id"]
        assert new_id != former_id
        assert [each.topic_id for each in data.directory.truncations.of("t")] == [new_id]
        data.close()


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    lines = [b"\xff", b"{", b"[]", b"1", json.dumps(["x", *cut(1)[1:-1], "2"]).encode()]
    good = json.dumps([*cut(4)]).encode()
    (tmp_path / TRUNCATIONS_FILE).write_bytes(b"\n".join([*lines, good, b""]))
    assert Truncations(tmp_path, QuickFiles()).of("t") == [cut(4)]


def test_a_truncated_log_and_a_torn_write_are_recorded(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    directory = data.open()
    directory.create_topic("t", 1, {})
    data.append("t", 1000, 2000, 3000)
    directory.log("t", 0).truncate(1)
    (truncation,) = directory.truncations.of("t")
    assert (truncation.first_offset, truncation.end_offset, truncation.messages) == (1, 3, 2)
    assert truncation.largest_timestamp_ms == 3000
    data.append("t", 4000)
    data = data.copy(tmp_path / "killed")
    path = tmp_path / "killed" / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + b"torn")
    directory = data.open()
    assert directory.log("t", 0).log_end_offset == 2
    _, torn = directory.truncations.of("t")
    assert (torn.first_offset, torn.end_offset, torn.messages) == (2, 2, -1)
    assert torn.rule == "a start found 4 B incomplete or damaged; they are kept as .broken"
    data.close()
