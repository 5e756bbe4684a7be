"""LogAppendTime never falls within a partition, whatever the clock does (decision 13)."""

from collections.abc import Callable

import pytest

from horolog.protocol.records.layout import Codec
from horolog.testing.logs import LogFolder, timed_set, untimed_set
from horolog.tests.followers.appending import append_copy

NOW = 1_479_144_272_509
DAY_MS = 86_400_000


def stamp(folder: LogFolder) -> int:
    return folder.log.appender.append(timed_set(1)).append_time_ms


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        pytest.param(timed_set(1), 1, id="plain"),
        pytest.param(timed_set(1, 2), 2, id="two"),
        pytest.param(timed_set(1, 2, codec=Codec.GZIP), 2, id="gzip"),
        pytest.param(untimed_set(2), 2, id="v0"),
        pytest.param(untimed_set(2, codec=Codec.GZIP), 2, id="v0-gzip"),
    ],
)
def test_a_clock_that_steps_back_is_not_followed(
    folder: LogFolder, sent: bytearray, count: int
) -> None:
    log = folder.open(message_timestamp_type="LogAppendTime")
    assert stamp(folder) == NOW
    folder.clock.step(-10_000)
    assert log.appender.append(sent).append_time_ms == NOW
    assert folder.times() == [(offset, NOW) for offset in range(count + 1)]
    folder.clock.step(10_001)
    assert stamp(folder) == NOW + 1


def test_a_step_back_is_told(folder: LogFolder) -> None:
    folder.open(message_timestamp_type="LogAppendTime")
    stamp(folder)
    stamp(folder)
    assert folder.events.named("clock_behind_log") == []
    folder.clock.step(-10_000)
    stamp(folder)
    assert folder.events.named("clock_behind_log") == [
        {"topic": "t", "partition": 0, "now_ms": NOW - 10_000, "last_stamp_ms": NOW}
    ]


def test_latency_goes_by_the_clock_not_by_the_stamp(folder: LogFolder) -> None:
    log = folder.open(message_timestamp_type="LogAppendTime")
    stamp(folder)
    folder.clock.step(-10_000)
    latency = log.appender.append(timed_set(NOW - 10_005)).latency
    assert latency is not None
    assert latency.sum_ms == 5


def clean(folder: LogFolder) -> None:
    folder.restart()


def unclean(folder: LogFolder) -> None:
    folder.kill_and_restart()


def unclean_after_sync(folder: LogFolder) -> None:
    folder.log.flusher.flush()
    folder.kill_and_restart()


def clean_after_roll(folder: LogFolder) -> None:
    folder.log.appender.roll()
    folder.restart()


def clean_after_roll_without_indexes(folder: LogFolder) -> None:
    folder.log.appender.roll()
    folder.log.close()
    (folder.path / "index-checksums").unlink(missing_ok=True)
    folder.open()


def unclean_after_roll(folder: LogFolder) -> None:
    folder.log.appender.roll()
    folder.kill_and_restart()


def unclean_after_roll_and_sync(folder: LogFolder) -> None:
    folder.log.appender.roll()
    folder.log.flusher.flush()
    folder.kill_and_restart()


@pytest.mark.parametrize(
    "again",
    [
        clean,
        unclean,
        unclean_after_sync,
        clean_after_roll,
        clean_after_roll_without_indexes,
        unclean_after_roll,
        unclean_after_roll_and_sync,
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=["plain", "gzip"])
def test_the_last_stamp_is_found_again_at_start(
    folder: LogFolder, again: Callable[[LogFolder], None], codec: Codec
) -> None:
    folder.open(message_timestamp_type="LogAppendTime", index_interval_bytes=50)
    for _ in range(10):
        folder.log.appender.append(timed_set(1, 2, codec=codec))
        folder.clock.advance(1)
    folder.clock.step(-10_000)
    again(folder)
    assert folder.log.log_end_offset == 20
    assert stamp(folder) == NOW + 9


def test_a_last_message_of_a_producer_s_time_holds_nothing_up(folder: LogFolder) -> None:
    folder.open()
    folder.append(NOW + DAY_MS)
    folder.set(message_timestamp_type="LogAppendTime")
    assert stamp(folder) == NOW
    folder.restart()
    folder.set(message_timestamp_type="CreateTime")
    folder.append(NOW + DAY_MS)
    folder.set(message_timestamp_type="LogAppendTime")
    folder.restart()
    assert stamp(folder) == NOW


def test_the_largest_timestamp_of_the_log_holds_nothing_up(folder: LogFolder) -> None:
    folder.open()
    folder.append(NOW + DAY_MS, NOW)
    folder.set(message_timestamp_type="LogAppendTime")
    folder.restart()
    assert stamp(folder) == NOW


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(2, NOW + 1, id="inside-a-segment"),
        pytest.param(3, NOW + 2, id="at-the-base-of-the-active-one"),
        pytest.param(1, NOW, id="first-left"),
        pytest.param(0, NOW - 10_000, id="nothing-left"),
    ],
)
def test_after_a_truncation_the_last_message_left_counts(
    folder: LogFolder, offset: int, expected: int
) -> None:
    folder.open(message_timestamp_type="LogAppendTime", segment_bytes=39 * 3)
    for _ in range(4):
        stamp(folder)
        folder.clock.advance(1)
    assert folder.bases() == [0, 3]
    folder.clock.step(-10_004)
    folder.log.truncate(offset)
    assert stamp(folder) == expected


def test_stored_entries_of_another_broker_count(folder: LogFolder) -> None:
    folder.open(message_timestamp_type="LogAppendTime")
    folder.clock.step(10_000)
    stamp(folder)
    copied = folder.stored()
    folder.log.truncate_fully(0)
    folder.clock.step(-10_000)
    append_copy(folder.log, copied)
    assert stamp(folder) == NOW + 10_000
