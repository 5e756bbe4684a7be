"""Fixtures of the storage tests: one log in a folder, real files, a clock that stands still."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.testing.logs import LogFolder

MEMORY_FILE_SYSTEM = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[LogFolder]:
    """A folder without a log yet. No file may be left open when the test has let go of it.

    It is in memory where the system has such a place: these tests sync thousands of times.
    """
    where = MEMORY_FILE_SYSTEM if os.access(MEMORY_FILE_SYSTEM, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        folder = LogFolder(Path(name) / "t-0")
        yield folder
        folder.files.heal()
        folder.let_go()
        assert folder.files.open_count == 0
