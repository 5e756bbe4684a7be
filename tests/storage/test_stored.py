"""Appending bytes as another log stored them (rules FO-*)."""

import errno
from collections.abc import Iterator

import pytest

from horolog.protocol.errors import (
    CorruptMessage,
    HorologError,
    InvalidRequest,
    StorageError,
    UnsupportedForMessageFormat,
)
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import build_wrapper, set_append_time, set_timestamp
from horolog.storage.log.epoch_history import EpochStart
from horolog.storage.log.log import Log
from horolog.storage.names import MAX_OFFSET
from horolog.storage.read import reader
from horolog.storage.replica.copy_facts import CopyFacts
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.logs import LogFolder, timed_set, untimed_set
from horolog.tests.followers.appending import append_copy

NOW = 1_479_144_272_509
DAY_MS = 86_400_000
GZIP = Codec.GZIP
MAX_RELATIVE = 2**31 - 1


@pytest.fixture
def leader(folder: LogFolder) -> Iterator[LogFolder]:
    """A log of all kinds of entries: v0, CreateTime, LogAppendTime, wrappers."""
    leader = LogFolder(folder.path.with_name("leader-0"))
    leader.open(segment_bytes=500, index_interval_bytes=100)
    for number in range(6):
        leader.set(message_timestamp_type="LogAppendTime" if number % 3 == 2 else "CreateTime")
        leader.log.appender.append(untimed_set(2, codec=GZIP if number % 2 else Codec.NONE))
        leader.log.appender.append(timed_set(NOW - number, NOW + number, -1))
        leader.log.appender.append(timed_set(NOW + 9, NOW - 9, codec=Codec(1 + number % 3)))
        leader.clock.advance(1000)
    yield leader
    leader.let_go()


@pytest.mark.parametrize("chunk_bytes", [100, 450, 10**6])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_bytes_are_kept_tc154_v8(
    folder: LogFolder, leader: LogFolder, chunk_bytes: int, kind: str
) -> None:
    log = folder.open(
        message_timestamp_type=kind,
        max_message_time_difference_ms=1,
        compression_type="lz4",
        segment_bytes=600,
    )
    while log.log_end_offset < leader.log.log_end_offset:
        chunk = reader.read(leader.log, log.log_end_offset, chunk_bytes, whole_first=True).read()
        appended = append_copy(log, chunk)
        assert appended.append_time_ms == -1
        assert appended.latency is None
    assert folder.stored() == leader.stored()
    assert folder.times() == leader.times()
    folder.kill_and_restart(checkpointed=False)
    assert folder.stored() == leader.stored()


def test_a_copy_keeps_its_times_tc133_fo11(folder: LogFolder) -> None:
    leader = LogFolder(folder.path.with_name("leader-0"))
    leader.open(segment_bytes=78)
    leader.append(*range(NOW - 10 * DAY_MS, NOW, DAY_MS))
    copy = folder.open(segment_bytes=78)
    while copy.log_end_offset < 10:
        append_copy(copy, reader.read(leader.log, copy.log_end_offset, 10**6).read())
    for log in (leader.log, copy):
        log.set_settings(leader.log.settings)
        log.expiry.maintain(NOW - DAY_MS + 1)
    assert folder.bases() == leader.bases() == [2, 4, 6, 8]
    assert folder.found(NOW - 3 * DAY_MS) == leader.found(NOW - 3 * DAY_MS)
    leader.let_go()


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        pytest.param(
            timed_set(1, base_offset=2), InvalidRequest, "comes where 3", id="tc155-FO-2-below"
        ),
        pytest.param(
            timed_set(1, base_offset=5) + timed_set(1, base_offset=5),
            InvalidRequest,
            "next entry is below",
            id="FO-2-equal",
        ),
        pytest.param(
            timed_set(1, base_offset=5) + timed_set(1, base_offset=4),
            InvalidRequest,
            "next entry is below",
            id="FO-2-falling",
        ),
        pytest.param(timed_set(1, base_offset=3)[:-1] + b"!", CorruptMessage, "CRC", id="FO-8-crc"),
        pytest.param(
            timed_set(1, base_offset=3) + bytes(40), CorruptMessage, "0 bytes", id="FO-8-size"
        ),
        pytest.param(
            timed_set(1, base_offset=3) + timed_set(1, base_offset=MAX_OFFSET),
            InvalidRequest,
            "not between 0 and",
            id="an-offset-that-none-follows",
        ),
        pytest.param(
            (3).to_bytes(8, "big") + (80).to_bytes(4, "big") + b"\0\0\0\0\x03" + bytes(75),
            UnsupportedForMessageFormat,
            "magic 3",
            id="decision-26-magic-3",
        ),
    ],
)
def test_refused_without_a_trace(
    folder: LogFolder, data: bytes, error: type[HorologError], words: str
) -> None:
    log = folder.open(max_message_bytes=300)
    folder.append(1, 2, 3)
    before = folder.content()
    with pytest.raises(error, match=words):
        append_copy(log, data)
    assert folder.content() == before
    assert (log.log_end_offset, log.segment_count) == (3, 1)


def test_the_settings_do_not_limit_what_the_leader_has_fo7(folder: LogFolder) -> None:
    log = folder.open(max_message_bytes=300)
    large = timed_set(1, value=b"x" * 500)
    assert append_copy(log, large).count == 1
    assert folder.stored() == large


def test_a_gap_is_accepted_tc156(folder: LogFolder) -> None:
    log = folder.open()
    appended = append_copy(log, timed_set(1, base_offset=7) + timed_set(2, base_offset=20))
    assert (appended.first_offset, appended.last_offset) == (7, 20)
    assert log.log_end_offset == 21
    assert folder.times() == [(7, 1), (20, 2)]
    assert folder.append(3) == [21]


def test_the_wrapper_s_own_time_and_offset_count_tc157(folder: LogFolder) -> None:
    log = folder.open(index_interval_bytes=0)
    append_copy(log, timed_set(5, base_offset=4))
    wrapper = build_wrapper(
        timed_set(100, 300, 200), offset=7, timestamp_ms=300, magic=1, codec=GZIP
    )
    append_copy(log, wrapper)
    assert log.segments[0].largest == (300, 7)
    assert folder.time_entries() == [(300, 8)]
    assert folder.offset_entries() == [(7, 39)]


def test_recovery_believes_a_wrapper_s_own_time_s36(folder: LogFolder) -> None:
    log = folder.open(index_interval_bytes=0)
    append_copy(
        log, build_wrapper(timed_set(100, 200), offset=1, timestamp_ms=300, magic=1, codec=GZIP)
    )
    log = folder.kill_and_restart(checkpointed=False)
    assert log.segments[0].largest == (300, 1)
    assert folder.times() == [(0, 100), (1, 200)]


def test_a_partial_entry_at_the_end_is_dropped_fo10(folder: LogFolder) -> None:
    log = folder.open()
    data = timed_set(1, 2)
    assert append_copy(log, data + timed_set(3, base_offset=2)[:-1]).size_bytes == 78
    assert append_copy(log, timed_set(3, base_offset=2)[:20]).first_offset == -1
    assert log.log_end_offset == 2


def test_times_and_marks_of_a_producer_s_kind_are_not_judged_fo1(folder: LogFolder) -> None:
    data = timed_set(1, 2)
    set_append_time(data, 0, 27, NOW)
    set_timestamp(data, 39, 27, -5)
    log = folder.open(max_message_time_difference_ms=0, index_interval_bytes=0)
    append_copy(log, data)
    assert folder.times() == [(0, NOW), (1, -5)]
    assert folder.found(0) == [(NOW, 0)]


def test_only_negative_times_are_no_times(folder: LogFolder) -> None:
    data = timed_set(1, 2)
    set_timestamp(data, 0, 27, -5)
    set_timestamp(data, 39, 27, -7)
    log = folder.open(index_interval_bytes=0)
    append_copy(log, data)
    assert log.segments[0].largest_timestamp_ms == -1
    assert folder.time_entries() == []
    assert folder.found(0) == [None]
    assert reader.find_largest(log).run() is None
    folder.restart()
    assert folder.found(0) == [None]
    folder.kill_and_restart(checkpointed=False)
    assert folder.found(0) == [None]


@pytest.mark.parametrize(
    ("offset", "bases"),
    [
        pytest.param(MAX_RELATIVE - 1, [0], id="I-25-last-that-fits"),
        pytest.param(MAX_RELATIVE, [0, 1], id="I-25-next-offset-does-not-fit"),
        pytest.param(2**31, [0, 2], id="tc104-I-30"),
        pytest.param(2**40, [0, 2**40 + 1 - MAX_RELATIVE], id="I-30-far"),
    ],
)
@pytest.mark.parametrize("again", ["live", "clean", "unclean"])
def test_offsets_too_far_from_the_base_roll(
    folder: LogFolder, offset: int, bases: list[int], again: str
) -> None:
    """R-5."""
    log = folder.open(index_interval_bytes=0)
    append_copy(log, timed_set(10))
    append_copy(log, timed_set(20, base_offset=offset))
    if again == "clean":
        log = folder.restart()
    elif again == "unclean":
        log = folder.kill_and_restart(checkpointed=False)
    assert folder.bases() == bases
    assert log.log_end_offset == offset + 1
    assert folder.found(15, 21) == [(20, offset), None]
    assert reader.read(log, 1, 100).position == (39 if bases == [0] else 0)
    assert folder.append(30) == [offset + 1]


def test_a_far_first_entry_replaces_the_empty_segment(folder: LogFolder) -> None:
    """R-14."""
    log = folder.open()
    append_copy(log, timed_set(10, base_offset=2**40))
    assert folder.bases() == [2**40 + 1 - MAX_RELATIVE]
    assert len(folder.names(".log")) == 1
    assert folder.times() == [(2**40, 10)]


@pytest.mark.parametrize("first", [[], [5]], ids=["empty", "not-empty"])
def test_the_log_ends_in_its_last_segment_also_after_a_write_that_failed(
    folder: LogFolder, first: list[int]
) -> None:
    log = folder.open()
    folder.append(*first)
    folder.files.fail("pwrite", errno.ENOSPC, name=".log")
    far = timed_set(10, base_offset=2**40)
    with pytest.raises(StorageError):
        append_copy(log, bytearray(far))
    base_offset = 2**40 + 1 - MAX_RELATIVE
    assert (log.log_end_offset, log.high_watermark) == (base_offset, base_offset)
    assert folder.bases()[-1] == base_offset
    assert folder.append(20) == [base_offset]
    assert append_copy(log, far).first_offset == 2**40
    live = folder.content()
    folder.kill_and_restart(checkpointed=False)
    assert folder.content((".log", ".index", ".timeindex")).items() <= live.items()
    assert folder.times()[-2:] == [(base_offset, 20), (2**40, 10)]


def test_gaps_are_noted_once_and_before_the_data(folder: LogFolder) -> None:
    log = folder.open()
    noted: list[int] = []
    log.on_gaps = lambda log: noted.append(log.log_end_offset)
    append_copy(log, timed_set(1))
    append_copy(log, timed_set(2, base_offset=1))
    assert noted == [0]
    assert log.gaps


def test_what_could_not_be_noted_is_not_appended(folder: LogFolder) -> None:
    log = folder.open()

    def fail(log: Log) -> None:
        raise StorageError("the topics file cannot be written")

    log.on_gaps = fail
    for _ in range(2):
        with pytest.raises(StorageError):
            append_copy(log, timed_set(1, base_offset=7))
    assert (log.log_end_offset, log.gaps) == (0, False)


def test_gaps_are_no_damage_where_they_may_be_decision_21(folder: LogFolder) -> None:
    log = folder.open()
    append_copy(log, timed_set(1, base_offset=7) + timed_set(2, base_offset=20))
    folder.let_go()
    log = folder.open(clean=False, gaps=True)
    assert folder.times() == [(7, 1), (20, 2)]
    assert log.gaps


def test_gaps_are_damage_where_only_produce_wrote_decision_21(folder: LogFolder) -> None:
    log = folder.open()
    append_copy(log, timed_set(1, base_offset=0) + timed_set(2, base_offset=20))
    folder.let_go()
    folder.open(clean=False, gaps=False)
    assert folder.times() == [(0, 1)]
    assert len(folder.names(".broken")) == 1


@pytest.mark.parametrize(("base", "rolled"), [(0, None), (1, "leader")])
def test_segments_begin_where_the_leader_s_do_whatever_the_times_fo6(
    folder: LogFolder, base: int, rolled: str | None
) -> None:
    log = folder.open(segment_ms=100, segment_bytes=39)
    append_copy(log, timed_set(1000))
    folder.clock.advance(DAY_MS)
    facts = CopyFacts(1, base, 0, 0, False, (EpochStart(-1, 1),), ((1, NOW),), 2)
    assert ReplicaLog(log).append(timed_set(9000, base_offset=1), facts).rolled == rolled
    assert folder.bases() == sorted({0, base})


@pytest.mark.parametrize("entry_first_offset", [5, 7])
def test_an_offset_index_in_kafka_s_way_leads_to_the_same_entries(
    folder: LogFolder, entry_first_offset: int
) -> None:
    """Kafka notes a wrapper's first message, we its last: from both every offset is found."""
    log = folder.open(index_interval_bytes=10**9)
    append_copy(log, timed_set(1, 2, 3, 4, 5))
    wrapper = build_wrapper(
        timed_set(100, 300, 200), offset=7, timestamp_ms=300, magic=1, codec=GZIP
    )
    append_copy(log, wrapper)
    append_copy(log, timed_set(6, base_offset=8))
    segment = log.segments[0]
    segment.offset_index.add(entry_first_offset, 5 * 39)
    positions = [segment.locate(offset) for offset in range(10)]
    last = 5 * 39 + len(wrapper)
    assert positions == [0, 39, 78, 117, 156, 195, 195, 195, last, last + 39]
    log.truncate(6)
    assert (log.size_bytes, folder.offset_entries()) == (5 * 39, [])
    assert folder.append(9) == [6]
    assert reader.read(log, 6, 100).position == 5 * 39


def test_retention_stops_at_the_high_watermark_in_front_of_a_jump(folder: LogFolder) -> None:
    """The offsets that are missing belong to the segment before them."""
    log = folder.open(retention_ms=10)
    folder.append(1000)
    log.appender.roll()
    log.hold_high_watermark(1)
    append_copy(log, timed_set(2000, base_offset=2**31 + 20))
    log.expiry.maintain(folder.clock.now_ms())
    assert (log.log_start_offset, log.segments[0].next_offset) == (0, log.segments[1].base_offset)
    log.hold_high_watermark(None)
    log.expiry.maintain(folder.clock.now_ms())
    assert log.log_start_offset == log.log_end_offset
