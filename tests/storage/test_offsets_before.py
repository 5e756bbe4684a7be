"""ListOffsets v0: a falling list of offsets to start from (rules L-1*, decision 8)."""

import os

import pytest

from horolog.protocol.records.layout import Codec
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.storage.read.search import EARLIEST, LATEST
from horolog.testing.logs import LogFolder, timed_set, untimed_set

NOW = 1_479_144_272_509


def offsets(log: Log, target_ms: int, count_max: int = 10) -> list[int]:
    return reader.offsets_before(log, target_ms, count_max).run()


@pytest.fixture
def twenty(folder: LogFolder) -> Log:
    """20 messages with times 1000, 1010, ..., two in a segment."""
    log = folder.open(segment_bytes=78)
    folder.append(*range(1000, 1200, 10))
    return log


@pytest.mark.parametrize(
    ("target", "count_max", "expected"),
    [
        pytest.param(LATEST, 15, [20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0], id="tc85-L-14-latest"),
        pytest.param(LATEST, 3, [20, 18, 16], id="L-12-as-many-as-asked"),
        pytest.param(LATEST, 1, [20], id="L-12-one"),
        pytest.param(LATEST, 0, [], id="L-12-none"),
        pytest.param(EARLIEST, 10, [0], id="L-14-earliest"),
        pytest.param(EARLIEST, 0, [], id="L-12-none-of-the-earliest"),
        pytest.param(
            NOW + 30_000, 15, [20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0], id="L-14-in-the-future"
        ),
        pytest.param(1050, 10, [5, 4, 2, 0], id="decision-8-inside-a-segment"),
        pytest.param(1041, 10, [5, 4, 2, 0], id="decision-8-between-two-messages"),
        pytest.param(1040, 10, [4, 2, 0], id="decision-8-at-a-segment-s-beginning"),
        pytest.param(1000, 10, [0], id="decision-8-the-first-message"),
        pytest.param(0, 10, [0], id="decision-8-before-all"),
        pytest.param(1191, 2, [20, 18], id="decision-8-after-all"),
        pytest.param(1050, 2, [5, 4], id="decision-8-as-many-as-asked"),
    ],
)
def test_timed_segments(twenty: Log, target: int, count_max: int, expected: list[int]) -> None:
    assert offsets(twenty, target, count_max) == expected


@pytest.mark.parametrize("target", [LATEST, EARLIEST])
def test_an_empty_log_l14(folder: LogFolder, target: int) -> None:
    assert offsets(folder.open(), target) == [0]


def test_an_empty_log_by_its_file_s_time(folder: LogFolder) -> None:
    log = folder.open()
    date(log, 0, 5000)
    assert offsets(log, 5000) == [0]
    assert offsets(log, 4999) == []


def date(log: Log, number: int, at_ms: int) -> None:
    os.utime(log.segments[number].log_path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


@pytest.fixture
def untimed(folder: LogFolder) -> Log:
    """Segments 0-3, 4-7 and 8, without times, of files changed at 100, 200 and 300."""
    log = folder.open()
    for number, count in enumerate((4, 4, 1)):
        if number:
            log.appender.roll()
        log.appender.append(untimed_set(count))
    for number in range(3):
        date(log, number, 100 * (number + 1))
    return log


@pytest.mark.parametrize(
    ("target", "count_max", "expected"),
    [
        pytest.param(250, 10, [4, 0], id="tc86-L-11"),
        pytest.param(200, 10, [4, 0], id="L-11-equal"),
        pytest.param(199, 10, [0], id="L-11-just-before"),
        pytest.param(99, 10, [], id="tc87-L-11-before-all"),
        pytest.param(300, 10, [8, 4, 0], id="L-11-newest"),
        pytest.param(NOW, 10, [9, 8, 4, 0], id="L-10-the-log-end-counts-as-now"),
        pytest.param(NOW - 1, 10, [8, 4, 0], id="L-10-just-before-now"),
        pytest.param(250, 1, [4], id="L-12-one"),
        pytest.param(LATEST, 10, [9, 8, 4, 0], id="L-15-latest"),
    ],
)
def test_without_times_files_count(
    untimed: Log, target: int, count_max: int, expected: list[int]
) -> None:
    assert offsets(untimed, target, count_max) == expected


def test_file_times_that_fall_l11(untimed: Log) -> None:
    date(untimed, 2, 150)
    assert offsets(untimed, 160) == [8, 4, 0]


@pytest.mark.parametrize(
    ("high_watermark", "target", "expected"),
    [
        pytest.param(5, LATEST, [5, 4, 0], id="tc88-L-13"),
        pytest.param(8, LATEST, [8, 4, 0], id="L-13-equal"),
        pytest.param(0, LATEST, [0], id="L-13-nothing-visible"),
        pytest.param(5, NOW, [5, 4, 0], id="L-13-by-file-time"),
        pytest.param(5, 300, [5, 4, 0], id="L-13-base-above"),
        pytest.param(5, EARLIEST, [0], id="L-26-earliest-is-exempt"),
    ],
)
def test_the_high_watermark_stands_for_what_is_above(
    untimed: Log, high_watermark: int, target: int, expected: list[int]
) -> None:
    untimed.hold_high_watermark(high_watermark)
    assert offsets(untimed, target) == expected


def test_a_hit_above_the_high_watermark_is_none(twenty: Log) -> None:
    twenty.hold_high_watermark(5)
    assert offsets(twenty, 1040) == [4, 2, 0]
    assert offsets(twenty, 1050) == [5, 4, 2, 0]
    assert offsets(twenty, 1100) == [5, 4, 2, 0]


@pytest.mark.parametrize(
    ("file_ms", "target", "expected"),
    [
        pytest.param(5000, 5500, [5, 4, 0], id="old-file-before-timed-messages"),
        pytest.param(9000, 5500, [0], id="young-file-may-hold-the-target"),
        pytest.param(5500, 5500, [5, 4, 0], id="file-as-old-as-the-target"),
    ],
)
def test_segments_of_both_kinds_decision_8(
    folder: LogFolder, file_ms: int, target: int, expected: list[int]
) -> None:
    log = folder.open()
    log.appender.append(untimed_set(4))
    log.appender.roll()
    folder.append(5000, 6000)
    date(log, 0, file_ms)
    assert offsets(log, target) == expected


def test_every_message_before_the_first_offset_is_older(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=39 * 3)
    times = [50, 20, 90, 10, 70, 30, 60, 100, 40, 80]
    folder.append(*times)
    firsts = [offsets(log, target)[0] for target in (20, 60, 95, 100, 101)]
    assert firsts == [0, 2, 7, 7, 10]


def test_the_log_start_is_the_lowest_offset(folder: LogFolder) -> None:
    folder.open(segment_bytes=78)
    folder.append(*range(1000, 1080, 10))
    folder.log.close()
    log = folder.open(log_start_offset=3)
    log.prepare()
    assert offsets(log, LATEST) == [8, 6, 4, 3]
    assert offsets(log, EARLIEST) == [3]
    assert offsets(log, 1060) == [6, 4, 3]
    assert offsets(log, 0) == [3]


def test_inside_a_wrapper(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(timed_set(100, 300, 200, codec=Codec.GZIP))
    assert offsets(log, 150) == [1, 0]


def test_times_below_the_log_start_do_not_count(folder: LogFolder) -> None:
    """Where no message from the log start on has a time, the file's does, as in a copy that begins
    there."""
    log = folder.open()
    folder.append(50)
    log.appender.append(untimed_set(2))
    log.appender.roll()
    os.utime(log.segments[0].log_path, ns=(100_000_000, 100_000_000))
    assert offsets(log, 99) == [3, 0]
    log.flusher.flush()
    log.expiry.trim(1)
    assert offsets(log, 99) == []
    assert offsets(log, 100) == [1]
