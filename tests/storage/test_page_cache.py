"""Which bytes of a file are in memory, asked of a real disk."""

import os
from pathlib import Path

import pytest

from horolog.storage.files import SystemFile, SystemFiles

MIB = 1 << 20


def dropped(path: Path) -> SystemFile:
    """A file of 4 MiB on the disk, of which the system keeps nothing in memory."""
    file = SystemFiles().open(path, create=True)
    assert isinstance(file, SystemFile)
    file.pwrite(bytes(4 * MIB), 0)
    file.sync()
    for _ in range(1000):  # the system need not do it at once
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if not file.in_memory(4 * MIB, 0):
            break
    return file


def test_what_was_dropped_is_in_memory_once_it_was_loaded(tmp_path: Path) -> None:
    file = dropped(tmp_path / "file")
    if file.in_memory(4 * MIB, 0):
        pytest.skip("the file system keeps its files in memory")
    file.load(4 * MIB, 0)
    assert file.in_memory(4 * MIB, 0)
    file.close()
