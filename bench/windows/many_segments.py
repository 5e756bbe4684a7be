"""How long it takes to find the one segment of 10,000 that can have a message of a window."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from ...storage.read import windows
from ...storage.read.windows import ReadWindow
from ...testing.logs import LogFolder, timed_set
from ..raw_client import RefusedRequest

SEGMENTS: Final = 10_000

_CHANGES: Final = 20
_SPAN_MS: Final = 10
_START_MS: Final = 1_479_144_272_509


class FirstLooks(NamedTuple):
    """Seconds."""

    at_first: float
    """The very first one: the ranges of all segments are put in order for it."""
    after_roll: float
    """The next ones, each after a segment was added: the median."""
    after_removal: float
    """And each after one was deleted."""


def first_looks(segments: int = SEGMENTS) -> FirstLooks:
    """Look for a window of one message in the middle of a log with so many closed segments."""
    with TemporaryDirectory(prefix="horolog-bench-") as path:
        folder = LogFolder(Path(path) / "t-0")
        log = folder.open(retention_ms=-1, segment_bytes=50)
        for number in range(segments):
            log.appender.append(timed_set(_START_MS + _SPAN_MS * number))
        wanted = segments // 2
        from_ms = _START_MS + _SPAN_MS * wanted
        window = ReadWindow.between(from_ms, from_ms + _SPAN_MS)

        def look() -> float:
            began = time.perf_counter()
            place = windows.find_position(log, log.log_start_offset, window, log.high_watermark)
            seconds = time.perf_counter() - began
            if place.offset != wanted:
                raise RefusedRequest(f"the window is said to begin at {place.offset}, not {wanted}")
            return seconds

        def roll() -> None:
            log.appender.append(timed_set(_START_MS + _SPAN_MS * (log.log_end_offset + 1)))

        def remove() -> None:
            log.expiry.trim(log.segments[1].base_offset)
            log.expiry.drop_expired()

        def after(change: Callable[[], None]) -> float:
            seconds = []
            for _ in range(_CHANGES):
                change()
                seconds.append(look())
            return median(seconds)

        found = FirstLooks(look(), after(roll), after(remove))
        folder.let_go()
    return found
