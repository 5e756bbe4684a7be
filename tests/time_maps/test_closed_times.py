"""What is known of the closed segments' times together, beside what it is when built anew."""

import random
from pathlib import Path

import pytest

from horolog.storage.log.closed_times import ClosedTimes, smallest_possible_ms
from horolog.storage.log.log import Log
from horolog.storage.segment.segment import Segment
from horolog.testing.logs import LogFolder, timed_set, untimed_set
from horolog.tests.properties.window_reading import make_map

FIRST_MS = 1_479_144_272_509
SPAN_MS = 10_000
STEPS = 120


def change(folder: LogFolder, rng: random.Random) -> None:
    """A roll, a removal from the front or from the end, or a map that is made."""
    log = folder.log
    what = rng.choice(["append", "append", "append", "trim", "truncate", "reopen", "map", "forget"])
    if what == "append":
        for _ in range(rng.randrange(1, 12)):
            at_ms = FIRST_MS + rng.randrange(SPAN_MS)
            log.appender.append(timed_set(at_ms) if rng.random() < 0.9 else untimed_set())
    elif what == "trim" and log.segment_count > 1:
        offset = rng.choice(log.segments[1 : 2 + log.segment_count // 3]).base_offset
        log.segment_list.drop_below(offset, log.settings, {})
        log.log_start_offset = log.segments[0].base_offset
    elif what == "truncate":
        log.truncate(rng.randrange(log.log_start_offset, log.log_end_offset + 1))
    elif what == "reopen" and log.segment_count > 1:
        log.appender.roll()
        if not log.segments[-1].size_bytes:
            log.segment_list.reopen(log.settings)
            log.log_end_offset = log.segments[-1].next_offset
    elif what == "map":
        make_map(log, rng.choice(log.segments))
    elif what == "forget" and rng.random() < 0.3:
        log.truncate_fully(log.log_end_offset)


def assert_as_anew(log: Log, rng: random.Random) -> None:
    known, anew = log.segment_list.closed_times, ClosedTimes(log.segments[:-1])
    closed = log.segments[:-1]
    assert known.count == anew.count == len(closed)
    for _ in range(6):
        number = rng.randrange(len(closed) + 1)
        first_ms = FIRST_MS + rng.randrange(-SPAN_MS // 10, SPAN_MS)
        last_ms = first_ms + rng.choice([0, 10, SPAN_MS // 5])
        following = known.next_for(number, first_ms, last_ms)
        assert following == anew.next_for(number, first_ms, last_ms)
        holding = [
            other
            for other, segment in enumerate(closed)
            if other >= number
            and segment.largest_possible_ms >= first_ms
            and smallest_possible_ms(segment) <= last_ms
        ]
        assert following == (holding[0] if holding else len(closed))
        size_bytes = sum(segment.size_bytes for segment in closed[number:following])
        assert known.bytes_between(number, following) == size_bytes


@pytest.mark.parametrize("seed", range(8))
def test_it_is_as_built_anew_whatever_changed(folder: LogFolder, seed: int) -> None:
    rng = random.Random(seed)
    log = folder.open(retention_ms=-1, segment_bytes=rng.choice([50, 150]))
    log.appender.append(timed_set(FIRST_MS))
    for _ in range(STEPS):
        change(folder, rng)
        if rng.random() < 0.7:
            assert_as_anew(log, rng)
    assert_as_anew(log, rng)


def test_a_change_looks_at_no_segment_but_its_own(
    folder: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a roll nor a removal has what is known of the others built anew."""
    log = folder.open(retention_ms=-1, segment_bytes=50)
    for number in range(200):
        log.appender.append(timed_set(FIRST_MS + number))
    assert log.segment_list.closed_times.count == 199
    looked: list[int] = []

    def noted(segment: Segment) -> int:
        looked.append(segment.base_offset)
        return segment.largest[0]

    monkeypatch.setattr(Segment, "largest_possible_ms", property(noted))
    log.appender.append(timed_set(FIRST_MS + 200))
    assert log.segment_list.closed_times.count == 200
    assert set(looked) == {199}
    log.segment_list.drop_below(20, log.settings, {})
    log.segment_list.truncate(190, log.settings)
    assert log.segment_list.closed_times.count == 170
    assert set(looked) == {199}


def test_a_search_that_would_take_long_ends_in_front(tmp_path: Path) -> None:
    """Old and new messages alternate, and the window is between them: no segment is passed over
    that may hold something, and steps are few."""
    folder = LogFolder(tmp_path / "t-0")
    log = folder.open(retention_ms=-1, segment_bytes=50)
    for number in range(601):
        log.appender.append(timed_set(FIRST_MS + (number % 2) * SPAN_MS))
    log.appender.append(timed_set(FIRST_MS + 5))
    log.appender.append(timed_set(FIRST_MS))
    known = log.segment_list.closed_times
    number, looks = 0, 0
    while known.next_for(number, FIRST_MS + 1, FIRST_MS + SPAN_MS - 1) < 601:
        following = known.next_for(number, FIRST_MS + 1, FIRST_MS + SPAN_MS - 1)
        number, looks = following + 1, looks + 1
    assert known.next_for(number, FIRST_MS + 1, FIRST_MS + SPAN_MS - 1) == 601
    assert 1 < looks < 20
    folder.let_go()
