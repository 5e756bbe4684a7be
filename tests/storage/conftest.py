"""Fixtures of the storage tests: one log in a folder, real files, a clock that stands still."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.testing.logs import LogFolder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LogFolder]:
    """A folder without a log yet. No file may be left open when the test has let go of it."""
    folder = LogFolder(tmp_path / "t-0")
    yield folder
    folder.files.heal()
    folder.let_go()
    assert folder.files.open_count == 0
