"""Fixtures of the tests of time maps: one log in a folder, whose maps are asked for early."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.storage.read import windows
from horolog.testing.logs import LogFolder

MEMORY_FILE_SYSTEM = "/dev/shm"


@pytest.fixture(autouse=True)
def mapped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of a log that has no map is enough for one to be made."""
    monkeypatch.setattr(windows, "UNMAPPED_BYTES", 60_000)


@pytest.fixture
def folder() -> Iterator[LogFolder]:
    """A folder without a log yet, in memory where that is possible. No file may stay open."""
    where = MEMORY_FILE_SYSTEM if os.access(MEMORY_FILE_SYSTEM, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        folder = LogFolder(Path(name) / "t-0")
        yield folder
        folder.files.heal()
        folder.let_go()
        assert folder.files.open_count == 0
