"""Data that is set aside is in one folder or the other, whenever the power goes, and never gone."""

import re
import shutil
from pathlib import Path
from random import Random

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.directory.known_files import (
    UNFINISHED_SETTING_ASIDE,
    finish_setting_aside,
    is_set_aside,
    set_aside,
)
from horolog.storage.directory.lock import DirectoryLock
from horolog.storage.files import SystemFiles
from horolog.storage.names import parse_folder_name
from horolog.testing.power_cuts import PowerCuts
from horolog.testing.recording import RecordingFiles

NOW_MS = 1_764_076_440_123
STAYS = {"disk-reserve": b"0"}
GOES = {
    "t-0/00000000000000000000.log": b"messages",
    "t-0/00000000000000000000.index": b"",
    "other-3/00000000000000000007.log": b"more",
    "topics.json": b"{}",
    "metadata-log/state": b"topics, positions, users, access rules and quotas",
    "cluster-id": b"RKJuE-phluKdGrFdw9V7kw\n",
    "replication-identity": b"{}",
    "note.txt": b"somebody's own",
}


def fill(directory: Path) -> None:
    for name, content in (STAYS | GOES).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def found(directory: Path) -> dict[str, bytes]:
    """All files but the lock and a temporary one, by path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock" and path.suffix != ".tmp"
    }


def aside(folder: str) -> dict[str, bytes]:
    return STAYS | {f"{folder}/{name}": content for name, content in GOES.items()}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    fill(made)
    return made


def test_all_data_goes(directory: Path) -> None:
    files = SystemFiles()
    folder = set_aside(files, directory, NOW_MS)
    assert folder == directory / "set-aside-2025-11-25T13-14-00.123Z"
    assert found(directory) == aside(folder.name)
    assert finish_setting_aside(files, directory) is None
    # Once more in the same millisecond, and what was set aside before stays where it is.
    for name, content in GOES.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
    again = set_aside(files, directory, NOW_MS)
    assert again.name == f"{folder.name}.2"
    assert found(directory) == aside(folder.name) | aside(again.name)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("set-aside-2025-11-25T13-14-00.123Z", True),
        ("set-aside-2025-11-25T13-14-00.123Z.2", True),
        ("set-aside-2025-11-25T13-14-00.123Z-0", False),
        ("set-aside-unfinished", False),
        ("set-aside-topic-0", False),
        ("set-aside-", False),
    ],
)
def test_its_name_is_no_partition(name: str, is_one: bool) -> None:
    assert is_set_aside(name) is is_one
    assert not (is_one and parse_folder_name(name))


def test_whenever_the_power_goes_the_next_start_has_all_or_nothing(
    directory: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    random = Random(f"{request.config.getoption('--hypothesis-seed')} set aside")
    recording = RecordingFiles(SystemFiles(), directory)
    folder = set_aside(recording, directory, NOW_MS).name
    cuts = PowerCuts(recording, random, exhaustive_max=256, samples=16)
    seen: dict[bool, int] = {False: 0, True: 0}
    for state in cuts.states():
        path = tmp_path / "state"
        state.make(path)
        finish_setting_aside(SystemFiles(), path)
        went = found(path)
        moved = "topics.json" not in went
        assert went == (aside(folder) if moved else STAYS | GOES), state.lost
        assert not (path / UNFINISHED_SETTING_ASIDE).exists()
        seen[moved] += 1
        shutil.rmtree(path)
    assert min(seen.values()) > 0
    assert sum(seen.values()) > 50, (seen, len(recording.operations))


def test_a_second_power_cut_while_it_is_finished(
    directory: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    random = Random(f"{request.config.getoption('--hypothesis-seed')} again")
    recording = RecordingFiles(SystemFiles(), directory)
    folder = set_aside(recording, directory, NOW_MS).name
    halves = [
        state
        for state in PowerCuts(recording, random, exhaustive_max=8, samples=2).states()
        if UNFINISHED_SETTING_ASIDE in state.tree
    ]
    for state in random.sample(halves, min(len(halves), 4)):
        half = tmp_path / "half"
        state.make(half)
        again = RecordingFiles(SystemFiles(), half)
        finish_setting_aside(again, half)
        for second in PowerCuts(again, random, exhaustive_max=16, samples=4).states():
            path = tmp_path / "state"
            second.make(path)
            finish_setting_aside(SystemFiles(), path)
            assert found(path) == aside(folder), (state.lost, second.lost)
            shutil.rmtree(path)
        shutil.rmtree(half)


def test_a_directory_in_use_is_left_alone(directory: Path) -> None:
    files = SystemFiles()
    lock = DirectoryLock(files, directory)
    with pytest.raises(StorageError, match="is in use by"):
        set_aside(files, directory, NOW_MS)
    lock.release()
    assert found(directory) == STAYS | GOES


@pytest.mark.parametrize("content", [b"", b"../elsewhere\n", b"t-0\n", b"\xff\n"])
def test_a_folder_that_is_none_is_refused(directory: Path, content: bytes) -> None:
    (directory / UNFINISHED_SETTING_ASIDE).write_bytes(content)
    with pytest.raises(StorageError, match=re.escape(str(directory))):
        finish_setting_aside(SystemFiles(), directory)
    assert found(directory).items() >= GOES.items()
