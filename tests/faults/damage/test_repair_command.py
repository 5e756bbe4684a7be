"""`horolog repair` as a program."""

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from horolog.testing.directories import DataDirectory
from horolog.testing.logs import later_format
from horolog.testing.program import Program, serving

from .damaging import GOLDEN, flip
from .repairing import errors, fill, places


@pytest.fixture
def horolog() -> Program:
    return Program()


@pytest.fixture
def damaged(data: DataDirectory) -> Path:
    """A data directory, cleanly stopped, with one message that is not what it was."""
    fill(data, clean=True)
    victim = places(data.path / "t-0")[1]
    flip(victim.path, victim.end - 1, 0)
    return data.path


def test_it_shows_its_plan_and_does_nothing_unasked(horolog: Program, damaged: Path) -> None:
    content = {path: path.read_bytes() for path in (damaged / "t-0").iterdir()}
    result = horolog("repair", damaged)
    assert result.code == 2
    log = damaged / "t-0" / f"{0:020d}.log"
    assert result.out.splitlines()[0].startswith(f"{log} at byte ")
    assert "offsets 1 to 2, out (kept beside it as .broken)" in result.out
    assert result.err == (
        "horolog: nothing was changed: standard input is no terminal; --yes does not ask\n"
    )
    assert {path: path.read_bytes() for path in (damaged / "t-0").iterdir()} == content


def test_it_repairs(horolog: Program, damaged: Path) -> None:
    assert horolog("verify", damaged).code == 1
    result = horolog.ok("repair", damaged, "--yes")
    assert result.out.endswith(f"{damaged}: repaired; `horolog verify` looks at it once more\n")
    assert horolog.ok("verify", damaged).out.endswith("nothing is wrong\n")
    assert horolog.ok("repair", damaged).out == f"{damaged}: nothing to repair\n"
    with serving(damaged) as server:
        read = server.program.ok("consume", "t", "--json").objects
        assert [one["offset"] for one in read][:3] == [0, 3, 4]
        sent = server.program.ok("produce", "t", "--json", stdin='{"value": "x"}\n').objects
        assert sent[0]["offset"] == read[-1]["offset"] + 1
        assert server.stop() == 0


def test_json(horolog: Program, damaged: Path) -> None:
    result = horolog.ok("repair", damaged, "--yes", "--json")
    steps = result.objects
    assert all(
        set(step) == {"path", "position", "wrong", "action", "removed_bytes", "possible"}
        for step in steps
    )
    assert sum(step["removed_bytes"] for step in steps) > 30
    assert errors(damaged) == []
    assert horolog.ok("repair", damaged, "--json").out == ""


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1)])
def test_it_asks_on_a_terminal(damaged: Path, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "horolog", "repair", str(damaged)],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            os.write(ours, f"{answer}\n".encode())
            _, err = process.communicate(timeout=30)
    finally:
        os.close(ours)
        os.close(theirs)
    assert process.returncode == code
    assert "Do this?" in err
    assert (errors(damaged) == []) is (code == 0)


def test_a_broker_that_runs_is_not_disturbed(horolog: Program, damaged: Path) -> None:
    with serving(damaged) as server:
        for directory in (damaged, damaged / "t-0"):
            result = horolog("repair", directory, "--yes")
            assert (result.code, result.out) == (1, "")
            pid = server.process.pid
            assert f"is in use by process {pid}; stop that broker first" in result.err
        assert server.stop() == 0


def test_what_cannot_be_repaired_is_told(horolog: Program, place: Path) -> None:
    folder = place / "v2-plain-0"
    shutil.copytree(GOLDEN.parent / "kafka-2.1" / "v2-plain" / "clean", folder)
    for log in folder.glob("*.log"):
        log.write_bytes(later_format(log.read_bytes()))
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = horolog("repair", folder, "--yes")
    assert result.code == 1
    assert "use a version of Horolog that reads this format" in result.out
    assert "cannot be repaired" in result.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content


@pytest.mark.parametrize(
    ("directory", "code", "text"),
    [(".", 2, "neither a data directory nor"), ("nowhere", 1, "No such file")],
)
def test_other_directories(place: Path, directory: str, code: int, text: str) -> None:
    result = Program(cwd=place)("repair", directory, "--yes")
    assert (result.code, result.out) == (code, "")
    assert text in result.err
