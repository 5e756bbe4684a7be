"""Fixtures of the damage tests: folders in memory where there is such a place."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.testing.directories import DataDirectory
from horolog.testing.logs import LogFolder


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder, in memory: these tests make thousands of copies."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def folder(place: Path) -> Iterator[LogFolder]:
    """A folder without a log yet. No file may be left open when the test has let go of it."""
    folder = LogFolder(place / "t-0")
    yield folder
    folder.let_go()
    assert folder.files.open_count == 0


@pytest.fixture
def data(place: Path) -> DataDirectory:
    """A data directory that nobody has opened yet."""
    return DataDirectory(place / "data")
