"""`repair`: what is good stays where it is, what is not is kept beside it."""

import errno
import json
import shutil
from pathlib import Path
from random import Random

import pytest

from horolog.protocol.errors import StorageError
from horolog.protocol.records.layout import SIZE_AT
from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.testing.directories import DataDirectory, read_messages
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import timed_set

from .damaging import cut, flip, overwrite
from .repairing import Message, Place, check_served, errors, fill, places, repair

RECOVERY = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"


def messages(found: list[Place]) -> list[Message]:
    return [message for place in found for message in place.messages]


def end_of(found: list[Place]) -> int:
    return found[-1].messages[-1][0] + 1


@pytest.fixture(params=["clean", "killed"])
def filled(request: pytest.FixtureRequest, data: DataDirectory, place: Path) -> DataDirectory:
    """A directory that nobody uses."""
    fill(data, clean=request.param == "clean")
    if request.param == "clean":
        return data
    copy = data.copy(place / "copy")
    data.close()
    return copy


def test_nothing_is_done_where_nothing_is_wrong(filled: DataDirectory) -> None:
    before = {path: path.read_bytes() for path in filled.path.rglob("*") if path.is_file()}
    files = FaultyFiles(SystemFiles())
    assert repair(filled.path, files) == []
    assert files.open_count == 0
    after = {path: path.read_bytes() for path in filled.path.rglob("*") if path.is_file()}
    before.pop(filled.path / ".lock", None)
    after.pop(filled.path / ".lock", None)
    assert after == before


@pytest.mark.parametrize(
    ("code", "advice"), [(errno.EACCES, "as the user that the broker runs as"), (errno.EIO, "disk")]
)
def test_who_is_asked_why_a_file_cannot_be_read(
    filled: DataDirectory, code: int, advice: str
) -> None:
    files = FaultyFiles(SystemFiles())
    files.fail("open", code, times=1_000_000, name=".log")
    found = [one for one in verify(files, filled.path) if "cannot be read" in one.rule]
    assert found
    assert all(advice in one.advice for one in found)


def test_a_message_in_each_segment(filled: DataDirectory) -> None:
    found = places(filled.path / "t-0")
    paths = sorted({place.path for place in found})
    assert len(paths) > 3
    lost = []
    for path in paths:
        victim = [place for place in found if place.path == path][1]
        flip(path, victim.end - 1, 3)
        lost.append(victim)
    content = {path: path.read_bytes() for path in paths}
    steps = repair(filled.path)
    assert errors(filled.path) == []
    told = {(step.path, step.position): step for step in steps}
    for victim in lost:
        step = told[victim.path, victim.start]
        first, last = victim.messages[0][0], victim.messages[-1][0]
        size = victim.end - victim.start
        assert step.wrong == "a message's CRC does not fit its content"
        assert f"take {size} bytes, offsets {first} to {last}, out" in step.action
        kept = victim.path.with_name(f"{victim.path.name}.{victim.start}.broken")
        assert kept.read_bytes() == content[victim.path][victim.start : victim.end]
    assert filled.topics_file()["t"].get("gaps") is True
    assert "gaps" not in filled.topics_file()["u"]
    left = [place for place in found if place not in lost]
    check_served(filled, messages(left), end_of(found))
    assert errors(filled.path) == []


def test_an_offset_below_zero_before_a_broken_message(filled: DataDirectory) -> None:
    """No CRC covers the offset: the entry reads well, and does not say where the log goes on."""
    found = places(filled.path / "t-0")
    first, broken, *rest = found
    overwrite(first.path, first.start, b"\x80")
    overwrite(broken.path, broken.start + SIZE_AT, bytes(4))
    repair(filled.path)
    assert errors(filled.path) == []
    check_served(filled, messages(rest), end_of(found))


@pytest.mark.parametrize("less", [1 << 63, 1, 2, 3])
def test_an_offset_that_cannot_be_behind_a_good_message(filled: DataDirectory, less: int) -> None:
    """It is wrong itself, and says nothing against the one in front of it. One that is only too low
    would else be taken for the true one, and its message be served there."""
    found = places(filled.path / "t-0")
    at = next(
        number
        for number, place in enumerate(found)
        if place.start == 0
        and len(place.messages) == 2
        and number + 2 < len(found)
        and found[number + 2].path == place.path
    )
    broken, good, wrong = found[at : at + 3]
    flip(broken.path, broken.end - 1, 3)
    offset = (wrong.messages[0][0] - less) % 2**64
    overwrite(wrong.path, wrong.start, offset.to_bytes(8, "big"))
    repair(filled.path)
    assert errors(filled.path) == []
    expected = [*found[:at], good, *found[at + 3 :]]
    check_served(filled, messages(expected), end_of(found))


@pytest.mark.parametrize("more", [-1, 1, 7])
@pytest.mark.parametrize("of_log", [False, True], ids=["segment", "log"])
def test_a_wrong_offset_at_the_end(data: DataDirectory, of_log: bool, more: int) -> None:
    """Behind a broken message nothing but the next segment, or the clean stop, contradicts it."""
    fill(data, clean=True)
    found = places(data.path / "t-0")
    path = found[-1].path if of_log else found[0].path
    broken, last = [one for one in found if one.path == path][-2:]
    flip(broken.path, broken.end - 1, 3)
    offset = last.messages[0][0] + more
    overwrite(last.path, last.start, offset.to_bytes(8, "big"))
    repair(data.path)
    assert errors(data.path) == []
    left = [place for place in found if place not in (broken, last)]
    check_served(data, messages(left), end_of(found))


def test_a_good_message_in_front_of_lost_ones(data: DataDirectory) -> None:
    """It does not lead to where the segment ends, and is not to blame for that."""
    fill(data, clean=True)
    found = places(data.path / "t-0")
    broken, _, lost = (place for place in found if place.path == found[0].path)
    flip(broken.path, broken.end - 1, 3)
    cut(lost.path, lost.start)
    repair(data.path)
    assert errors(data.path) == []
    left = [place for place in found if place not in (broken, lost)]
    check_served(data, messages(left), end_of(found))


@pytest.mark.parametrize("number", range(-4, 0))
def test_the_log_goes_on_where_it_did(filled: DataDirectory, number: int) -> None:
    """Offsets that somebody has seen are never given to other messages."""
    found = places(filled.path / "t-0")
    for victim in found[number:]:
        overwrite(victim.path, victim.start + 8, bytes(4))
    steps = repair(filled.path)
    assert errors(filled.path) == []
    end = end_of(found)
    assert any(f"let the log go on at offset {end}" in step.action for step in steps)
    check_served(filled, messages(found[:number]), end)


def test_a_torn_tail_is_cut_as_the_next_start_would(data: DataDirectory, place: Path) -> None:
    fill(data, clean=False)
    log = data.directory.log("t", 0)
    end = log.log_end_offset
    log.appender.append(timed_set(2000))
    copy = data.copy(place / "copy")
    data.close()
    path = copy.path / "t-0" / log.segments[-1].log_path.name
    found = places(copy.path / "t-0")
    cut(path, path.stat().st_size - 3)
    repair(copy.path)
    assert errors(copy.path) == []
    check_served(copy, messages(found[:-1]), end)


@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_a_segment_without_anything_good(filled: DataDirectory, which: str) -> None:
    found = places(filled.path / "t-0")
    paths = sorted({place.path for place in found})
    path = {"first": paths[0], "middle": paths[2], "last": paths[-1]}[which]
    path.write_bytes(b"\xa5" * 300)
    steps = repair(filled.path)
    assert errors(filled.path) == []
    assert path.with_name(f"{path.name}.broken").read_bytes() == b"\xa5" * 300
    assert not path.exists()
    assert any("set the segment aside" in step.action for step in steps)
    left = [place for place in found if place.path != path]
    check_served(filled, messages(left), end_of(found))


def test_nothing_good_at_all(filled: DataDirectory) -> None:
    found = places(filled.path / "t-0")
    for path in {place.path for place in found}:
        path.write_bytes(bytes(100))
    repair(filled.path)
    assert errors(filled.path) == []
    check_served(filled, [], 0)


def test_a_segment_that_is_gone(filled: DataDirectory) -> None:
    found = places(filled.path / "t-0")
    path = sorted({place.path for place in found})[1]
    path.unlink()
    repair(filled.path)
    assert errors(filled.path) == []
    left = [place for place in found if place.path != path]
    check_served(filled, messages(left), end_of(found))


def test_overlapping_segments(filled: DataDirectory) -> None:
    folder = filled.path / "t-0"
    found = places(folder)
    second = sorted({place.path for place in found})[1]
    base = int(second.stem)
    (folder / f"{base + 1:020d}.log").write_bytes(second.read_bytes())
    repair(filled.path)
    assert errors(filled.path) == []
    assert (folder / f"{base + 1:020d}.log.broken").read_bytes() == second.read_bytes()
    check_served(filled, messages(found), end_of(found))


def test_segments_that_overlap_in_part(filled: DataDirectory) -> None:
    """The earlier one keeps what both have, the later one begins behind it."""
    folder = filled.path / "t-0"
    found = places(folder)
    paths = sorted({place.path for place in found})
    first, second = paths[1], paths[2]
    both = first.read_bytes() + second.read_bytes()
    middle = [place for place in found if place.path == second][1]
    first.write_bytes(both[: len(first.read_bytes()) + middle.end])
    for kind in (".index", ".timeindex", ".appendtime"):
        first.with_suffix(kind).unlink(missing_ok=True)
    repair(filled.path)
    assert errors(filled.path) == []
    assert not second.exists()
    check_served(filled, messages(found), end_of(found))


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".appendtime"])
def test_derived_files(filled: DataDirectory, kind: str) -> None:
    folder = filled.path / "t-0"
    found = places(folder)
    path = sorted(folder.glob("*" + kind))[1]
    content = path.read_bytes()
    path.write_bytes(b"\x7f" * (len(content) or 24))
    was_wrong = errors(filled.path)
    repair(filled.path)
    assert errors(filled.path) == []
    if kind != ".appendtime":
        assert was_wrong
        assert path.read_bytes() == content
    check_served(filled, messages(found), end_of(found))


def test_checksums(filled: DataDirectory) -> None:
    path = filled.path / "t-0" / "index-checksums"
    found = places(filled.path / "t-0")
    path.write_bytes(path.read_bytes().replace(b"\n0 ", b"\nx ", 1))
    assert [name for name, _, _ in errors(filled.path)] == ["index-checksums"]
    repair(filled.path)
    assert errors(filled.path) == []
    check_served(filled, messages(found), end_of(found))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("topics.json", b"{"),
        (RECOVERY, b"hello"),
        (LOG_START, b"0\n1\nt 0 -1\n"),
        (".kafka_cleanshutdown", b"\xff\xff"),
        ("metadata-log/state", b"something else"),
        (RECOVERY, b"0\n2\nt 0 999\nu 0 3\n"),
        (LOG_START, b"0\n2\nt 0 999\nu 0 0\n"),
    ],
)
def test_files_of_the_directory(filled: DataDirectory, name: str, content: bytes) -> None:
    found = places(filled.path / "t-0")
    (filled.path / name).write_bytes(content)
    assert errors(filled.path) != []
    repair(filled.path)
    assert errors(filled.path) == []
    directory = filled.open()
    assert [ms for _, ms, _ in messages(found)][-3:] == filled.times("t")[-3:]
    assert directory.log("t", 0).log_end_offset == end_of(found)
    filled.close()


def test_folders(filled: DataDirectory) -> None:
    found = places(filled.path / "t-0")
    shutil.rmtree(filled.path / "u-0")
    (filled.path / "u-0").write_bytes(b"?")
    last = sorted((filled.path / "t-0").glob("*.log"))[-1]
    (last.parent / f"{int(last.stem) + 500:020d}.log").mkdir()
    repair(filled.path)
    assert errors(filled.path) == []
    assert (filled.path / "u-0.broken").read_bytes() == b"?"
    filled.open()
    assert filled.times("t") == [ms for _, ms, _ in messages(found)]
    assert filled.times("u") == []
    filled.close()


def test_one_partition_of_a_directory(filled: DataDirectory) -> None:
    found = places(filled.path / "t-0")
    for topic in ("t", "u"):
        (first, *_) = sorted((filled.path / f"{topic}-0").glob("*.log"))
        flip(first, 20, 0)
    repair(filled.path / "t-0")
    assert errors(filled.path / "t-0") == []
    assert errors(filled.path / "u-0") != []
    assert filled.topics_file()["t"].get("gaps") is True
    repair(filled.path / "u-0")
    assert errors(filled.path) == []
    filled.open()
    assert filled.times("t") == [ms for _, ms, _ in messages(found[1:])]
    filled.close()


def test_a_partition_by_itself(filled: DataDirectory, place: Path) -> None:
    alone = Path(shutil.copytree(filled.path / "t-0", place / "alone" / "t-0"))
    (first, *_) = sorted(alone.glob("*.log"))
    flip(first, 20, 0)
    repair(alone)
    assert errors(alone) == []
    assert list(alone.parent.iterdir()) == [alone]


def test_a_broker_is_not_disturbed(data: DataDirectory) -> None:
    fill(data, clean=False)
    for path in (data.path, data.path / "t-0"):
        with pytest.raises(StorageError, match=r"in use by process \d+; stop that broker first"):
            repair(path)
    data.close()


def test_a_later_format_is_left_alone(filled: DataDirectory) -> None:
    path = sorted((filled.path / "t-0").glob("*.log"))[-1]
    batch = bytes(8) + (61).to_bytes(4, "big") + b"\0\0\0\0\x03" + bytes(56)
    path.write_bytes(b"\x00\x00\x00\x00\x00\x00\xff" + batch[7:])
    content = {p: p.read_bytes() for p in path.parent.iterdir()}
    steps = repair(filled.path)
    assert [step.done for step in steps] == [False]
    assert "a version of Horolog that reads this format" in steps[0].action
    assert {p: p.read_bytes() for p in path.parent.iterdir()} == content


def test_a_later_topics_file_is_refused(filled: DataDirectory) -> None:
    (filled.path / "topics.json").write_text(json.dumps({"version": 99, "topics": {}}))
    with pytest.raises(StorageError, match="version 99"):
        repair(filled.path)


def test_a_directory_of_something_else_is_refused(place: Path) -> None:
    (place / "x").mkdir()
    (place / "x" / "notes.txt").write_bytes(b"?")
    with pytest.raises(ValueError, match="neither a data directory nor"):
        repair(place / "x")


def test_file_times_stay(data: DataDirectory) -> None:
    """Retention goes by them where messages have none."""
    fill(data, clean=True)
    (first, *_) = sorted((data.path / "t-0").glob("*.log"))
    flip(first, 20, 0)
    SystemFiles().set_modified_ms(first, 1_234_567_890_000)
    repair(data.path)
    assert SystemFiles().modified_ms(first) == 1_234_567_890_000


def damaged(random: Random, folder: Path) -> list[tuple[Path, int, int]]:
    """Damage log files at random; the bytes that are touched."""
    touched = []
    logs = sorted(folder.glob("*.log"))
    for _ in range(random.randrange(1, 4)):
        path = random.choice(logs)
        content = bytearray(path.read_bytes())
        if not content:
            continue
        at = random.randrange(len(content))
        size = min(random.choice([1, 1, random.randrange(1, 90)]), len(content) - at)
        match random.randrange(4):
            case 0:
                content[at] ^= 1 << random.randrange(8)
                size = 1
            case 1:
                content[at : at + size] = bytes(size)
            case 2:
                content[at : at + size] = random.randbytes(size)
            case _:
                size = len(content) - at
                del content[at:]
        path.write_bytes(content)
        touched.append((path, at, at + size))
    return touched


@pytest.mark.parametrize(
    "rounds", [pytest.param(30, id="some"), pytest.param(4000, id="many", marks=pytest.mark.soak)]
)
def test_random_damage(place: Path, rounds: int, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--hypothesis-seed")
    origin = DataDirectory(place / "origin")
    fill(origin, clean=True)
    for number in range(rounds):
        random = Random(f"{seed} {number}")
        data = origin.copy(place / "copy")
        if random.random() < 0.5:
            (data.path / ".kafka_cleanshutdown").unlink()
        found = places(data.path / "t-0")
        touched = damaged(random, data.path / "t-0")
        steps = repair(data.path)
        context = f"round {number} of seed {seed}: {touched}"
        if undone := [step.wrong for step in steps if not step.done]:
            # A magic byte became that of a later format: somebody who reads it has to repair that.
            assert all("format (magic byte)" in wrong for wrong in undone), context
            shutil.rmtree(data.path)
            continue
        assert errors(data.path) == [], context
        data.open()
        left = read_messages(data.directory.log("t", 0))
        stored = {offset: (ms, value) for offset, ms, _, value in left}
        for one in found:
            hit = any(
                path == one.path and start < one.end and end > one.start
                for path, start, end in touched
            )
            for offset, ms, value in one.messages:
                if not hit:
                    assert stored.get(offset) == (ms, value), context
        # No checksum covers the offset of an entry, so damage there may give it another one.
        movable = {
            (ms, value)
            for one in found
            for _, ms, value in one.messages
            if any(
                path == one.path and start < one.start + SIZE_AT and end > one.start
                for path, start, end in touched
            )
        }
        moved = stored.items() - {(o, (ms, v)) for o, ms, v in messages(found)}
        assert {content for _, content in moved} <= movable, context
        data.close()
        shutil.rmtree(data.path)
