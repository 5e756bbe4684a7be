"""Fixtures of the directory tests: real files, a clock that stands still, recorded events."""

from pathlib import Path

import pytest

from horolog.storage.files import SystemFiles
from horolog.testing.clock import ManualClock
from horolog.testing.directories import DataDirectory
from horolog.testing.logs import RecordedEvents


@pytest.fixture
def files() -> SystemFiles:
    return SystemFiles()


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def golden() -> Path:
    return Path(__file__).parents[1] / "golden"


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    """A data directory that nobody has opened yet."""
    return DataDirectory(tmp_path / "data")
