"""Logs for random tests: one folder for each example, gone afterwards."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from horolog.testing.logs import LogFolder

SEGMENT_FILES = (".log", ".index", ".timeindex")

_MEMORY_FILE_SYSTEM = Path("/dev/shm")


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """An empty folder, in memory where the system has such a place: there a sync costs nothing."""
    where = _MEMORY_FILE_SYSTEM if os.access(_MEMORY_FILE_SYSTEM, os.W_OK) else None
    return tempfile.TemporaryDirectory(dir=where)


@contextmanager
def log_folder(overrides: Mapping[str, str]) -> Iterator[LogFolder]:
    """A new, empty log with these settings. In the end no file may be left open."""
    with new_folder() as name:
        folder = LogFolder(Path(name) / "t-0", open_files_max=4)
        folder.settings |= overrides
        folder.open()
        yield folder
        folder.let_go()
        assert folder.files.open_count == 0


def start_after_close(folder: LogFolder) -> None:
    """Open again what was closed, as it is on the disk now."""
    log = folder.log
    folder.open(
        recovery_point=log.recovery_point, log_start_offset=log.log_start_offset, gaps=log.gaps
    )


def date_files(folder: LogFolder) -> None:
    """Let the times of the newest log files follow the clock that the log is run with."""
    at_ns = folder.clock.now_ms() * 1_000_000
    for segment in folder.log.segments[-2:]:
        os.utime(segment.log_path, ns=(at_ns, at_ns))
