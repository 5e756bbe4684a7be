"""Measures the cost of append times: `python -m horolog.bench.append_times [DIR]`.

Prints the processor time of one entry beside that of the whole append which writes it, the best of
many tries. Prints how long a sync takes for a log alone, and for a log and then its append times.
Both files are in DIR (by default in the temporary folder), and the two syncs alternate.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean, median

from ..clock import SystemClock
from ..config.topic import topic_settings
from ..protocol.records.messages.sets import NewRecord, build_set
from ..storage.directory.deletion import DeletionQueue
from ..storage.events import ignore_events
from ..storage.files import SystemFiles
from ..storage.index.append_times import AppendTimes
from ..storage.log.log import Log
from ..storage.log.log_opening import open_log
from ..storage.open_files import OpenFiles
from ..storage.seams import ProducerBudget, Seams

SETS = ((1, 100), (118, 100), (472, 100), (62, 1000))
"""(messages of a set, bytes of a value): one message, 16 KiB, 64 KiB, and 64 KiB of larger
messages."""

TRIES = 40
SYNCS = 300


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(dir=next(iter(arguments), None)) as name:
        _processor_time(Path(name))
        _sync_time(Path(name))
    return 0


def _processor_time(directory: Path) -> None:
    clock, files = SystemClock(), SystemFiles()
    open_files = OpenFiles(files, 16)
    deletions = DeletionQueue(files, clock, ignore_events)
    seams = Seams(
        clock, files, ignore_events, deletions, open_files, Random(1), ProducerBudget(clock)
    )
    times = AppendTimes(directory / "alone", 0, seams)

    def add() -> None:
        end = times.end_offset
        times.add(end, end + 1, 1_479_144_272_509)

    entry = _best(add, 1000)
    print(f"an entry: {entry:.1f} us")
    settings = topic_settings({}, {"retention.ms": "-1"})
    for count, value_bytes in SETS:
        path = directory / f"{count}-{value_bytes}"
        path.mkdir()
        log = open_log(path, "t", 0, settings, seams, clean=True)
        data = build_set([NewRecord(bytes(value_bytes))] * count)
        append = _best(partial(_append, log, data), max(500 // count, 5))
        share = entry / append
        print(f"an append of {count} x {value_bytes} B: {append:.1f} us, {share:.1%} for the entry")
        log.close()
    open_files.close()


def _append(log: Log, data: bytearray) -> None:
    log.appender.append(bytearray(data))


def _best(work: Callable[[], object], repeated: int) -> float:
    """Microseconds of processor time."""
    best = sys.maxsize
    for _ in range(TRIES):
        began = time.process_time_ns()
        for _ in range(repeated):
            work()
        best = min(best, time.process_time_ns() - began)
    return best / repeated / 1000


def _sync_time(directory: Path) -> None:
    files = SystemFiles()
    alone = files.open(directory / "alone.log", create=True)
    log = files.open(directory / "both.log", create=True)
    times = files.open(directory / "both.appendtime", create=True)
    data = bytes(16 << 10)
    seconds: dict[str, list[float]] = {"log alone": [], "log and append times": []}
    for number in range(SYNCS):
        alone.pwrite(data, number * len(data))
        began = time.perf_counter()
        alone.sync()
        seconds["log alone"].append(time.perf_counter() - began)
        log.pwrite(data, number * len(data))
        times.pwrite(data[:12], number * 12)
        began = time.perf_counter()
        log.sync()
        times.sync()
        seconds["log and append times"].append(time.perf_counter() - began)
    for what, taken in seconds.items():
        print(f"a sync of {what}: {median(taken) * 1000:.2f} ms, mean {fmean(taken) * 1000:.2f} ms")
    for file in (alone, log, times):
        file.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
