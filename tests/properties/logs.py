"""A log in a folder of its own, as a broker holds it: opened, stopped, killed, opened again."""

import os
import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from horolog.config.topic import topic_settings
from horolog.storage.deletion import DeletionQueue
from horolog.storage.files import SystemFiles
from horolog.storage.log import Log
from horolog.storage.log_opening import open_log
from horolog.storage.open_files import OpenFiles
from horolog.storage.seams import Seams
from horolog.testing.clock import ManualClock
from horolog.testing.events import RecordedEvents

TOPIC = "orders"
_MEMORY_FILE_SYSTEM = Path("/dev/shm")


class LogFolder:
    """One log, its folder, and the clock and settings that it is run with."""

    def __init__(self, path: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.clock = ManualClock()
        self.events = RecordedEvents()
        self.files = SystemFiles()
        self.overrides = dict(overrides or {})
        self._gaps = False
        self.log = self._open(clean=True, recovery_point=0, log_start_offset=0)

    def _open(self, *, clean: bool, recovery_point: int, log_start_offset: int) -> Log:
        self.deletions = DeletionQueue(self.files, self.clock, self.events)
        self.open_files = OpenFiles(self.files, 4)
        seams = Seams(
            self.clock,
            self.files,
            self.events,
            self.deletions,
            self.open_files,
            random.Random(0),
        )
        return open_log(
            self.path,
            TOPIC,
            0,
            topic_settings({}, self.overrides),
            seams,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            gaps=self._gaps,
        )

    def change(self, overrides: Mapping[str, str]) -> None:
        """Override more settings, as an operator does while the broker runs."""
        self.overrides |= overrides
        self.log.set_settings(topic_settings({}, self.overrides))

    def stop(self) -> None:
        """Stop cleanly."""
        self.log.close()
        self._let_go()

    def start_clean(self) -> None:
        """Start again after `stop`."""
        self.log = self._open(
            clean=True,
            recovery_point=self.log.log_end_offset,
            log_start_offset=self.log.log_start_offset,
        )

    def kill(self) -> None:
        """End as `kill -9` ends a broker: what was written stays, nothing else is done."""
        self._let_go()

    def start_unclean(self, *, checkpointed: bool = True) -> None:
        """Start again after `kill`, with the last checkpoints or with none."""
        self.log = self._open(
            clean=False,
            recovery_point=self.log.recovery_point if checkpointed else 0,
            log_start_offset=self.log.log_start_offset if checkpointed else 0,
        )

    def _let_go(self) -> None:
        self._gaps = self.log.gaps
        for segment in self.log.segments:
            segment.release()
        self.open_files.close()

    def segment_files(self) -> dict[str, bytes]:
        """Content of the segments' files by name."""
        return {
            path.name: path.read_bytes()
            for path in sorted(self.path.iterdir())
            if path.suffix in (".log", ".index", ".timeindex")
        }

    def all_files(self) -> dict[str, bytes]:
        """Content of every file by name."""
        return {path.name: path.read_bytes() for path in sorted(self.path.iterdir())}

    def date_files(self) -> None:
        """Let the log files' times follow the clock that the log is run with."""
        at_ns = self.clock.now_ms() * 1_000_000
        for segment in self.log.segments[-2:]:
            os.utime(segment.log_path, ns=(at_ns, at_ns))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder, in memory where the system has such a place: there a sync costs nothing."""
    where = _MEMORY_FILE_SYSTEM if os.access(_MEMORY_FILE_SYSTEM, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        path = Path(name) / f"{TOPIC}-0"
        path.mkdir()
        yield path


@contextmanager
def log_folder(overrides: Mapping[str, str] | None = None) -> Iterator[LogFolder]:
    """A new, empty log; its files are gone afterwards."""
    with scratch_folder() as path:
        folder = LogFolder(path, overrides)
        try:
            yield folder
        finally:
            folder.kill()
