"""What a log with many segments costs more than one with few: counted, not timed."""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from horolog.storage.read import reader
from horolog.testing.logs import LogFolder


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions `work` calls. The collector calls others, of what earlier tests
    have left."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
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
        reader.find_time(some.log, 1).run()
        some.open_files.close()
    few = calls_of(lambda: reader.find_time(folder.log, 2001).run())
    many = calls_of(lambda: reader.find_time(another_folder.log, 100_001).run())
    assert many <= few + 10  # the bisection takes some steps more


@pytest.mark.parametrize("segments", [1, 2, 63, 64, 65, 66, 128, 129, 200])
def test_each_of_many_segments_is_found_by_its_time(folder: LogFolder, segments: int) -> None:
    """Also where some are all earlier than the one before them."""
    folder.open(retention_ms=10**15, retention_bytes=10**12)
    times = [1000 * (number - 5 * (number % 7 == 3)) + 10_000 for number in range(segments)]
    for number, time_ms in enumerate(times):
        if number:
            folder.log.appender.roll()
        folder.append(time_ms)
    finds_each(folder, dict(enumerate(times)))
    folder.log.segment_list.drop_below(segments // 3, folder.log.settings, {})
    finds_each(folder, {offset: times[offset] for offset in range(segments // 3, segments)})


def finds_each(folder: LogFolder, times: dict[int, int]) -> None:
    """`times` are those of the messages by their offsets, of which each has a segment."""
    for target_ms in {time_ms + more for time_ms in times.values() for more in (-1, 0, 1)}:
        wanted = next((offset for offset, each in times.items() if each >= target_ms), None)
        segment, may_have = folder.log.segment_list.reaching(target_ms)
        assert may_have == (wanted is not None)
        assert wanted in (None, segment.base_offset)
        found = reader.find_time(folder.log, target_ms).run()
        assert (found and found.offset) == wanted
