"""When a segment is closed and the next one begun (rules R-*)."""

from random import Random

import pytest

from horolog.protocol.errors import InvalidConfig
from horolog.protocol.records.layout import Codec
from horolog.testing.logs import LogFolder, timed_set, untimed_set

NOW = 1_479_144_272_509
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("room", "rolled"),
    [pytest.param(0, None, id="tc107-R-2-equal"), pytest.param(-1, "size", id="tc107-R-2-more")],
)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=["plain", "gzip"])
def test_size(folder: LogFolder, room: int, rolled: str | None, count: int, codec: Codec) -> None:
    """R-1."""
    last = timed_set(*[NOW] * count, codec=codec)
    log = folder.open(segment_bytes=39 * 5 + len(last) + room)
    log.appender.append(timed_set(*[NOW] * 5))
    assert log.appender.append(last).rolled == rolled
    assert folder.bases() == ([0] if rolled is None else [0, 5])
    assert log.log_end_offset == 5 + count


@pytest.mark.parametrize(
    ("first", "later", "rolled"),
    [
        pytest.param([1000], [1100], None, id="tc108-R-3-equal"),
        pytest.param([1000], [1101], "time", id="tc108-R-3-D4-more"),
        pytest.param([1000], [1000, 1101, 1000], "time", id="R-6-largest-of-the-set"),
        pytest.param([1000], [0], None, id="R-11-earlier"),
        pytest.param([1000, 5000], [1100], None, id="R-7-first-message-not-largest-equal"),
        pytest.param([1000, 5000], [1101], "time", id="R-7-first-message-not-largest"),
        pytest.param([5000, 1000], [5050], None, id="R-7-first-message-not-smallest"),
        pytest.param([0], [101], "time", id="R-6-time-zero-is-a-time"),
        pytest.param([1000], [-1], None, id="tc111-R-9-none"),
    ],
)
@pytest.mark.parametrize("again", ["live", "clean", "unclean"])
def test_message_time_tc108_tc117(
    folder: LogFolder, first: list[int], later: list[int], rolled: str | None, again: str
) -> None:
    """D3."""
    folder.open(segment_ms=100)
    folder.log.appender.append(timed_set(*first))
    folder.clock.advance(10 * DAY_MS)
    if again == "clean":
        folder.restart()
    elif again == "unclean":
        folder.kill_and_restart()
    assert folder.log.appender.append(timed_set(*later)).rolled == rolled


def test_the_time_of_a_first_wrapper_is_its_own(folder: LogFolder) -> None:
    log = folder.open(segment_ms=100)
    log.appender.append(timed_set(1000, 2000, codec=Codec.GZIP))
    assert log.appender.append(timed_set(2100)).rolled is None
    folder.restart()
    assert folder.log.appender.append(timed_set(2101)).rolled == "time"


def test_message_time_ignores_the_clock_tc109(folder: LogFolder) -> None:
    log = folder.open(segment_ms=100)
    folder.append(1000)
    folder.clock.advance(10 * DAY_MS)
    assert log.appender.append(timed_set(1050)).rolled is None


def test_v0_sets_never_roll_a_timed_segment_tc111(folder: LogFolder) -> None:
    log = folder.open(segment_ms=100)
    folder.append(1000)
    folder.clock.advance(1000 * DAY_MS)
    assert log.appender.append(untimed_set()).rolled is None


@pytest.mark.parametrize(
    ("waited_ms", "rolled"),
    [pytest.param(100, None, id="tc110-R-6-equal"), pytest.param(101, "time", id="tc110-R-6-more")],
)
@pytest.mark.parametrize(
    "first", [untimed_set(), timed_set(-1), untimed_set() + timed_set(5)], ids=["v0", "v1", "both"]
)
@pytest.mark.parametrize("later_ms", [-1, 5, NOW + 10 * DAY_MS])
def test_without_a_time_the_clock_counts(
    folder: LogFolder, waited_ms: int, rolled: str | None, first: bytearray, later_ms: int
) -> None:
    log = folder.open(segment_ms=100)
    log.appender.append(first)
    folder.clock.advance(waited_ms)
    assert log.appender.append(timed_set(later_ms)).rolled == rolled


def test_an_empty_segment_never_rolls_tc112(folder: LogFolder) -> None:
    log = folder.open(segment_ms=1)
    folder.clock.advance(1000 * DAY_MS)
    log.appender.roll()
    assert log.appender.append(timed_set(NOW)).rolled is None
    assert folder.bases() == [0]


def test_falling_times_stay_in_one_segment_tc113(folder: LogFolder) -> None:
    folder.open(segment_ms=1)
    folder.append(*range(NOW, NOW - 1000, -1))
    assert folder.bases() == [0]


def test_a_replay_does_not_roll_per_append_tc114(folder: LogFolder) -> None:
    folder.open(segment_ms=1000)
    folder.append(*range(5, 1005))
    assert folder.bases() == [0]
    folder.append(1005, 1006)
    assert folder.bases() == [0, 1001]


def test_a_far_future_first_message_holds_its_segment_r11(folder: LogFolder) -> None:
    log = folder.open(segment_ms=100)
    folder.append(NOW, NOW + 1000 * DAY_MS)
    assert folder.bases() == [0, 1]
    assert log.appender.append(timed_set(NOW + 5)).rolled is None
    assert log.appender.append(timed_set(NOW + 1000 * DAY_MS + 100)).rolled is None


def test_the_pinned_sequence_r15(folder: LogFolder) -> None:
    log = folder.open(segment_ms=3600)
    folder.clock.advance(3601)
    log.appender.append(untimed_set())
    assert log.segment_count == 1, "the empty segment takes the set, however late"
    folder.clock.advance(3601)
    # created long ago, first message without a time: the clock decides, for any set
    assert log.appender.append(untimed_set()).rolled == "time"
    folder.clock.advance(3601)
    assert log.appender.append(timed_set(NOW)).rolled == "time"
    folder.clock.advance(3601)
    assert log.appender.append(timed_set(NOW)).rolled is None
    assert log.appender.append(timed_set(NOW + 3601)).rolled == "time"
    folder.clock.advance(3601)
    assert log.appender.append(b"").rolled is None
    assert log.segment_count == 4


def test_a_roll_changes_no_offset_and_closes_the_time_index_r13(folder: LogFolder) -> None:
    log = folder.open()
    folder.append(5, 9, 7)
    log.appender.roll()
    assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (3, 3, 0)
    assert folder.bases() == [0, 3]
    assert (folder.time_entries(0), folder.time_entries(1)) == ([(9, 3)], [])
    assert folder.append(8) == [3]
    assert folder.times() == [(0, 5), (1, 9), (2, 7), (3, 8)]
    assert [event["reason"] for event in folder.events.named("segment_rolled")] == ["asked"]


@pytest.mark.parametrize(
    ("index_bytes", "appends_before_roll"),
    [
        # 24 bytes hold three offset entries but two time entries, one of them for closing.
        pytest.param(24, 2, id="tc115-I-1A-smallest"),
        pytest.param(35, 2, id="tc115-R-4-no-third-whole-entry"),
        pytest.param(36, 3, id="tc115-R-4-two"),
        pytest.param(360, 30, id="tc100-I-19-thirty-slots"),
    ],
)
def test_a_full_time_index_rolls(
    folder: LogFolder, index_bytes: int, appends_before_roll: int
) -> None:
    log = folder.open(segment_index_bytes=index_bytes, index_interval_bytes=0)
    rolled = [log.appender.append(timed_set(ms)).rolled for ms in range(appends_before_roll)]
    assert rolled == [None] * appends_before_roll
    assert len(folder.time_entries()) == appends_before_roll - 1
    assert log.appender.append(timed_set(99)).rolled == "index full"
    assert folder.bases() == [0, appends_before_roll]
    closed = folder.time_entries(0)
    assert len(closed) == appends_before_roll - 1
    assert closed[-1] == (appends_before_roll - 1, appends_before_roll)


def test_the_reserved_slot_takes_the_closing_entry_tc100(folder: LogFolder) -> None:
    log = folder.open(segment_index_bytes=36, index_interval_bytes=78)
    folder.append(1, 2, 3, 4, 5, 6, 7)
    assert folder.time_entries() == [(4, 4), (7, 7)]
    folder.append(8)
    assert folder.bases() == [0, 7]
    log.appender.append(timed_set(*range(9, 13)))
    folder.append(13, 14)
    assert folder.time_entries() == [(11, 11), (14, 14)]
    log.close()
    assert folder.content(["7.timeindex"]) == {
        "00000000000000000007.timeindex": bytes.fromhex(
            "000000000000000b00000004000000000000000e00000007"
        )
    }


def test_a_full_offset_index_rolls_r4(folder: LogFolder) -> None:
    log = folder.open(segment_index_bytes=24, index_interval_bytes=0)
    rolled = [log.appender.append(untimed_set()).rolled for _ in range(5)]
    assert rolled == [None, None, None, None, "index full"]
    assert folder.offset_entries(0) == [(1, 31), (2, 62), (3, 93)]


def test_an_index_that_fills_within_one_set_is_no_error(folder: LogFolder) -> None:
    log = folder.open(segment_index_bytes=36, index_interval_bytes=0)
    log.appender.append(timed_set(*range(100)))
    assert len(folder.time_entries()) == 2
    assert folder.found(50, 99) == [(50, 50), (99, 99)]
    assert log.appender.append(timed_set(100)).rolled == "index full"
    assert folder.time_entries(0) == [(1, 2), (2, 3), (99, 100)]
    assert folder.found(50, 99, 100) == [(50, 50), (99, 99), (100, 100)]


def test_jitter_tc116(folder: LogFolder) -> None:
    folder.random = Random(7)
    log = folder.open(segment_ms=1000, segment_jitter_ms=400)
    waited = []
    first_ms = at_ms = NOW
    for _ in range(4000):
        if log.appender.append(timed_set(at_ms)).rolled:
            waited.append(at_ms - first_ms)
            first_ms = at_ms
        at_ms += 10
    assert len(waited) > 40
    assert min(waited) >= 600
    assert max(waited) <= 1010
    assert max(waited) - min(waited) > 200


def test_jitter_is_kept_by_a_segment_and_below_segment_ms_r12(folder: LogFolder) -> None:
    log = folder.open(segment_ms=5, segment_jitter_ms=10**9)
    jitters = []
    for _ in range(50):
        jitters.append(log.segments[-1].jitter_ms)
        folder.append(NOW)
        assert log.segments[-1].jitter_ms == jitters[-1]
        log.appender.roll()
    assert set(jitters) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("index_bytes", [0, 12, 23])
def test_a_time_index_without_room_is_refused_tc118(folder: LogFolder, index_bytes: int) -> None:
    with pytest.raises(InvalidConfig, match=r"segment\.index\.bytes"):
        folder.open(segment_index_bytes=index_bytes)


def test_changed_settings_hold_for_the_active_segment_c3(folder: LogFolder) -> None:
    log = folder.open(segment_ms=10_000, segment_bytes=10_000)
    folder.append(NOW)
    folder.set(segment_ms=100)
    assert log.appender.append(timed_set(NOW + 101)).rolled == "time"
    folder.set(segment_ms=10_000, segment_bytes=40)
    assert log.appender.append(timed_set(NOW + 101)).rolled == "size"


def test_rolling_again_and_again_needs_no_clock(folder: LogFolder) -> None:
    log = folder.open()
    for offset in range(5):
        assert folder.append(NOW) == [offset]
        log.appender.roll()
        log.appender.roll()
    assert folder.bases() == [0, 1, 2, 3, 4, 5]
    assert folder.names(".log") == [f"{base:020d}.log" for base in range(6)]
