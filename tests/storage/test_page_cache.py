"""Which bytes of a file are in memory, asked of a real disk."""

import os
from pathlib import Path

import pytest

from horolog.storage.files import SystemFiles

MIB = 1 << 20


def drop(descriptor: int) -> bool:
    """Have the system forget what it keeps of a file; says whether it did, or cannot tell."""
    for _ in range(1000):  # it need not do so at once
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(descriptor, [bytearray(1)], 2 * MIB, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def test_what_was_dropped_is_in_memory_once_it_was_loaded(tmp_path: Path) -> None:
    file = SystemFiles().open(tmp_path / "file", create=True)
    file.pwrite(bytes(4 * MIB), 0)
    file.sync()
    if not drop(file.fileno()):
        pytest.skip("the file system keeps its files in memory, or cannot tell")
    assert not file.in_memory(4 * MIB, 0)
    file.load(4 * MIB, 0)
    assert file.in_memory(4 * MIB, 0)
    file.close()
