"""The creation time of a segment whose first message has no time survives (decision 16)."""

from collections.abc import Callable

import pytest

from horolog.testing.logs import LogFolder, timed_set, untimed_set

NOW = 1_479_144_272_509


def mtime_ms(folder: LogFolder, base: int = 0) -> int:
    path = folder.path / f"{base:020d}.timeindex"
    return path.stat().st_mtime_ns // 1_000_000


def nothing(folder: LogFolder) -> None:
    pass


def clean(folder: LogFolder) -> None:
    folder.restart()


def unclean(folder: LogFolder) -> None:
    folder.kill_and_restart(checkpointed=False)


def clean_without_checksums(folder: LogFolder) -> None:
    folder.log.close()
    (folder.path / "index-checksums").unlink(missing_ok=True)
    folder.open()


def clean_with_damaged_index(folder: LogFolder) -> None:
    folder.log.close()
    (folder.path / "00000000000000000000.index").write_bytes(b"nonsense")
    folder.open()


def twice(folder: LogFolder) -> None:
    folder.restart()
    folder.clock.advance(5)
    folder.kill_and_restart()


AGAIN = [nothing, clean, unclean, clean_without_checksums, clean_with_damaged_index, twice]


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize(
    "sets",
    [
        pytest.param([], id="empty"),
        pytest.param([untimed_set()], id="v0"),
        pytest.param([timed_set(-1)], id="v1-without-time"),
        pytest.param([untimed_set(), timed_set(5), timed_set(7), timed_set(9)], id="times-behind"),
        pytest.param([untimed_set() + timed_set(5) + timed_set(9)], id="times-in-the-same-set"),
    ],
)
def test_creation_time_is_kept(
    folder: LogFolder, sets: list[bytearray], again: Callable[[LogFolder], None]
) -> None:
    folder.open(index_interval_bytes=0, segment_ms=100)
    for data in sets:
        folder.clock.advance(10)
        folder.log.appender.append(data)
    folder.clock.advance(20)
    again(folder)
    assert folder.log.segments[-1].created_ms == NOW
    assert mtime_ms(folder) == NOW
    if sets:
        folder.clock.step(NOW + 100 - folder.clock.now_ms())
        assert folder.log.appender.append(untimed_set()).rolled is None
        folder.clock.advance(1)
        assert folder.log.appender.append(untimed_set()).rolled == "time"
        assert folder.log.segments[-1].created_ms == NOW + 101


def test_an_empty_segment_counts_from_its_creation_too(folder: LogFolder) -> None:
    folder.open(segment_ms=100)
    folder.append(NOW)
    folder.log.appender.roll()
    folder.clock.advance(90)
    folder.restart()
    folder.log.appender.append(untimed_set())
    folder.clock.advance(11)
    assert folder.log.appender.append(untimed_set()).rolled == "time"


def test_a_lost_time_index_starts_the_clock_anew(folder: LogFolder) -> None:
    folder.open()
    folder.log.appender.append(untimed_set())
    folder.log.close()
    (folder.path / "00000000000000000000.timeindex").unlink(missing_ok=True)
    folder.clock.advance(50)
    folder.open()
    assert folder.log.segments[-1].created_ms == NOW + 50
    assert mtime_ms(folder) == NOW + 50


def test_a_closed_segment_keeps_its_creation_time_through_a_rebuild(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=0)
    folder.log.appender.append(untimed_set())
    folder.append(5, 7)
    folder.log.appender.roll()
    folder.log.close()
    (folder.path / "index-checksums").unlink(missing_ok=True)
    folder.clock.advance(50)
    folder.open().prepare()
    assert folder.log.segments[0].created_ms == NOW
    assert mtime_ms(folder) == NOW


def test_truncation_to_nothing_starts_the_clock_anew_r8(folder: LogFolder) -> None:
    log = folder.open(segment_ms=100)
    folder.append(NOW)
    folder.clock.advance(50)
    log.truncate(0)
    assert log.segments[-1].created_ms == NOW + 50
    assert mtime_ms(folder) == NOW + 50
    log.appender.append(untimed_set())
    folder.clock.advance(100)
    assert log.appender.append(untimed_set()).rolled is None
    folder.clock.advance(1)
    assert log.appender.append(untimed_set()).rolled == "time"


def test_truncation_that_leaves_something_keeps_it(folder: LogFolder) -> None:
    log = folder.open(index_interval_bytes=0)
    log.appender.append(untimed_set())
    folder.append(5, 7, 9)
    folder.clock.advance(50)
    log.truncate(2)
    assert log.segments[-1].created_ms == NOW
    assert mtime_ms(folder) == NOW


def test_truncation_takes_the_first_time_away(folder: LogFolder) -> None:
    log = folder.open(segment_ms=100)
    folder.append(5)
    log.truncate(0)
    log.appender.append(untimed_set())
    assert log.appender.append(timed_set(106)).rolled is None
    assert log.segments[-1].first_timestamp_ms == -1
