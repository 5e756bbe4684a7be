"""A log file that lost its end, at every byte (fault 27; decision 20)."""

from pathlib import Path

import pytest

from horolog.testing.directories import DataDirectory
from horolog.testing.logs import LogFolder, timed_set

from .damaging import check_searches, copied, cut, fill_mixed, original, read_all


@pytest.mark.parametrize("gaps", [False, True])
def test_27_the_last_file_at_every_byte(folder: LogFolder, place: Path, gaps: bool) -> None:
    """M-16."""
    fill_mixed(folder)
    before = original(folder)
    folder.let_go()
    name = before.log_names[-1]
    content = (before.path / name).read_bytes()
    kept = [entry for entry in before.entries if entry.name != name]
    for size in range(len(content)):
        with copied(before, place) as copy:
            cut(copy.path / name, size)
            log = copy.open(clean=False, gaps=gaps)
            whole = [e for e in before.entries if e.name == name and e.end <= size]
            left = [message for entry in kept + whole for message in entry.messages]
            assert read_all(copy) == (left, [])
            assert log.log_end_offset == left[-1][0] + 1
            end = whole[-1].end if whole else 0
            broken = {f"{name}.{end}.broken": content[end:size]} if end < size else {}
            assert copy.content([".broken"]) == broken
            assert log.appender.append(timed_set(7)).first_offset == left[-1][0] + 1
            copy.kill_and_restart(checkpointed=False)
            assert read_all(copy)[0] == [*left, (left[-1][0] + 1, 7)]


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_27_the_last_file_below_the_recovery_point(
    data: DataDirectory, place: Path, stop: str
) -> None:
    """What is missing cannot be brought back: the log ends where its file does, and it is told."""
    data.open().create_topic("t", 1, {"segment.bytes": "90"})
    for ms in range(1, 6):
        data.append("t", ms)
    log = data.directory.log("t", 0)
    log.flusher.flush()
    data.directory.write_checkpoints()
    path = log.segments[-1].log_path
    base_offset = log.segments[-1].base_offset
    assert 0 < base_offset < 5
    if stop == "clean":
        data.close()
    for size in range(path.stat().st_size):
        copy = data.copy(place / f"copy-{size}")
        cut(copy.path / "t-0" / path.name, size)
        copy.open()
        whole = size // 39
        assert copy.times("t") == list(range(1, base_offset + whole + 1))
        (told,) = copy.events.named("checkpoint_ignored")
        assert (
            f"ends at offset {base_offset + whole}, before its recovery point 5" in told["reason"]
        )
        copy.append("t", 9)
        copy.restart()
        assert copy.times("t")[-1] == 9
        assert copy.events.named("checkpoint_ignored") == []
        copy.close()
    if stop == "killed":
        data.close()


def test_27_a_file_in_the_middle_at_every_byte(folder: LogFolder, place: Path) -> None:
    """Below the recovery point nothing is cut, and nothing behind it is touched."""
    fill_mixed(folder)
    before = original(folder)
    folder.log.flusher.flush()
    folder.let_go()
    name = before.log_names[1]
    size_bytes = (before.path / name).stat().st_size
    others = [m for e in before.entries if e.name != name for m in e.messages]
    for size in range(size_bytes):
        with copied(before, place) as copy:
            cut(copy.path / name, size)
            for index in copy.path.glob("*.index"):
                index.unlink()
            log = copy.open(clean=False, recovery_point=before.end_offset)
            found, refused = read_all(copy)
            whole = [e for e in before.entries if e.name == name and e.end <= size]
            left = [m for e in whole for m in e.messages]
            assert sorted(found) == sorted(others + left)
            assert sorted([offset for offset, _ in found] + refused) == list(
                range(before.end_offset)
            )
            assert log.log_end_offset == before.end_offset
            (told,) = copy.events.named("segment_damaged")
            assert told["path"] == str(copy.path / name)
            assert told["position"] == (whole[-1].end if whole else 0)
            check_searches(copy, before, range(980, 1060, 20))
            assert copy.content([".broken"]) == {}
            assert log.appender.append(timed_set(7)).first_offset == before.end_offset
