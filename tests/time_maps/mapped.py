"""Logs whose time maps have whole blocks, and what must be true of windows over them."""

from collections.abc import Iterable

from horolog.storage.log.log import Log
from horolog.testing.logs import LogFolder, timed_set
from horolog.tests.properties.window_reading import count_window, read_window

START_MS = 1_479_144_000_000
SEGMENT_BYTES = 300_000
MESSAGES = 20
"""Of one set, which takes some 20 KiB: four are a block, fourteen a segment."""

FETCHED_BYTES = 6_500
"""What a reader asks for at a time: six messages, so that a window takes many requests."""

SET_MS = 500


def set_times(number: int, start_ms: int = START_MS) -> list[int]:
    """The times of a set, out of order in it; every seventh set is an hour early."""
    first_ms = start_ms + number * SET_MS - (3_600_000 if number % 7 == 6 else 0)
    return [first_ms + 13 * message % 20 for message in range(MESSAGES)]


def append_sets(log: Log, numbers: Iterable[int], *, start_ms: int = START_MS) -> None:
    for number in numbers:
        log.appender.append(timed_set(*set_times(number, start_ms), value=bytes(1_000)))


def filled(folder: LogFolder, sets: int = 34) -> Log:
    """By default two segments that are closed, and one of a block and more."""
    log = folder.open(segment_bytes=SEGMENT_BYTES, retention_ms=-1)
    append_sets(log, range(sets))
    return log


def assert_windows_exact(log: Log, times: list[tuple[int, int]]) -> None:
    """Windows over a log whose messages have these offsets and times."""
    log.prepare()
    known = sorted({time_ms for _, time_ms in times if time_ms >= 0})
    assert known
    length_ms = max((known[-1] - known[0]) // 50, 1)
    picked = known[:: max(len(known) // 12, 1)]
    bounds = [(at_ms, at_ms + length_ms) for at_ms in picked]
    bounds += [(known[0], known[-1] + 1), (known[-1] + 1, -1), (known[-1], known[-1])]
    for from_ms, until_ms in bounds:
        last_ms = until_ms if until_ms >= 0 else 2**63
        expected = [offset for offset, time_ms in times if from_ms <= time_ms < last_ms]
        found_offsets = read_window(log, from_ms, until_ms, max_bytes=FETCHED_BYTES)
        assert found_offsets == expected, (from_ms, until_ms)
        if until_ms > from_ms:
            (count,), untimed, *found = count_window(log, from_ms, until_ms, until_ms - from_ms, 1)
            inside = [time_ms for _, time_ms in times if from_ms <= time_ms < last_ms]
            assert (count, found) == (len(inside), [min(inside), max(inside)])
            assert untimed == sum(time_ms < 0 for _, time_ms in times)
