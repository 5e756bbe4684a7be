import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import build_wrapper
from horolog.storage.check.dump import dump
from horolog.storage.check.findings import MAX_FINDINGS_PER_FILE
from horolog.storage.check.repair import Repair, RepairPlan
from horolog.storage.check.verify import Finding, verify
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.events import ignore_events
from horolog.storage.files import SystemFiles
from horolog.testing.clock import ManualClock
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles, QuickFiles
from horolog.testing.logs import timed_set

ZERO = f"{0:020d}"
KAFKA = "kafka-0.10.2"


def findings(directory: Path) -> list[Finding]:
    return list(verify(SystemFiles(), directory))


def plan(directory: Path) -> RepairPlan:
    """What a repair would do."""
    repairing = Repair(SystemFiles(), directory, clock=ManualClock(), observe=ignore_events)
    try:
        return repairing.plan()
    finally:
        repairing.release()


def errors(directory: Path) -> list[Finding]:
    return [finding for finding in findings(directory) if finding.error]


def contents(directory: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in directory.rglob("*")
        if path.is_file()
    }


GOLDEN = [
    pytest.param(path.name, kind, id=f"{path.name}-{kind}")
    for path in sorted((Path(__file__).parents[1] / "golden" / KAFKA).iterdir())
    for kind in ("clean", "killed")
    if (path / kind).is_dir()
]


@pytest.mark.parametrize(("topic", "kind"), GOLDEN)
def test_what_kafka_wrote_is_right_i21(topic: str, kind: str, golden: Path) -> None:
    """I-44."""
    directory = golden / KAFKA / topic / kind
    before = contents(directory)
    assert findings(directory) == []
    assert contents(directory) == before


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    data = DataDirectory(tmp_path / "data", segment_bytes=600, index_interval_bytes=50)
    data.files = QuickFiles()
    return data


def fill(data: DataDirectory) -> None:
    """Topics of every kind, several segments each."""
    directory = data.open()
    directory.create_topic("create", 2, {})
    directory.create_topic("append", 1, {"message.timestamp.type": "LogAppendTime"})
    for number in range(40):
        now_ms = data.clock.now_ms()
        times = [now_ms - number * 37 % 11, now_ms + number, -1]
        codec = Codec(number % 4)
        for name in ("create", "append"):
            directory.log(name, 0).appender.append(timed_set(*times, codec=codec))
        directory.log("create", 1).appender.append(timed_set(*times, codec=codec, magic=1))
        if number % 5 == 0:
            directory.log("create", 1).appender.append(timed_set(-1, -1, magic=0, codec=codec))
        data.clock.advance(10)
    data.commit("job", StoredPosition("create", 0, 1, 2, 3, ""))
    assert all(log.segment_count > 3 for log in directory.open_logs())


def test_what_the_broker_writes_is_right(data: DataDirectory, tmp_path: Path) -> None:
    fill(data)
    data.directory.write_checkpoints()
    assert errors(data.path) == []
    data.close()
    before = contents(data.path)
    assert findings(data.path) == []
    assert contents(data.path) == before
    for folder in ("create-0", "create-1", "append-0"):
        assert findings(data.path / folder) == []


def write_log(directory: Path, *sets: bytes | bytearray, base: int = 0) -> Path:
    """A partition folder with one segment that has no index."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{base:020d}.log"
    path.write_bytes(b"".join(sets))
    return path


def with_parent(directory: Path, gaps: bool) -> Path:
    """The folder of a partition in a data directory that knows about its gaps."""
    topics = {"a": {"partitions": 1, "gaps": gaps}}
    (directory / "topics.json").write_text(json.dumps({"version": 1, "topics": topics}))
    return directory / "a-0"


def test_every_flipped_bit_of_a_log_is_found(tmp_path: Path) -> None:
    folder = with_parent(tmp_path, gaps=False)
    content = bytes(timed_set(5, 3)) + bytes(timed_set(4, 9, codec=Codec.GZIP, base_offset=2))
    path = write_log(folder, content)
    assert errors(folder) == []
    for at in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            assert errors(folder), (at, bit)


@pytest.mark.parametrize("gaps", [False, True])
def test_offsets(gaps: bool, tmp_path: Path) -> None:
    """S-33."""
    folder = with_parent(tmp_path, gaps)
    jump = write_log(folder, timed_set(1, 2), timed_set(3, base_offset=7))
    assert [(e.path, e.position) for e in errors(folder)] == ([] if gaps else [(jump, 78)])
    back = write_log(folder, timed_set(1, 2), timed_set(3, base_offset=1))
    [error] = errors(folder)
    assert (error.path, error.position) == (back, 78)
    assert "must rise" in error.rule


def test_a_log_cut_at_every_byte(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    content = bytes(timed_set(1, 2, 3))
    for size in range(len(content) + 1):
        path = write_log(folder, content[:size])
        found = errors(folder)
        if size % 39 == 0:
            assert found == []
        else:
            [error] = found
            assert (error.path, error.position) == (path, size - size % 39)
            assert "next start sets" in error.advice


def test_torn_or_damaged_is_told_by_the_recovery_point(tmp_path: Path) -> None:
    folder = with_parent(tmp_path, gaps=False)
    write_log(folder, timed_set(1, 2, 3), b"garbage, not a message at all")
    for point, advice in ((3, "next start"), (4, "horolog repair")):
        (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1\na 0 {point}\n")
        [error] = errors(folder)
        assert (error.position, advice in error.advice) == (117, True)


def test_a_format_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    batch = bytes(8) + (61).to_bytes(4, "big") + b"\0\0\0\0\x03" + bytes(56)
    write_log(tmp_path / "a-0", batch)
    [error] = errors(tmp_path / "a-0")
    assert "magic" in error.rule
    assert "left as it is" in error.advice


def test_a_changed_magic_is_damage_and_no_later_format(tmp_path: Path) -> None:
    folder = with_parent(tmp_path, gaps=False)
    content = bytearray(timed_set(1, 2, 3))
    content[39 + 16] = 3
    path = write_log(folder, content)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\na 0 3\n")
    error, behind = [f for f in findings(folder) if f.path == path]
    assert (error.position, "magic" in error.rule, error.error) == (39, True, True)
    assert "horolog repair" in error.advice
    assert (behind.position, "offsets 2 to 2" in behind.rule, behind.error) == (78, True, False)


def test_damage_in_two_places_is_found_in_both(tmp_path: Path) -> None:
    folder = with_parent(tmp_path, gaps=False)
    content = bytearray(timed_set(*range(6)))
    content[2 * 39 - 1] ^= 1
    content[4 * 39 + 8 : 4 * 39 + 12] = bytes(4)
    path = write_log(folder, content)
    found = [f for f in findings(folder) if f.path == path]
    assert [(f.position, f.error) for f in found] == [(39, True), (4 * 39, True), (5 * 39, False)]


def test_messages_inside_of_wrappers_are_checked(tmp_path: Path) -> None:
    folder = with_parent(tmp_path, gaps=False)

    def wrapped(inner: bytes | bytearray, offset: int, timestamp_ms: int, magic: int = 1) -> Path:
        wrapper = build_wrapper(
            inner, offset=offset, timestamp_ms=timestamp_ms, magic=magic, codec=Codec.GZIP
        )
        return write_log(folder, wrapper)

    wrapped(timed_set(5, 9), 1, 9)
    assert errors(folder) == []
    wrapped(timed_set(5, 9), 1, 8)
    assert "timestamp 8" in errors(folder)[0].rule
    wrapped(timed_set(5) + timed_set(9, base_offset=2), 2, 9)
    assert "missing inside" in errors(folder)[0].rule
    wrapped(timed_set(5) + timed_set(9), 1, 9)
    assert "do not rise" in errors(folder)[0].rule
    wrapped(timed_set(-1, -1, magic=0), 5, -1, magic=0)
    assert "last message" in errors(folder)[0].rule
    damaged = bytearray(timed_set(5, 9))
    damaged[-1] ^= 1
    wrapped(damaged, 1, 9)
    assert "CRC" in errors(folder)[0].rule


def test_files_that_are_only_listed(data: DataDirectory) -> None:
    fill(data)
    data.close()
    folder = data.path / "create-0"
    (folder / f"{ZERO}.log.77.broken").write_bytes(b"x")
    (folder / f"{ZERO}.index.deleted").write_bytes(b"x")
    (folder / "leader-epoch-checkpoint").write_bytes(b"x")
    (folder / f"{999999:020d}.index").write_bytes(b"x")
    (folder / f"{ZERO}.timeindex").unlink()
    (data.path / "notes.txt").write_bytes(b"x")
    (data.path / "positions.9.broken").write_bytes(b"x")
    shutil.copytree(data.path / "append-0", data.path / "copied-3")
    found = findings(data.path)
    assert not any(finding.error for finding in found)
    assert {finding.path.name for finding in found} == {
        f"{ZERO}.log.77.broken",
        f"{ZERO}.index.deleted",
        "leader-epoch-checkpoint",
        f"{999999:020d}.index",
        f"{ZERO}.timeindex",
        "notes.txt",
        "positions.9.broken",
        "copied-3",
    }
    broken = [f for f in found if f.path.name.endswith(".broken")]
    assert all("set aside" in finding.rule for finding in broken)


def test_segments_must_follow_each_other(tmp_path: Path) -> None:
    for gaps in (False, True):
        folder = with_parent(tmp_path, gaps)
        write_log(folder, timed_set(1, 2))
        hole = write_log(folder, timed_set(3, base_offset=5), base=5)
        assert [error.path for error in errors(folder)] == ([] if gaps else [hole])
        hole.unlink()
        overlap = write_log(folder, timed_set(3, base_offset=1), base=1)
        [error] = errors(folder)
        assert (error.path, "overlaps" in error.rule) == (overlap, True)
        shutil.rmtree(folder)


def test_the_files_of_the_data_directory(data: DataDirectory) -> None:
    fill(data)
    data.close()
    changes = {
        "topics.json": b"{",
        "recovery-point-offset-checkpoint": b"0\n1\n",
        "log-start-offset-checkpoint": b"1\n",
        "metadata-log/state": (data.path / "metadata-log" / "state").read_bytes()[:-1],
    }
    for name, content in changes.items():
        path = data.path / name
        kept = path.read_bytes()
        path.write_bytes(content)
        assert [error.path for error in errors(data.path)] == [path]
        path.write_bytes(kept)
    assert errors(data.path) == []
    (data.path / "positions").write_bytes(b"of an earlier build")
    [error] = errors(data.path)
    assert error.path.name == "positions"
    assert "a broker does not start beside it" in error.advice


def test_a_folder_that_is_gone(data: DataDirectory) -> None:
    fill(data)
    data.close()
    shutil.rmtree(data.path / "create-1")
    [error] = errors(data.path)
    assert error.path == data.path / "create-1"


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_a_checkpoint_past_the_end(name: str, data: DataDirectory) -> None:
    fill(data)
    data.close()
    path = data.path / name
    path.write_text("0\n1\ncreate 0 999\n")
    [error] = errors(data.path)
    assert error.path == path
    assert "999" in error.rule


def test_a_file_that_cannot_be_read(data: DataDirectory) -> None:
    fill(data)
    data.close()
    path = data.path / "create-0" / f"{ZERO}.log"
    path.unlink()
    path.mkdir()
    [error] = errors(data.path)
    assert (error.path, "cannot be read" in error.rule) == (path, True)


def test_all_files_are_closed_and_none_is_written(data: DataDirectory) -> None:
    fill(data)
    data.close()
    files = FaultyFiles(SystemFiles())
    assert list(verify(files, data.path)) == []
    assert files.open_count == 0
    reading = {
        "open",
        "pread",
        "read_bytes",
        "exists",
        "is_directory",
        "names",
        "size",
        "file_size",
    }
    assert {kind for kind, _ in files.operations} <= reading


def test_findings_without_number_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    content = bytearray(timed_set(*range(1000)))
    for at in range(38, len(content), 39):
        content[at] ^= 1
    write_log(folder, content)
    found = findings(folder)
    missing_indexes = 2
    assert len(found) == MAX_FINDINGS_PER_FILE + 1
    assert f"{1000 + missing_indexes - MAX_FINDINGS_PER_FILE} more" in found[-1].rule


def test_an_empty_partition_folder(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    assert findings(tmp_path / "a-0") == []


def test_other_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"x")
    with pytest.raises(ValueError, match="neither a data directory nor the folder"):
        findings(tmp_path)
    with pytest.raises(FileNotFoundError):
        findings(tmp_path / "missing")
    with pytest.raises(NotADirectoryError):
        findings(tmp_path / "x.txt")


@pytest.mark.parametrize("look", [findings, plan], ids=["verify", "repair"])
def test_a_folder_of_something_else_with_a_partitions_name_makes_no_data_directory(
    tmp_path: Path, look: Callable[[Path], object]
) -> None:
    """As /etc, which has dbus-1 and polkit-1."""
    (tmp_path / "polkit-1" / "rules.d").mkdir(parents=True)
    (tmp_path / "dbus-1").mkdir()
    (tmp_path / "dbus-1" / "session.conf").touch()
    (tmp_path / "nfs-4").touch()
    for path in (tmp_path, tmp_path / "dbus-1"):
        with pytest.raises(ValueError, match="neither a data directory nor the folder"):
            look(path)
    assert not (tmp_path / ".lock").exists()
    (tmp_path / ".lock").touch()  # of whatever program
    with pytest.raises(ValueError, match="neither a data directory nor the folder"):
        look(tmp_path)


def test_partition_folders_alone_are_a_data_directory(tmp_path: Path) -> None:
    """Such as copies of a part of one, beside other files."""
    (tmp_path / "notes.txt").touch()
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / f"{0:020}.log").touch()
    assert not any(one.error for one in findings(tmp_path))


def test_the_folder_may_be_the_current_one(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(data)
    data.close()
    monkeypatch.chdir(data.path / "create-0")
    assert findings(Path()) == []
    os.truncate(f"{ZERO}.log", 100)
    assert "horolog repair" in errors(Path())[0].advice


GOOD = bytes(timed_set(5, 3)) + bytes(timed_set(4, 9, codec=Codec.LZ4, base_offset=2))


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """Something that was a log once."""
    content = bytearray(GOOD * draw(st.integers(1, 2)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content) - 1))
        content[at : at + draw(st.integers(0, 9))] = draw(st.binary(max_size=9))
        if not content:
            break
    return bytes(content)


@given(
    log=st.one_of(st.binary(max_size=200), mangled()),
    index=st.binary(max_size=60),
    time_index=st.binary(max_size=60),
)
def test_no_content_makes_it_fail(
    tmp_path_factory: pytest.TempPathFactory, log: bytes, index: bytes, time_index: bytes
) -> None:
    folder = tmp_path_factory.mktemp("data") / "a-0"
    path = write_log(folder, log)
    path.with_suffix(".index").write_bytes(index)
    path.with_suffix(".timeindex").write_bytes(time_index)
    for finding in findings(folder):
        assert finding.rule
        assert finding.advice
    for name in os.listdir(folder):
        assert len(list(dump(SystemFiles(), folder / name))) <= len(log) + len(index) + len(
            time_index
        )
