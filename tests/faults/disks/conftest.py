"""Fixtures of the disk tests, and the summary of what the power cut tests tried."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from .enumeration import Enumeration
from .small_disk import DISK_BYTES, SmallDisk

TRIED = pytest.StashKey[list[tuple[str, Enumeration]]]()


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory where there is such a place: there a state takes no time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="horolog-disks-", dir=memory if os.access(memory, os.W_OK) else None
    ) as name:
        yield Path(name)


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    """Random numbers that `--hypothesis-seed` brings back."""
    return Random(f"{request.config.getoption('--hypothesis-seed')} {request.node.name}")


@pytest.fixture
def enumeration(request: pytest.FixtureRequest, random: Random) -> Iterator[Enumeration]:
    """Tries a few states after each operation, many in the soak; counts are in the summary."""
    long = request.node.get_closest_marker("soak") is not None
    tried = Enumeration(
        random,
        exhaustive_max=512 if long else 8,
        samples=100 if long else 2,
        check_every=1 if long else 3,
        use_every=1 if long else 4,
    )
    yield tried
    request.config.stash.setdefault(TRIED, []).append((request.node.name, tried))


@pytest.fixture
def as_root() -> None:
    """Without the rights of root the test skips by name; with `HOROLOG_REQUIRE=all` it fails."""
    if os.geteuid() != 0:
        not_here("this needs to be root")


@pytest.fixture
def small_disk(
    tmp_path: Path, as_root: None, require_program: Callable[[str], str]
) -> Iterator[SmallDisk]:
    """A real file system with very little room."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = [require_program("mount"), "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs"]
    if subprocess.run([*mount, str(path)], capture_output=True).returncode:
        not_here("tmpfs cannot be mounted")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run([require_program("umount"), "-l", str(path)], check=True)


def not_here(reason: str) -> None:
    """Skip by name, or fail where nothing may be skipped."""
    if os.environ.get("HOROLOG_REQUIRE") == "all":
        pytest.fail(f"{reason}, and HOROLOG_REQUIRE=all asks for it")
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tried = terminalreporter.config.stash.get(TRIED, [])
    if "soak" in terminalreporter.config.option.markexpr:
        for name, enumeration in tried:
            terminalreporter.write_line(f"{name}: {enumeration.summary}")
    if tried:
        states = sum(enumeration.states for _, enumeration in tried)
        terminalreporter.write_line(f"power cuts: {states} states in {len(tried)} enumerations")
