"""Which segments go, when, and how (rules RT-*)."""

import os
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.errors import OffsetOutOfRange
from horolog.protocol.records.layout import Codec
from horolog.storage.log.admitted import Appended
from horolog.storage.log.log import Log
from horolog.storage.log.trimmed import unread
from horolog.storage.read import reader
from horolog.testing.logs import ENTRY_BYTES, LogFolder, delete_due, timed_set, untimed_set
from horolog.times import format_time

NOW = 1_479_144_272_509
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS


def set_mtime(path: Path, at_ms: int) -> None:
    os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def open_with(folder: LogFolder, ages_ms: list[int | None], **settings: object) -> Log:
    """A log with one segment per age: of one message of that age, without a time for `None`."""
    folder.set(retention_ms=-1)
    folder.set(**settings)
    log = folder.open()
    for number, age_ms in enumerate(ages_ms):
        if number:
            log.appender.roll()
        log.appender.append(untimed_set() if age_ms is None else timed_set(NOW - age_ms))
    return log


@pytest.mark.parametrize(
    ("age_ms", "bases"),
    [
        pytest.param(1000, [0, 1], id="tc119-RT-2-equal"),
        pytest.param(1001, [1], id="tc119-RT-2-more"),
        pytest.param(-1, [0, 1], id="RT-12-future"),
    ],
)
def test_age(folder: LogFolder, age_ms: int, bases: list[int]) -> None:
    log = open_with(folder, [age_ms, 0], retention_ms=1000)
    log.expiry.maintain(NOW)
    assert folder.bases() == bases
    assert log.log_start_offset == bases[0]


@pytest.mark.parametrize(
    ("ages_ms", "bases", "start"),
    [
        pytest.param([2000, 0, 2000], [1, 2, 3], 1, id="tc120-RT-3-fresh-one-between"),
        pytest.param([2000, 2000, 0], [2], 2, id="RT-3-two"),
        pytest.param([0, 2000, 2000], [0, 1, 2, 3], 0, id="RT-3-fresh-one-first"),
        pytest.param([2000, 2000, 2000], [3], 3, id="tc121-RT-8-all"),
        pytest.param([2000], [1], 1, id="tc121-RT-8-one"),
        pytest.param([0], [0], 0, id="fresh-one"),
    ],
)
def test_oldest_first(folder: LogFolder, ages_ms: list[int], bases: list[int], start: int) -> None:
    log = open_with(folder, list(ages_ms), retention_ms=1000)
    log.expiry.maintain(NOW)
    assert folder.bases() == bases
    assert (log.log_start_offset, log.log_end_offset) == (start, len(ages_ms))
    assert log.high_watermark == len(ages_ms)
    assert folder.append(NOW) == [len(ages_ms)]


def test_an_idle_active_segment_past_retention_is_rolled_decision_17(folder: LogFolder) -> None:
    log = open_with(folder, [0, 2000], retention_ms=1000)
    log.expiry.maintain(NOW)
    assert folder.bases() == [0, 1, 2]
    log.expiry.maintain(NOW)
    assert folder.bases() == [0, 1, 2]
    log.expiry.maintain(NOW + 1001)
    assert folder.bases() == [2]


def test_retention_0_deletes_what_is_older_than_now_rt16(folder: LogFolder) -> None:
    log = open_with(folder, [1, 0], retention_ms=0)
    log.expiry.maintain(NOW)
    assert folder.bases() == [1]


def test_an_empty_active_segment_is_never_deleted_tc122(folder: LogFolder) -> None:
    log = folder.open(retention_ms=1000, retention_bytes=0)
    set_mtime(log.segments[0].log_path, 0)
    log.expiry.maintain(NOW)
    assert folder.bases() == [0]
    assert folder.names(".deleted") == []


@pytest.mark.parametrize(
    ("file_age_ms", "bases"),
    [
        pytest.param(1001, [1], id="tc123-RT-1-old-file"),
        pytest.param(1000, [0, 1], id="tc123-RT-1-new-file"),
    ],
)
def test_without_times_the_file_s_time_counts(
    folder: LogFolder, file_age_ms: int, bases: list[int]
) -> None:
    """MG-8."""
    log = open_with(folder, [None, 0], retention_ms=1000)
    set_mtime(log.segments[0].log_path, NOW - file_age_ms)
    log.expiry.maintain(NOW)
    assert folder.bases() == bases


def test_one_timed_message_decides_for_its_segment_tc124(folder: LogFolder) -> None:
    """D15."""
    log = folder.open(retention_ms=1000)
    log.appender.append(untimed_set(3))
    log.appender.append(timed_set(NOW))
    log.appender.append(untimed_set(3))
    log.appender.roll()
    set_mtime(log.segments[0].log_path, 0)
    log.expiry.maintain(NOW)
    assert folder.bases() == [0, 7]
    log.expiry.maintain(NOW + 1001)
    assert folder.bases() == [7]


@pytest.mark.parametrize("file_ms", [0, NOW, NOW + YEAR_MS])
def test_the_file_s_time_of_a_timed_segment_means_nothing_tc125(
    folder: LogFolder, file_ms: int
) -> None:
    log = open_with(folder, [2000, 500, 0], retention_ms=1000)
    for segment in log.segments[:2]:
        set_mtime(segment.log_path, file_ms)
    log.expiry.maintain(NOW)
    assert folder.bases() == [1, 2]


@pytest.mark.parametrize("again", ["live", "clean", "unclean"])
def test_a_future_time_keeps_its_segment_tc126(folder: LogFolder, again: str) -> None:
    log = open_with(folder, [2000, -YEAR_MS, 0], retention_ms=1000)
    if again == "clean":
        log = folder.restart()
    elif again == "unclean":
        log = folder.kill_and_restart(checkpointed=False)
    log.expiry.maintain(NOW + YEAR_MS + 1000)
    assert folder.bases() == [1, 2, 3]
    log.expiry.maintain(NOW + YEAR_MS + 1001)
    assert folder.bases() == [3]


def test_the_largest_time_that_there_is_breaks_nothing(folder: LogFolder) -> None:
    log = folder.open(retention_ms=1000)
    folder.append(2**63 - 1, NOW)
    log.appender.roll()
    plan = log.expiry.plan_retention(NOW)
    assert log.expiry.maintain(NOW).delete_count == 0
    assert [verdict.delete for verdict in plan.verdicts] == [False, False]
    assert str(2**63 - 1) in plan.verdicts[0].reason


@pytest.mark.parametrize(
    ("retention_bytes", "bases"),
    [
        pytest.param(100, [1, 2], id="tc127-RT-4-excess-is-one-segment"),
        pytest.param(120, [0, 1, 2], id="tc128-RT-4-excess-is-less"),
        pytest.param(99, [1, 2], id="RT-4-a-little-more-than-one"),
        pytest.param(50, [2], id="RT-4-two"),
        pytest.param(0, [3], id="RT-16-all"),
        pytest.param(150, [0, 1, 2], id="RT-4-equal"),
        pytest.param(-1, [0, 1, 2], id="tc129-RT-4-off"),
    ],
)
def test_size(folder: LogFolder, retention_bytes: int, bases: list[int]) -> None:
    log = folder.open(retention_ms=-1, retention_bytes=retention_bytes)
    for number in range(3):
        if number:
            log.appender.roll()
        log.appender.append(timed_set(NOW, value=b"x" * 16))
    assert [segment.size_bytes for segment in log.segments] == [50, 50, 50]
    log.expiry.maintain(NOW + YEAR_MS)
    assert folder.bases() == bases
    assert log.log_end_offset == 3


def test_time_first_then_size_rt5(folder: LogFolder) -> None:
    log = open_with(folder, [2000, 0, 0, 0], retention_ms=1000, retention_bytes=39 * 2)
    plan = log.expiry.maintain(NOW)
    assert folder.bases() == [2, 3]
    assert ["retention.ms" in verdict.reason for verdict in plan.verdicts[:2]] == [True, False]
    assert ["retention.bytes" in verdict.reason for verdict in plan.verdicts[:2]] == [False, True]


@pytest.mark.parametrize(
    ("high_watermark", "bases"),
    [
        pytest.param(0, [0, 1, 2], id="RT-9-none"),
        pytest.param(1, [1, 2], id="RT-9-equal"),
        pytest.param(2, [2], id="RT-9-two"),
        pytest.param(3, [3], id="RT-9-all"),
    ],
)
@pytest.mark.parametrize(
    "settings", [{"retention_ms": 1000}, {"retention_bytes": 0}], ids=["time", "size"]
)
def test_never_past_the_high_watermark(
    folder: LogFolder, high_watermark: int, bases: list[int], settings: dict[str, int]
) -> None:
    log = open_with(folder, [2000, 2000, 2000], **settings)
    log.hold_high_watermark(high_watermark)
    log.expiry.maintain(NOW)
    assert folder.bases() == bases
    assert log.log_start_offset <= high_watermark


def test_a_segment_half_above_the_high_watermark_stays_rt9(folder: LogFolder) -> None:
    log = folder.open(retention_ms=1000)
    log.appender.append(timed_set(NOW - 2000, NOW - 2000))
    log.appender.roll()
    log.hold_high_watermark(1)
    log.expiry.maintain(NOW)
    assert folder.bases() == [0, 2]


@pytest.mark.parametrize("again", ["live", "clean", "unclean"])
def test_retention_off_keeps_everything_tc129(folder: LogFolder, again: str) -> None:
    log = open_with(folder, [10**12, 10**12, None], retention_ms=-1, retention_bytes=-1)
    if again == "clean":
        log = folder.restart()
    elif again == "unclean":
        log = folder.kill_and_restart(checkpointed=False)
    set_mtime(log.segments[-1].log_path, 0)
    plan = log.expiry.plan_retention(NOW + 1000 * YEAR_MS)
    log.expiry.maintain(NOW + 1000 * YEAR_MS)
    assert folder.bases() == [0, 1, 2]
    assert {verdict.expires_ms for verdict in plan.verdicts} == {None}


def test_deleted_files_wait_for_their_delay_tc130(folder: LogFolder) -> None:
    log = open_with(folder, [2000, 0], retention_ms=1000, file_delete_delay_ms=1000)
    log.expiry.maintain(NOW)
    kinds = ("appendtime", "index", "log", "timeindex")
    deleted = [f"{0:020d}.{kind}.deleted" for kind in kinds]
    assert folder.names(".deleted") == deleted
    assert not any(name.startswith(f"{0:020d}") for name in folder.names(".log"))
    with pytest.raises(OffsetOutOfRange) as refused:
        reader.read(log, 0, 1000)
    assert refused.value.code == 1
    folder.clock.advance(999)
    assert delete_due(folder.deletions) == 0
    assert folder.names(".deleted") == deleted
    folder.clock.advance(1)
    assert delete_due(folder.deletions) == 4
    assert folder.names(".deleted") == []
    assert folder.times() == [(1, NOW)]


@pytest.mark.parametrize("again", ["clean", "unclean"])
def test_a_restart_removes_what_waits_tc131(folder: LogFolder, again: str) -> None:
    log = open_with(folder, [2000, 0], retention_ms=1000)
    log.expiry.maintain(NOW)
    assert len(folder.names(".deleted")) == 4
    log = folder.restart() if again == "clean" else folder.kill_and_restart()
    assert folder.names(".deleted") == []
    assert (log.log_start_offset, log.log_end_offset) == (1, 2)
    folder.clock.advance(60_000)
    delete_due(folder.deletions)
    assert folder.times() == [(1, NOW)]


def test_deletion_is_told(folder: LogFolder) -> None:
    log = open_with(folder, [2000, 0], retention_ms=1000)
    log.expiry.maintain(NOW)
    (event,) = folder.events.named("segment_deleted")
    assert (event["topic"], event["base_offset"], event["size_bytes"]) == ("t", 0, 39)
    assert "retention.ms=1000" in event["reason"]


def test_reasons_of_what_stays(folder: LogFolder) -> None:
    log = open_with(folder, [500, 2000, 2000], retention_ms=1000)
    plan = log.expiry.plan_retention(NOW)
    assert [verdict.delete for verdict in plan.verdicts] == [False, False, False]
    assert [verdict.expires_ms for verdict in plan.verdicts] == [NOW + 501, NOW - 999, NOW - 999]
    assert plan.verdicts[0].reason == (
        "its newest message (2016-11-14T17:24:32.009Z) keeps it: until 2016-11-14T17:24:33.010Z"
    )
    assert plan.verdicts[1].reason == "it is expired, but behind the segment at 0, which is kept"
    assert plan.roll_active
    assert folder.bases() == [0, 1, 2], "a plan changes nothing"


def test_a_plan_gives_one_verdict_for_each_segment_in_order(folder: LogFolder) -> None:
    """decision 18."""
    log = open_with(folder, [2000, 2000, 0, 0], retention_ms=1000, retention_bytes=39)
    plan = log.expiry.plan_retention(NOW)
    assert [(verdict.base_offset, verdict.delete) for verdict in plan.verdicts] == [
        (0, True),
        (1, True),
        (2, True),
        (3, False),
    ]
    assert plan.delete_count == 3


def test_settings_change_for_the_next_pass_c3(folder: LogFolder) -> None:
    log = open_with(folder, [2000, 0], retention_ms=-1)
    log.expiry.maintain(NOW)
    assert folder.bases() == [0, 1]
    folder.set(retention_ms=1000)
    log.expiry.maintain(NOW)
    assert folder.bases() == [1]


def test_the_running_maximum_follows_deletion(folder: LogFolder) -> None:
    log = folder.open(retention_ms=-1, retention_bytes=39 * 2)
    for timestamp_ms in (900, 100, 200):
        folder.append(timestamp_ms)
        log.appender.roll()
    assert folder.found(150) == [(900, 0)]
    log.expiry.maintain(NOW)
    assert folder.bases() == [1, 2, 3]
    assert folder.found(100, 150, 201, 900) == [(100, 1), (200, 2), None, None]
    folder.append(300)
    assert folder.found(201) == [(300, 3)]


def test_a_search_after_a_deletion_starts_at_the_right_segment(folder: LogFolder) -> None:
    log = folder.open(retention_ms=-1, retention_bytes=39 * 3)
    for timestamp_ms in (10, 20, 30, 40):
        folder.append(timestamp_ms)
        log.appender.roll()
    assert folder.found(15) == [(20, 1)]
    log.expiry.maintain(NOW)
    assert folder.bases() == [1, 2, 3, 4]
    assert folder.found(15, 25, 35) == [(20, 1), (30, 2), (40, 3)]


HOUR_MS = 3_600_000


def tell_of_old(folder: LogFolder) -> int:
    return len(folder.events.named("messages_past_retention"))


@pytest.mark.parametrize(
    "earlier", [pytest.param(0, id="one-by-one"), pytest.param(1, id="together")]
)
def test_messages_that_are_past_retention_are_told_of_once_an_hour(
    folder: LogFolder, earlier: int
) -> None:
    """B-20."""
    log = folder.open(retention_ms=1000)
    if earlier:
        log.appender.append(timed_set(NOW))

    def send(timestamp_ms: int) -> None:
        if earlier:
            (together,) = log.appender.append_sets([timed_set(timestamp_ms)] * 2)
            assert isinstance(together, Appended)
        else:
            log.appender.append(timed_set(timestamp_ms))

    send(NOW - 1000)
    assert not tell_of_old(folder)
    send(NOW - 1001)
    send(NOW - 5000)
    (event,) = folder.events.named("messages_past_retention")
    assert event["newest"] == "2016-11-14T17:24:31.508Z"
    assert event["retention_ms"] == 1000
    folder.clock.advance(HOUR_MS)
    send(NOW)
    assert tell_of_old(folder) == 2


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"retention_ms": -1}, id="kept-for-ever"),
        pytest.param(
            {"retention_ms": 1000, "message_timestamp_type": "LogAppendTime"}, id="stamped"
        ),
        pytest.param({"retention_ms": 1000, "message_format_version": "0.9.0"}, id="without-times"),
    ],
)
def test_no_message_is_past_retention(folder: LogFolder, settings: dict[str, Any]) -> None:
    log = folder.open(**settings)
    for _ in range(2):
        log.appender.append(timed_set(1))
    assert not tell_of_old(folder)


def test_a_log_that_becomes_pinned_is_told_of_once(folder: LogFolder) -> None:
    """B-20."""
    minute_ms = 60_000
    log = open_with(folder, [0, -minute_ms, 0, 0], retention_ms=DAY_MS)
    log.expiry.maintain(NOW)
    assert folder.events.named("segments_pinned") == []
    log.appender.roll()
    log.appender.append(timed_set(NOW + minute_ms + 1))
    log.appender.roll()
    log.appender.append(timed_set(NOW))
    for _ in range(2):
        log.expiry.maintain(NOW)
    (event,) = folder.events.named("segments_pinned")
    assert event["segment"] == 4
    assert event["newest"] == format_time(NOW + minute_ms + 1)
    assert event["until"] == format_time(NOW + minute_ms + DAY_MS + 2)
    log.expiry.maintain(NOW + 1)  # it is pinned no more
    log.appender.append(timed_set(NOW + DAY_MS))
    log.expiry.maintain(NOW + 1)
    assert len(folder.events.named("segments_pinned")) == 2


LAST_MS = 2**63 - 1


@pytest.mark.parametrize(
    ("newest_ms", "retention_ms", "expires_ms"),
    [
        (LAST_MS, LAST_MS, LAST_MS),
        (LAST_MS, 0, LAST_MS),
        (NOW, LAST_MS, LAST_MS),
        (NOW, LAST_MS - NOW, LAST_MS),
        (NOW, LAST_MS - NOW - 2, LAST_MS - 1),
        (LAST_MS - 1, 0, LAST_MS),
        (LAST_MS, -1, None),
    ],
)
def test_a_time_that_64_bits_do_not_hold_is_the_last_one(
    folder: LogFolder, newest_ms: int, retention_ms: int, expires_ms: int | None
) -> None:
    """decision 40."""
    log = open_with(folder, [NOW - newest_ms, 0], retention_ms=retention_ms)
    [first, _] = log.expiry.describe(NOW).segments
    assert first.expires_ms == expires_ms
    log.expiry.maintain(NOW)
    assert folder.bases() == [0, 1]
    if newest_ms > NOW + DAY_MS and expires_ms is not None:
        [told] = folder.events.named("segments_pinned")
        assert told["until"] == f"{LAST_MS} ms"


def trim(log: Log, offset: int) -> None:
    log.flusher.flush()
    log.expiry.trim(offset)


@pytest.mark.parametrize("again", ["", "restart", "kill_and_restart"])
@pytest.mark.parametrize("active", [True, False])
def test_messages_below_the_log_start_keep_no_segment_fo11(
    folder: LogFolder, active: bool, again: str
) -> None:
    """A copy that begins at the log start does not have them."""
    log = folder.open(retention_ms=1000)
    folder.append(NOW + YEAR_MS, *range(NOW, NOW + 20))
    if not active:
        log.appender.roll()
    trim(log, 3)
    if again:
        log = getattr(folder, again)()
    told = log.expiry.describe(NOW).segments[0]
    assert (told.largest_timestamp_ms, told.largest_offset) == (NOW + 19, 20)
    assert (told.verdict, told.expires_ms) == ("kept", NOW + 19 + 1001)
    log.expiry.maintain(NOW + 19 + 1000)
    assert folder.events.named("segments_pinned") == []
    assert (folder.bases()[0], log.log_start_offset) == (0, 3)
    log.expiry.maintain(NOW + 19 + 1001)
    assert (folder.bases(), log.log_start_offset) == ([21], 21)


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_set_in_which_the_log_begins_counts_whole(
    folder: LogFolder, magic: int, codec: Codec
) -> None:
    """So a copy gets it. Of plain messages before format 2 each is a set of its own."""
    log = folder.open(retention_ms=1000)
    log.appender.append(timed_set(NOW + 500, NOW, NOW, magic=magic, codec=codec))
    folder.append(NOW)
    trim(log, 1)
    alone = magic == 1 and codec is Codec.NONE
    newest_ms = NOW if alone else NOW + 500
    assert log.expiry.describe(NOW).segments[0].expires_ms == newest_ms + 1001
    trim(log, 3)
    assert log.expiry.describe(NOW).segments[0].expires_ms == NOW + 1001


def test_what_comes_behind_a_trimmed_message_is_not_passed_over(folder: LogFolder) -> None:
    """While that is unread, all messages count; nothing is deleted before its time."""
    log = folder.open(retention_ms=1000)
    folder.append(NOW + YEAR_MS, NOW)
    trim(log, 1)
    log.expiry.maintain(NOW)
    folder.append(NOW + DAY_MS)
    plan = log.expiry.plan_retention(NOW + 1001)
    assert (plan.delete_count, plan.roll_active) == (0, False)
    log.expiry.maintain(NOW + 1001)
    assert log.log_start_offset == 1
    log.expiry.maintain(NOW + DAY_MS + 1001)
    assert log.log_start_offset == 3


def test_a_largest_time_behind_the_log_start_is_not_looked_for(folder: LogFolder) -> None:
    """The time index tells where it is, also when the log was opened again."""
    log = folder.open(retention_ms=1000, index_interval_bytes=0)
    folder.append(NOW + 1, NOW, NOW + 2)
    trim(log, 1)
    assert unread(log) is None
    log = folder.restart()
    assert unread(log) is None
    assert log.expiry.describe(NOW).segments[0].expires_ms == NOW + 2 + 1001


def test_a_trimmed_segment_that_cannot_be_read_is_kept(folder: LogFolder) -> None:
    log = folder.open(retention_ms=1000)
    folder.append(NOW + YEAR_MS, NOW, NOW)
    log.appender.roll()
    trim(log, 1)
    stored = bytearray(log.segments[0].log_path.read_bytes())
    stored[2 * ENTRY_BYTES[1] + 8 :] = b"\xff" * (len(stored) - 2 * ENTRY_BYTES[1] - 8)
    log.segments[0].log_path.write_bytes(stored)
    log.expiry.maintain(NOW + DAY_MS)
    assert folder.bases() == [0, 3]
    log.expiry.maintain(NOW + YEAR_MS + 1001)
    assert folder.bases() == [3]


def test_a_trimmed_segment_without_its_index_files_is_read_from_its_begin(
    folder: LogFolder,
) -> None:
    log = folder.open(retention_ms=1000)
    folder.append(NOW + YEAR_MS, NOW, NOW)
    log.appender.roll()
    log = folder.restart()
    log.prepare()
    trim(log, 1)
    for path in log.segments[0].paths[1:3]:
        path.unlink()
    log.expiry.maintain(NOW + 1001)
    assert folder.bases() == [3]


def test_trimmed_messages_pin_no_segment(folder: LogFolder) -> None:
    log = folder.open(retention_ms=1000)
    folder.append(NOW + YEAR_MS, NOW)
    for ms in (NOW, NOW + DAY_MS, NOW):
        log.appender.roll()
        folder.append(ms)
    assert log.expiry.pinned_segments(NOW) == 4
    trim(log, 1)
    log.expiry.maintain(NOW)
    assert log.expiry.pinned_segments(NOW) == 2
    assert log.expiry.pinned_segments(NOW + DAY_MS) == 0


def test_without_a_time_from_the_log_start_on_the_file_s_time_counts_rt1(
    folder: LogFolder,
) -> None:
    log = folder.open(retention_ms=1000)
    folder.append(NOW)
    log.appender.append(untimed_set(2))
    log.appender.roll()
    set_mtime(log.segments[0].log_path, NOW + DAY_MS)
    trim(log, 1)
    log.expiry.maintain(NOW + 1001)
    assert folder.bases() == [0, 3]
    log.expiry.maintain(NOW + DAY_MS + 1001)
    assert folder.bases() == [3]
