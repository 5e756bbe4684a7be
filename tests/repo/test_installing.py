"""`requirements/install`: uv where it is present, pip otherwise, each with the same arguments."""

import os
import subprocess
from pathlib import Path

import pytest

ARGUMENTS = ("--require-hashes", "--no-deps", "-r", "requirements/run.txt")

PIP = """#!/bin/sh
echo "python $*" >> "$CALLS"
echo 'Collecting aiohttp==3.14.5'
echo '  Downloading aiohttp-3.14.5-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (9.9 kB)'
echo '  Downloading aiohttp-3.14.5-cp311-cp311-manylinux_2_28_x86_64.whl (1.9 MB)'
echo '  Using cached pyspark-4.2.0.tar.gz (434.1 MB)'
exit ${PIP_FAILS:-0}
"""

UV = """#!/bin/sh
echo "uv $*" >> "$CALLS"
exit ${UV_FAILS:-0}
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for PATH with the shell's own programs, and a Python whose pip only prints."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "env", "sed"):
        (found,) = [path for path in ("/usr/bin", "/bin") if os.path.exists(f"{path}/{name}")][:1]
        (folder / name).symlink_to(f"{found}/{name}")
    add_program(folder, "python", PIP)
    return folder


def add_program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def install(
    root: Path, programs: Path, *arguments: str, **env: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the script. Returns it and the commands that it ran."""
    calls = programs / "calls"
    calls.write_text("")
    done = subprocess.run(
        [root / "requirements/install", programs / "python", *arguments],
        env={"PATH": str(programs), "CALLS": str(calls), **env},
        capture_output=True,
        text=True,
    )
    return done, calls.read_text().splitlines()


def test_pip_installs_and_each_package_is_printed(root: Path, programs: Path) -> None:
    done, calls = install(root, programs, *ARGUMENTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["  aiohttp 3.14.5 (1.9 MB)", "  pyspark 4.2.0 (434.1 MB)"]
    (call,) = calls
    assert call.startswith("python -m pip install ")
    assert call.endswith(" ".join(ARGUMENTS))


def test_a_failure_of_pip_is_one_of_the_script(root: Path, programs: Path) -> None:
    done, _ = install(root, programs, *ARGUMENTS, PIP_FAILS="3")
    assert done.returncode == 3


@pytest.mark.parametrize("compiles", [True, False])
def test_uv_installs_where_it_is_present(root: Path, programs: Path, compiles: bool) -> None:
    add_program(programs, "uv", UV)
    more = () if compiles else ("--no-compile",)
    done, calls = install(root, programs, *more, *ARGUMENTS)
    assert done.returncode == 0
    option = "--compile-bytecode" if compiles else "--no-compile-bytecode"
    python = programs / "python"
    assert calls == [f"uv pip install --python {python} {option} {' '.join(ARGUMENTS)}"]


def test_pip_installs_if_uv_fails(root: Path, programs: Path) -> None:
    add_program(programs, "uv", UV)
    done, calls = install(root, programs, *ARGUMENTS, UV_FAILS="1")
    assert (done.returncode, done.stderr) == (0, "uv failed, so pip installs:\n")
    assert [call.split()[0] for call in calls] == ["uv", "python"]
