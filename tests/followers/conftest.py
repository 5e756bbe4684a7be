"""Fixtures of the tests of followers: two logs, in memory where the system has such a place."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.testing.logs import LogFolder

pytest.register_assert_rewrite(f"{__package__}.copies")

from .copies import follower_in  # noqa: E402 - behind the line that lets its asserts speak

MEMORY_FILE_SYSTEM = "/dev/shm"


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder."""
    where = MEMORY_FILE_SYSTEM if os.access(MEMORY_FILE_SYSTEM, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        yield Path(name)


@pytest.fixture
def leader(place: Path) -> Iterator[LogFolder]:
    """A folder without a log yet."""
    folder = LogFolder(place / "leader" / "t-0")
    files = folder.files
    yield folder
    files.heal()
    folder.let_go()
    assert files.open_count == 0


@pytest.fixture
def follower(place: Path, leader: LogFolder) -> Iterator[LogFolder]:
    """A folder without a log yet, of another broker with a clock of its own."""
    folder = follower_in(place / "follower" / "t-0", leader)
    files = folder.files
    yield folder
    files.heal()
    folder.let_go()
    assert files.open_count == 0
