"""Segments to which nothing is appended any more (decision 41)."""

import errno
import os

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.log.log import Log
from horolog.testing.clock import ManualClock
from horolog.testing.logs import LogFolder, timed_set, untimed_set
from horolog.tests.followers.appending import append_copy

NOW = ManualClock().now_ms()
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
SEGMENT_MS = DAY_MS


def look(folder: LogFolder) -> bool:
    """A pass, at the time that the clock shows."""
    return folder.log.expiry.roll_if_idle(folder.clock.now_ms())


def date_log(log: Log, at_ms: int) -> None:
    """Let the active segment's file have been written last at a time of the test's clock."""
    os.utime(log.segments[-1].log_path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


@pytest.fixture
def filled(folder: LogFolder) -> LogFolder:
    """A log with a message, appended just now."""
    folder.open(segment_ms=SEGMENT_MS, retention_ms=-1)
    folder.log.appender.append(timed_set(NOW))
    return folder


@pytest.mark.parametrize("message_ms", [NOW, 0, NOW + YEAR_MS, 2**63 - 1, None])
def test_a_segment_is_closed_when_nothing_came_for_so_long(
    folder: LogFolder, message_ms: int | None
) -> None:
    """By the broker's clock, whatever times the messages have (R-10)."""
    folder.open(segment_ms=SEGMENT_MS, retention_ms=-1)
    folder.log.appender.append(untimed_set() if message_ms is None else timed_set(message_ms))
    folder.clock.advance(SEGMENT_MS)
    assert not look(folder)
    folder.clock.advance(1)
    assert look(folder)
    assert folder.bases() == [0, 1]
    [rolled] = folder.events.named("segment_rolled")
    assert (rolled["base_offset"], rolled["reason"]) == (1, "idle")
    folder.clock.advance(YEAR_MS)
    assert not look(folder), "an empty segment stays"
    assert folder.log.appender.append(timed_set(NOW)).first_offset == 1
    assert not look(folder)
    assert folder.bases() == [0, 1]


def test_an_empty_log_is_left_alone(folder: LogFolder) -> None:
    folder.open(segment_ms=1)
    folder.clock.advance(YEAR_MS)
    assert not look(folder)
    assert folder.bases() == [0]


@pytest.mark.parametrize("how", ["append", "append_sets", "append_copy"])
def test_each_append_begins_the_wait_anew(filled: LogFolder, how: str) -> None:
    filled.clock.advance(SEGMENT_MS)
    if how == "append_copy":
        stored = bytearray(filled.stored())
        stored[:8] = (1).to_bytes(8, "big")
        append_copy(filled.log, stored)
    else:
        sent = timed_set(NOW)
        assert getattr(filled.log.appender, how)(sent if how == "append" else [sent, sent])
    filled.clock.advance(SEGMENT_MS)
    assert not look(filled)
    filled.clock.advance(1)
    assert look(filled)


def test_a_failed_append_is_none(filled: LogFolder) -> None:
    filled.clock.advance(SEGMENT_MS)
    filled.files.fail("pwrite", errno.ENOSPC, name=".log")
    with pytest.raises(StorageError):
        filled.log.appender.append(timed_set(NOW))
    filled.files.heal()
    filled.clock.advance(1)
    assert look(filled)


@pytest.mark.parametrize("again", ["live", "clean", "unclean"])
@pytest.mark.parametrize("step_ms", [YEAR_MS, -YEAR_MS])
def test_steps_of_the_clock_close_nothing(filled: LogFolder, again: str, step_ms: int) -> None:
    if again != "live":
        date_log(filled.log, NOW)
        _ = filled.restart() if again == "clean" else filled.kill_and_restart()
        date_log(filled.log, NOW)
        assert not look(filled)
    filled.clock.step(step_ms)
    assert not look(filled)
    filled.clock.advance(SEGMENT_MS)
    assert not look(filled)
    filled.clock.step(-2 * step_ms)
    assert not look(filled)
    filled.clock.advance(1)
    assert look(filled)


@pytest.mark.parametrize("again", ["clean", "unclean"])
def test_what_was_waited_before_a_restart_counts(filled: LogFolder, again: str) -> None:
    """As the time of the log's file tells it."""
    filled.clock.advance(SEGMENT_MS // 2)
    _ = filled.restart() if again == "clean" else filled.kill_and_restart()
    date_log(filled.log, NOW)
    filled.clock.advance(SEGMENT_MS // 2)
    assert not look(filled)
    filled.clock.advance(1)
    assert look(filled)


def test_a_file_from_the_future_waits_from_the_first_look_on(filled: LogFolder) -> None:
    filled.restart()
    date_log(filled.log, NOW + YEAR_MS)
    assert not look(filled)
    filled.clock.advance(SEGMENT_MS)
    assert not look(filled)
    filled.clock.advance(1)
    assert look(filled)


def test_the_jitter_is_taken_off(folder: LogFolder) -> None:
    folder.open(segment_ms=SEGMENT_MS, segment_jitter_ms=SEGMENT_MS, retention_ms=-1)
    folder.log.appender.append(timed_set(NOW))
    jitter_ms = folder.log.segments[-1].jitter_ms
    assert jitter_ms > 0
    folder.clock.advance(SEGMENT_MS - jitter_ms)
    assert not look(folder)
    folder.clock.advance(1)
    assert look(folder)


def test_no_wait_is_long_enough_without_a_limit(folder: LogFolder) -> None:
    folder.open(segment_ms=2**63 - 1, retention_ms=-1)
    folder.log.appender.append(timed_set(NOW))
    folder.clock.advance(1000 * YEAR_MS)
    assert not look(folder)


def test_a_log_that_takes_no_appends_is_left_as_it_is(filled: LogFolder) -> None:
    filled.files.fail("pwrite", errno.EIO, name=".log")
    with pytest.raises(StorageError):
        filled.log.appender.append(timed_set(NOW))
    filled.files.heal()
    filled.clock.advance(YEAR_MS)
    assert not look(filled)
    assert filled.bases() == [0]


@pytest.mark.parametrize("synced", [True, False])
def test_a_closed_one_is_there_after_a_kill(filled: LogFolder, synced: bool) -> None:
    filled.clock.advance(SEGMENT_MS + 1)
    assert look(filled)
    if synced:
        filled.log.flusher.flush()
    log = filled.kill_and_restart()
    assert filled.times() == [(0, NOW)]
    assert (log.log_end_offset, filled.bases()) == (1, [0, 1])
    assert not look(filled)
