"""A place for brokers, in memory where the system has one."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY_FILE_SYSTEM = "/dev/shm"


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder."""
    where = MEMORY_FILE_SYSTEM if os.access(MEMORY_FILE_SYSTEM, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        yield Path(name)
