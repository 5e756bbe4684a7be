"""Segments that hold messages of both formats: MG-9, R-16."""

import pytest

from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, timed_set, untimed_set

NOW = 1_479_144_272_509
DAY_MS = 86_400_000


@pytest.fixture
def mixed(folder: LogFolder) -> LogFolder:
    """Ten messages of v0, then five of v1, in one segment, as a migration leaves them."""
    folder.open(message_format_version="0.9.0", index_interval_bytes=39)
    for _ in range(10):
        folder.log.appender.append(timed_set(NOW))
    folder.set(message_format_version="0.10.0")
    folder.append(NOW - 5, NOW + 5, NOW - 1, NOW + 7, NOW)
    return folder


def test_only_v1_messages_are_in_the_time_index(mixed: LogFolder) -> None:
    assert mixed.log.segments[0].largest_timestamp_ms == NOW + 7
    assert [time for time, _ in mixed.time_entries()] == [NOW - 5, NOW + 5, NOW + 7]
    assert all(offset > 10 for _, offset in mixed.time_entries())
    assert mixed.found(0, NOW, NOW + 6, NOW + 8) == [
        (NOW - 5, 10),
        (NOW + 5, 11),
        (NOW + 7, 13),
        None,
    ]


def test_a_restart_knows_the_same(mixed: LogFolder) -> None:
    before = mixed.found(0, NOW, NOW + 6, NOW + 8)
    mixed.restart()
    assert mixed.found(0, NOW, NOW + 6, NOW + 8) == before
    mixed.kill_and_restart(checkpointed=False)
    assert mixed.found(0, NOW, NOW + 6, NOW + 8) == before
    assert [reader.read(mixed.log, offset, 1 << 20).magic for offset in (0, 9, 10)] == [0, 0, 1]


@pytest.mark.parametrize(("age_ms", "kept"), [(DAY_MS, True), (DAY_MS + 1, False)])
def test_retention_goes_by_the_v1_messages_rt18(mixed: LogFolder, age_ms: int, kept: bool) -> None:
    """Whatever time the file has."""
    mixed.set(retention_ms=DAY_MS)
    mixed.log.appender.roll()
    now_ms = NOW + 7 + age_ms
    assert (mixed.log.expiry.plan_retention(now_ms).delete_count == 0) is kept


def test_a_segment_rolls_by_its_first_message_r16(folder: LogFolder) -> None:
    """First message v0: by the clock, until the next roll; then by the times of messages."""
    folder.open(message_format_version="0.9.0", segment_ms=1000)
    folder.append(NOW)
    folder.set(message_format_version="0.10.0")
    folder.append(NOW + DAY_MS)
    assert folder.bases() == [0], "its time does not count, the clock does"
    folder.clock.advance(1001)
    folder.append(NOW)
    assert folder.bases() == [0, 2]
    folder.clock.advance(DAY_MS)
    folder.append(NOW + 1000)
    assert folder.bases() == [0, 2]
    folder.append(NOW + 1001)
    assert folder.bases() == [0, 2, 4]


def test_v0_sets_never_roll_a_segment_that_began_with_a_time_r9(folder: LogFolder) -> None:
    folder.open(message_format_version="0.10.0", segment_ms=1000)
    folder.append(NOW)
    folder.set(message_format_version="0.9.0")
    folder.clock.advance(DAY_MS)
    folder.append(NOW + DAY_MS)
    folder.log.appender.append(untimed_set(3))
    assert folder.bases() == [0]


def test_a_cut_between_the_formats(mixed: LogFolder) -> None:
    mixed.log.truncate(12)
    assert mixed.log.segments[0].largest_timestamp_ms == NOW + 5
    mixed.log.truncate(10)
    assert mixed.log.segments[0].largest_timestamp_ms == -1
    assert mixed.time_entries() == []
    assert mixed.append(NOW) == [10]
    assert mixed.found(0) == [(NOW, 10)]
