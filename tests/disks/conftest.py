"""Fixtures of the power cut tests, and the summary of what they tried."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from .enumeration import Enumeration

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
        exhaustive_max=512 if long else 32,
        samples=100 if long else 8,
        use_every=1 if long else 4,
    )
    yield tried
    request.config.stash.setdefault(TRIED, []).append((request.node.name, tried))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tried = terminalreporter.config.stash.get(TRIED, [])
    if "soak" in terminalreporter.config.option.markexpr:
        for name, enumeration in tried:
            terminalreporter.write_line(f"{name}: {enumeration.summary}")
    if tried:
        states = sum(enumeration.states for _, enumeration in tried)
        terminalreporter.write_line(f"power cuts: {states} states in {len(tried)} enumerations")
