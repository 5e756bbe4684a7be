"""Fixtures of the power cut tests, and the summary of what they tried."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from .enumeration import Enumeration

TRIED = pytest.StashKey[list[str]]()


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory where there is such a place: there a state takes no time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    """Random numbers that `--hypothesis-seed` brings back."""
    return Random(f"{request.config.getoption('--hypothesis-seed')} {request.node.name}")


@pytest.fixture
def enumeration(request: pytest.FixtureRequest, random: Random) -> Iterator[Enumeration]:
    """Tries states, a few after each operation; many in the soak. Counts go to the summary."""
    long = request.node.get_closest_marker("soak") is not None
    tried = Enumeration(random, exhaustive_max=4096 if long else 32, samples=500 if long else 8)
    yield tried
    lines = request.config.stash.setdefault(TRIED, [])
    lines.append(f"{request.node.name}: {tried.summary}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(TRIED, []):
        terminalreporter.write_line(f"power cuts: {line}")
