"""What a log with many segments costs more than one with few: counted, not timed."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from horolog.testing.logs import LogFolder


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions `work` calls."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def with_segments(folder: LogFolder, count: int) -> None:
    folder.open(retention_ms=10**15, retention_bytes=10**12)
    for number in range(count):
        folder.append(1000 * number + 1)
        folder.log.appender.roll()
    folder.log.flusher.flush()


def pass_over_a_new_segment(folder: LogFolder) -> None:
    """What follows a roll: the sync of the closed segment, and a look at retention."""
    folder.append(10**9)
    folder.log.appender.roll()
    folder.log.flusher.flush()
    folder.log.expiry.maintain(2 * 10**9)


def test_a_roll_costs_as_much_with_many_segments(folder: LogFolder, tmp_path: Path) -> None:
    another_folder = LogFolder(tmp_path / "t-0")
    with_segments(folder, 5)
    with_segments(another_folder, 200)
    few = calls_of(lambda: pass_over_a_new_segment(folder))
    many = calls_of(lambda: pass_over_a_new_segment(another_folder))
    # A call or two for each segment may remain: its checksum line, its size.
    assert many - few < 3 * 195


def test_a_search_by_time_costs_as_much_with_many_segments(
    folder: LogFolder, tmp_path: Path
) -> None:
    """decision 9."""
    another_folder = LogFolder(tmp_path / "t-0")
    with_segments(folder, 5)
    with_segments(another_folder, 200)
    for some in (folder, another_folder):
        some.log.reader.find_time(1).run()
        some.open_files.close()
    few = calls_of(lambda: folder.log.reader.find_time(2001).run())
    many = calls_of(lambda: another_folder.log.reader.find_time(100_001).run())
    assert many <= few + 10  # the bisection takes some steps more
