"""Fixtures of the tests of append times: one log in a folder, or one file."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from horolog.storage.directory.deletion import DeletionQueue
from horolog.storage.files import SystemFiles
from horolog.storage.open_files import OpenFiles
from horolog.storage.seams import ProducerBudget, Seams
from horolog.testing.clock import ManualClock
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import LogFolder, RecordedEvents

MEMORY_FILE_SYSTEM = "/dev/shm"


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


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(SystemFiles())


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def seams(files: FaultyFiles, events: RecordedEvents) -> Iterator[Seams]:
    clock = ManualClock()
    open_files = OpenFiles(files, 4)
    queue = DeletionQueue(files, clock, events)
    room = ProducerBudget(clock)
    yield Seams(clock, files, events, queue, open_files, Random(1), room)
    files.heal()
    open_files.close()
    assert files.open_count == 0
