"""Windows in logs of many segments."""

import pytest

from horolog.storage.read import windows
from horolog.storage.read.windows import ReadWindow
from horolog.storage.segment.segment import Segment
from horolog.testing.logs import LogFolder, timed_set

FIRST_MS = 1_479_144_272_509
SEGMENTS = 300


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of the segments that are looked at one by one."""
    found: list[int] = []
    may_hold = windows.may_hold

    def noted(segment: Segment, window: ReadWindow) -> bool:
        found.append(segment.base_offset)
        return may_hold(segment, window)

    monkeypatch.setattr(windows, "may_hold", noted)
    return found


def filled(folder: LogFolder) -> None:
    """A message each 10 ms, one in a segment."""
    folder.open(retention_ms=-1, segment_bytes=50)
    for number in range(SEGMENTS):
        folder.log.appender.append(timed_set(FIRST_MS + 10 * number))
    assert folder.log.segment_count == SEGMENTS


def test_segments_before_and_behind_a_window_are_passed_over_together(
    folder: LogFolder, looks: list[int]
) -> None:
    filled(folder)
    window = ReadWindow.between(FIRST_MS + 1000, FIRST_MS + 1010)
    place = windows.find_position(folder.log, 0, window, folder.log.high_watermark)
    assert (place.offset, place.end_offset) == (100, 101)
    assert place.skipped_bytes == sum(one.size_bytes for one in folder.log.segments[:100])
    assert looks == [100]
    looks.clear()
    place = windows.find_position(folder.log, 101, window, folder.log.high_watermark)
    # What is appended last is not in a time map yet.
    assert (place.offset, place.end_offset) == (SEGMENTS - 1, SEGMENTS)
    assert place.skipped_bytes == sum(one.size_bytes for one in folder.log.segments[101:-1])
    assert looks == [SEGMENTS - 1]


def test_what_is_known_together_is_known_again_when_segments_change(
    folder: LogFolder, looks: list[int]
) -> None:
    filled(folder)
    log = folder.log
    window = ReadWindow.between(FIRST_MS, FIRST_MS + 10)
    assert windows.find_position(log, 1, window, log.high_watermark).offset == SEGMENTS - 1
    log.appender.append(timed_set(FIRST_MS + 5))
    log.appender.append(timed_set(FIRST_MS + 10 * SEGMENTS))
    place = windows.find_position(log, 1, window, log.high_watermark)
    assert (place.offset, place.end_offset) == (SEGMENTS, SEGMENTS + 1)
    log.truncate(SEGMENTS)
    assert windows.find_position(log, 1, window, log.high_watermark).offset == SEGMENTS
    log.appender.append(timed_set(FIRST_MS + 10 * SEGMENTS))
    log.appender.append(timed_set(FIRST_MS + 10 * SEGMENTS + 10))
    assert windows.find_position(log, 1, window, log.high_watermark).offset == SEGMENTS + 1
