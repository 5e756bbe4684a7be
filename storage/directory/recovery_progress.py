"""How far the recovery of all logs is: reported while it lasts, and summed up at its end."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ...clock import Clock
from ..entries.segment_scan import Progress
from ..events import Observer
from ..files import Files
from ..names import parse_segment_file

REPORT_SECONDS: Final = 5.0
"""Time between two reports; a recovery that takes less is reported at its end only."""

Partition = tuple[str, int]


def bytes_to_scan(files: Files, path: Path, recovery_point: int) -> int:
    """How much of the log in folder `path` recovery has to read; 0 when that cannot be seen."""
    try:
        parsed = [parse_segment_file(name) for name in files.names(path)]
        bases = sorted(
            name.base_offset for name in parsed if name and name.kind == "log" and not name.suffix
        )
        below = sum(base <= recovery_point for base in bases)
        return sum(files.size(path / f"{base:020d}.log") for base in bases[max(below - 1, 0) :])
    except OSError:
        return 0  # Opening the log meets the same error and tells it.


class RecoveryProgress:
    """Counts what has been read and recovered."""

    def __init__(self, clock: Clock, observe: Observer, sizes: Mapping[Partition, int]) -> None:
        """`sizes` are the bytes to be read of each log."""
        self._clock = clock
        self._observe = observe
        self._sizes = sizes
        self._bytes = sum(sizes.values())
        self._logs_done = 0
        self._bytes_done = 0
        self._began = self._reported = clock.monotonic()
        observe("recovery_started", logs=len(sizes), bytes=self._bytes)

    def of_log(self, key: Partition) -> Progress:
        """What to tell the bytes to that are read of one log."""
        log_bytes_done = 0

        def read(more: int) -> None:
            nonlocal log_bytes_done
            log_bytes_done += more
            self._bytes_done += more
            now = self._clock.monotonic()
            if now - self._reported >= REPORT_SECONDS:
                self._reported = now
                self._report(key, log_bytes_done)

        return read

    def _report(self, key: Partition, log_bytes_done: int) -> None:
        self._observe(
            "recovery_progress",
            topic=key[0],
            partition=key[1],
            log_bytes_done=log_bytes_done,
            log_bytes=self._sizes[key],
            logs_done=self._logs_done,
            logs=len(self._sizes),
            bytes_done=self._bytes_done,
            bytes=self._bytes,
        )

    def log_done(self) -> None:
        """Count a log that is recovered, or cannot be."""
        self._logs_done += 1

    def finish(self) -> None:
        """Tell that recovery is over; logs that are left are recovered when they are used."""
        self._observe(
            "recovery_finished",
            logs=self._logs_done,
            logs_left=len(self._sizes) - self._logs_done,
            bytes=self._bytes_done,
            ms=round((self._clock.monotonic() - self._began) * 1000),
        )
