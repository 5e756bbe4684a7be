"""What a repair took out of a log: the journal names the offsets, and no answer calls the log
complete."""

import shutil
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horolog import blocking
from horolog.storage.directory.journal import Removal
from horolog.testing.broker import BrokerThread
from horolog.testing.directories import DataDirectory
from horolog.tests.faults.damage.repairing import errors, repair
from horolog.tests.in_process import run_in_process

T0 = 1_700_000_000_000
MESSAGES = 10
MISSING = "a repair found that the bytes before offset {} are missing"


def fill(path: Path, *, trimmed: int = 0) -> DataDirectory:
    """A data directory in use with one message in each set; all of them are synced."""
    data = DataDirectory(path)
    data.open().create_topic("t", 1, {"segment.bytes": "120"})
    for number in range(MESSAGES):
        data.append("t", T0 + number)
    log = data.directory.log("t", 0)
    log.flusher.flush()
    if trimmed:
        log.expiry.trim(trimmed)
    data.directory.write_checkpoints()
    return data


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, DataDirectory]:
    """A directory as a clean stop leaves it, and one as a kill does."""
    data = fill(tmp_path_factory.mktemp("filled") / "data")
    killed = data.copy(tmp_path_factory.mktemp("killed") / "data")
    data.close()
    return {True: data, False: killed}


def log_files(path: Path) -> list[Path]:
    return sorted((path / "t-0").glob("*.log"))


def damage(path: Path, offsets: Sequence[int]) -> int:
    """Damage the sets with these offsets. Returns the size of a set."""
    files = log_files(path)
    bases = [int(file.stem) for file in files]
    size = files[0].stat().st_size // (bases[1] - bases[0])
    for file, (base, end) in zip(files, pairwise([*bases, MESSAGES]), strict=True):
        data = bytearray(file.read_bytes())
        for offset in offsets:
            if base <= offset < end:
                data[(offset - base + 1) * size - 1] ^= 0xFF
        file.write_bytes(data)
    return size


def entries(path: Path) -> list[Removal]:
    opened = DataDirectory(path)
    found = opened.open().truncations.of("t")
    opened.close()
    return found


def rule(lost_bytes: int, end: int) -> str:
    return (
        f"a repair found {lost_bytes} B incomplete or damaged before offset {end}; they are kept "
        "as .broken"
    )


@given(damaged=st.sets(st.integers(0, MESSAGES - 1), min_size=1, max_size=5), clean=st.booleans())
@settings(max_examples=20, deadline=None)
def test_it_is_what_a_plain_list_says(
    directories: dict[bool, DataDirectory],
    tmp_path_factory: pytest.TempPathFactory,
    damaged: set[int],
    clean: bool,
) -> None:
    data = directories[clean].copy(tmp_path_factory.mktemp("copy") / "data")
    size = damage(data.path, sorted(damaged))
    repair(data.path)
    assert errors(data.path) == []
    runs = [
        [offset for _, offset in run]
        for _, run in groupby(enumerate(sorted(damaged)), lambda pair: pair[1] - pair[0])
    ]
    found = entries(data.path)
    assert [(each.first_offset, each.end_offset) for each in found] == [
        (run[0], run[-1] + 1) for run in runs
    ]
    for each, run in zip(found, runs, strict=True):
        # Behind the last synced message, a kill may have left more.
        known = clean or each.end_offset < MESSAGES
        assert each.messages == (len(run) if known else -1)
        assert (each.first_timestamp_ms, each.largest_timestamp_ms) == (-1, -1)
        assert each.rule == rule(size * len(run), each.end_offset)
        assert (each.cause, each.topic_id) == ("truncation", data.topics_file()["t"]["id"])
    repair(data.path)
    assert entries(data.path) == found
    shutil.rmtree(data.path)


def test_what_was_trimmed_before_is_not_gone_again(tmp_path: Path) -> None:
    data = fill(tmp_path / "data", trimmed=2)
    data.close()
    size = damage(data.path, [0, 1, 2])
    repair(data.path)
    (entry,) = entries(data.path)
    assert (entry.first_offset, entry.end_offset, entry.messages) == (2, 3, 1)
    assert entry.rule == rule(3 * size, 3)

    data = fill(tmp_path / "other", trimmed=2)
    data.close()
    damage(data.path, [0, 1])
    repair(data.path)
    assert entries(data.path) == []


def test_a_segment_is_gone(directories: dict[bool, DataDirectory], tmp_path: Path) -> None:
    data = directories[True].copy(tmp_path / "data")
    files = log_files(data.path)
    lost, following = (int(file.stem) for file in files[1:3])
    files[1].unlink()
    repair(data.path)
    (entry,) = entries(data.path)
    assert (entry.first_offset, entry.end_offset) == (lost, following)
    assert (entry.messages, entry.rule) == (following - lost, MISSING.format(following))


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_what_was_synced(
    directories: dict[bool, DataDirectory], tmp_path: Path, clean: bool
) -> None:
    data = directories[clean].copy(tmp_path / "data")
    *_, last = log_files(data.path)
    last.write_bytes(b"")
    repair(data.path)
    (entry,) = entries(data.path)
    base = int(last.stem)
    assert (entry.first_offset, entry.end_offset) == (base, MESSAGES)
    assert entry.messages == (MESSAGES - base if clean else -1)
    assert entry.rule == MISSING.format(MESSAGES)


def test_bytes_behind_a_clean_stop_are_no_messages(
    directories: dict[bool, DataDirectory], tmp_path: Path
) -> None:
    data = directories[True].copy(tmp_path / "data")
    with log_files(data.path)[-1].open("ab") as file:
        file.write(b"?" * 30)
    repair(data.path)
    (entry,) = entries(data.path)
    assert (entry.first_offset, entry.end_offset, entry.messages) == (MESSAGES, MESSAGES, 0)
    assert entry.rule == rule(30, MESSAGES)


def test_a_folder_alone(directories: dict[bool, DataDirectory], tmp_path: Path) -> None:
    """The folder of a partition is repaired alone; elsewhere there is no journal."""
    data = directories[True].copy(tmp_path / "data")
    damage(data.path, [3])
    shutil.copytree(data.path / "t-0", tmp_path / "elsewhere" / "t-0")
    repair(data.path / "t-0")
    (entry,) = entries(data.path)
    assert (entry.first_offset, entry.end_offset, entry.messages) == (3, 4, 1)
    repair(tmp_path / "elsewhere" / "t-0")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["t-0"]


@pytest.mark.parametrize("named", [True, False])
def test_every_answer_says_so(
    directories: dict[bool, DataDirectory], tmp_path: Path, named: bool
) -> None:
    """Also of a topic that gets its id at the next start, because no file names it."""
    data = directories[True].copy(tmp_path / "data")
    size = damage(data.path, [3, 4])
    if not named:
        shutil.copytree(data.path / "t-0", tmp_path / "folder" / "t-0")
        (tmp_path / "folder" / "topics.json").write_text('{"version": 1, "topics": {}}')
        data = DataDirectory(tmp_path / "folder")
    repair(data.path)
    for _ in range(2):
        with BrokerThread(data.path, {"retention.ms": -1}) as broker:
            check_answers(broker, size, named=named)


def check_answers(broker: BrokerThread, size: int, *, named: bool) -> None:
    def run(*arguments: str) -> Any:
        result = run_in_process([*arguments], b"", {"HOROLOG_SERVER": broker.address})
        assert result.code == 0, result
        return result

    told, complete = run("explain", "gone", "t").out.splitlines()
    # Without its file, the topic may have had gaps before.
    messages = "(2 messages," if named else "at least (number of messages not known,"
    assert told.startswith(
        f"t-0: offsets 3 to 4 {messages} times not known) were cut off at this broker: "
        f"{rule(2 * size, 5)}, at "
    )
    assert complete == "t-0 begins at offset 0; it is not known from when on it is complete."
    unknown = "horolog: it is not known what left t: see `horolog explain gone t`"
    assert run("consume", "t", "--from", str(T0)).err.splitlines()[0] == unknown
    with blocking.Admin(broker.address) as admin:
        (removal,) = admin.describe_removals("t").removals
        by_append = admin.find_offset("t", 0, timestamp_ms=0, by="append")
        assert by_append.complete_from_ms == removal.at_ms + 1
        assert by_append.removed == (removal,)
