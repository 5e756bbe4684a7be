"""etcd, and a place for brokers, in memory where the system has one."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horolog.testing.etcd import EtcdProcess

MEMORY_FILE_SYSTEM = "/dev/shm"


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder."""
    where = MEMORY_FILE_SYSTEM if os.access(MEMORY_FILE_SYSTEM, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        yield Path(name)


@pytest.fixture
def etcd(place: Path, require_program: Callable[[str], str]) -> Iterator[EtcdProcess]:
    """An etcd that runs. Where the program is missing the test skips by name."""
    require_program("etcd")
    process = EtcdProcess(place / "etcd")
    process.start()
    try:
        yield process
    finally:
        process.close()
