"""docs/operations.md shows what really happens."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from horolog.tests.faults.disks.conftest import not_here

from .broken_directories import SCENARIOS
from .shell import Shell, blocks, commands, comparable

FAILING_SYNC = Path(__file__).parents[1] / "faults" / "disks" / "failing_sync.c"
PAGE = "operations.md"
NEEDS = {"full": "disk", "failed-sync": "library"}


@pytest.fixture
def disk(tmp_path: Path, require_program: Callable[[str], str]) -> Iterator[dict[str, str]]:
    """A small file system at `disk`."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = [require_program("mount"), "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True).returncode:
        not_here("a small file system cannot be mounted")
    try:
        yield {}
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def library(tmp_path: Path, require_program: Callable[[str], str]) -> dict[str, str]:
    """The sync of the segment that comes next can be made to fail."""
    path = tmp_path / "failing_sync.so"
    gcc = [require_program("gcc"), "-shared", "-fPIC", "-o", str(path), str(FAILING_SYNC), "-ldl"]
    subprocess.run(gcc, check=True)
    return {
        "LD_PRELOAD": str(path),
        "FAIL_SYNC_OF": f"clicks-0/{9:020d}.log",
        "FAIL_SYNC_ONCE": "sync-fails-now",
    }


def test_the_page_has_every_scenario_once() -> None:
    assert sorted(blocks(PAGE)) == sorted(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_page_shows_what_happens(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    env: Mapping[str, str] = request.getfixturevalue(NEEDS[name]) if name in NEEDS else {}
    SCENARIOS[name](tmp_path)
    written = blocks(PAGE)[name]
    assert commands(written)
    with Shell(tmp_path, env) as shell:
        assert comparable(shell.run(written)) == comparable(written)
