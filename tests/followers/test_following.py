"""Appending as a follower: what is refused changes nothing, what is taken is the leader's."""

import errno
import os
from collections.abc import Sequence
from random import Random

import pytest

from horolog.protocol.errors import (
    CorruptMessage,
    HorologError,
    InvalidRequest,
    OffsetOutOfRange,
    StorageError,
)
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import build_wrapper
from horolog.storage.files import Buffer
from horolog.storage.log.epoch_history import EpochStart
from horolog.storage.names import MAX_OFFSET
from horolog.storage.read import reader
from horolog.storage.replica.copy_facts import CopyFacts
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.storage.segment.segment import FarAway
from horolog.testing.logs import LogFolder, empty_batch, timed_set, untimed_set
from horolog.tests.followers.appending import append_copy
from horolog.times import later

from .copies import (
    Filling,
    assert_equal,
    assert_outlook_equal,
    copied,
    copy_all,
    copy_from_log_start,
    copy_once,
)

YEARS_AGO = 1_000_000_000_000


def facts(
    offset: int,
    *,
    base: int = 0,
    gaps: bool = False,
    epoch: int = -1,
    spans: tuple[tuple[int, int], ...] = (),
    times_end: int = 100,
) -> CopyFacts:
    return CopyFacts(
        offset, base, 0, 0, gaps, (EpochStart(epoch, offset),), spans or ((offset, 7),), times_end
    )


@pytest.mark.parametrize(
    ("data", "told", "error", "words"),
    [
        pytest.param(
            timed_set(1, base_offset=2), facts(3), InvalidRequest, "comes where 3", id="below"
        ),
        pytest.param(
            timed_set(1, base_offset=4), facts(3), InvalidRequest, "no gaps", id="a-gap-of-its-own"
        ),
        pytest.param(
            timed_set(1, base_offset=5) + timed_set(1, base_offset=5),
            facts(3, gaps=True),
            InvalidRequest,
            "next entry is below",
            id="equal",
        ),
        pytest.param(
            timed_set(1, base_offset=9) + timed_set(1, base_offset=4),
            facts(3, gaps=True),
            InvalidRequest,
            "next entry is below",
            id="falling",
        ),
        pytest.param(
            timed_set(1, base_offset=3)[:-1] + b"!", facts(3), CorruptMessage, "CRC", id="crc"
        ),
        pytest.param(
            timed_set(1, base_offset=3) + bytes(40), facts(3), CorruptMessage, "0 bytes", id="size"
        ),
        pytest.param(
            build_wrapper(timed_set(1, 2, 3), offset=9, timestamp_ms=3, magic=1, codec=Codec.GZIP),
            facts(3),
            InvalidRequest,
            "no gaps",
            id="the-offset-of-a-wrapper",
        ),
        pytest.param(
            timed_set(1, base_offset=3), facts(2), InvalidRequest, "ends at 3", id="of-another-end"
        ),
        pytest.param(
            timed_set(1, base_offset=3),
            facts(3, base=4),
            InvalidRequest,
            "begins at 4",
            id="segment-behind",
        ),
        pytest.param(b"", facts(3, base=4), InvalidRequest, "no gaps", id="segment-after-a-gap"),
        pytest.param(
            timed_set(1, base_offset=MAX_OFFSET),
            facts(3, gaps=True, times_end=MAX_OFFSET),
            InvalidRequest,
            "offsets end at",
            id="an-offset-that-none-follows",
        ),
        pytest.param(
            timed_set(1, base_offset=3),
            facts(3, epoch=1),
            InvalidRequest,
            "has to be cut",
            id="an-older-epoch",
        ),
        pytest.param(
            timed_set(1, base_offset=3),
            facts(3, spans=((4, 7),)),
            InvalidRequest,
            "append times",
            id="times",
        ),
        pytest.param(
            b"\0\0\0\0\0\0\0\3\x7f\xff\xff\xff" + bytes(60), facts(3), None, "", id="cut-off"
        ),
        pytest.param(b"\0\0", facts(3), None, "", id="two-bytes"),
    ],
)
def test_refused_without_a_trace_fo2_fo8(
    follower: LogFolder, data: bytes, told: CopyFacts, error: type[HorologError] | None, words: str
) -> None:
    log = follower.open(follows=True)
    ReplicaLog(log).append(timed_set(1, 2, 3), facts(0, epoch=4))
    before = follower.content()
    if error is None:
        assert ReplicaLog(log).append(data, told).count == 0
    else:
        with pytest.raises(error, match=words):
            ReplicaLog(log).append(data, told)
    assert follower.content() == before
    assert (log.log_end_offset, log.segment_count, log.gaps) == (3, 1, False)
    assert log.epochs.history.starts == ((4, 0),)


def test_nothing_is_judged_stamped_or_limited_fo1_fo7(
    leader: LogFolder, follower: LogFolder
) -> None:
    leader.open()
    leader.append(1, YEARS_AGO, leader.clock.now_ms() + 10**10)
    leader.log.appender.append(timed_set(5, value=b"x" * 500))
    follower.open(
        follows=True,
        message_timestamp_type="LogAppendTime",
        max_message_time_difference_ms=1,
        compression_type="lz4",
        message_format_version="0.9.0",
        max_message_bytes=1,
        segment_bytes=50,
        segment_ms=1,
    )
    copy_all(leader, follower)
    assert_equal(leader, follower)


def test_gaps_are_taken_over(leader: LogFolder, follower: LogFolder) -> None:
    leader.open(segment_bytes=120)
    append_copy(leader.log, timed_set(1, base_offset=3))
    append_copy(leader.log, timed_set(2, base_offset=9) + timed_set(3, base_offset=2**31 - 5))
    leader.append(4, 5)
    noted: list[int] = []
    follower.open(follows=True)
    follower.log.on_gaps = lambda log: noted.append(log.log_end_offset)
    copy_all(leader, follower, 60)
    assert noted == [0]
    assert_equal(leader, follower)
    follower.restart()
    assert_equal(leader, follower)


def test_a_segment_is_begun_when_the_leader_s_is_also_without_a_message(
    leader: LogFolder, follower: LogFolder
) -> None:
    leader.open()
    leader.append(1, 2)
    follower.open(follows=True)
    copy_once(leader, follower, 1000)
    leader.log.appender.roll()
    assert follower.bases() == [0]
    copy_once(leader, follower, 1000)
    assert follower.bases() == leader.bases() == [0, 2]
    assert_equal(leader, follower)


def test_a_segment_that_the_new_leader_has_not_is_joined_again(
    leader: LogFolder, follower: LogFolder
) -> None:
    leader.open(index_interval_bytes=0)
    leader.append(5, 1, 2)
    follower.open(follows=True, index_interval_bytes=0)
    copy_all(leader, follower)
    follower.log.appender.roll()
    assert follower.bases() == [0, 3]
    for again in (False, True):
        if again:
            follower.log.appender.roll()
            follower.restart()
        leader.append(6)
        copy_all(leader, follower)
        assert follower.bases() == [0]
        assert_equal(leader, follower)


def test_segments_that_were_not_begun_together_stay_until_the_next(
    leader: LogFolder, follower: LogFolder
) -> None:
    leader.open()
    leader.append(1, 2, 3, 4)
    follower.open(follows=True)
    copy_once(leader, follower, 80)
    follower.log.appender.roll()
    ReplicaLog(follower.log).append(copied(leader, 2, 39)[0], facts(2, base=2))
    copy_all(leader, follower)
    assert follower.bases() == [0, 2]
    leader.log.appender.roll()
    leader.append(5)
    copy_all(leader, follower)
    assert (follower.bases(), leader.bases()) == ([0, 2, 4], [0, 4])
    assert follower.times() == leader.times()


def test_files_without_times_are_as_old_as_the_leader_s_decision_6(
    leader: LogFolder, follower: LogFolder
) -> None:
    leader.open(retention_ms=1000)
    follower.open(follows=True, retention_ms=1000)
    for number in range(3):
        leader.log.appender.append(untimed_set(2))
        at_ns = (YEARS_AGO + number) * 1_000_000
        os.utime(leader.log.segments[-1].log_path, ns=(at_ns, at_ns))
        if number < 2:
            leader.log.appender.roll()
    copy_all(leader, follower, 20)
    assert [s.age_from_ms for s in follower.log.segments] == [YEARS_AGO + n for n in range(3)]
    assert_equal(leader, follower)
    # A kill between writing and dating is put right with the next segment's begin.
    follower.log.segments[-1].log_path.touch()
    leader.log.appender.roll()
    leader.log.appender.append(untimed_set(1))
    copy_all(leader, follower)
    assert_equal(leader, follower)


@pytest.mark.parametrize("timed", [[], [5]])
def test_a_copy_that_begins_inside_a_segment_is_as_old_as_that_decision_6(
    leader: LogFolder, follower: LogFolder, timed: list[int]
) -> None:
    """Where no message from the log start on has a time, whatever is below."""
    leader.open()
    follower.open(follows=True, high_watermark=0)
    leader.append(*timed)
    for _ in range(4):
        leader.log.appender.append(untimed_set(1))
    leader.log.flusher.flush()
    leader.log.expiry.trim(2)
    at_ns = YEARS_AGO * 1_000_000
    os.utime(leader.log.segments[0].log_path, ns=(at_ns, at_ns))
    copy_from_log_start(leader, follower, 1000)
    assert follower.bases() == [2]
    assert follower.log.segments[0].age_from_ms == YEARS_AGO
    assert_outlook_equal(leader, follower)


def test_a_closed_file_is_as_old_as_the_leader_s(leader: LogFolder, follower: LogFolder) -> None:
    """A trim may leave messages without a time alone in it."""
    leader.open()
    follower.open(follows=True, high_watermark=0)
    leader.append(5)
    leader.log.appender.append(untimed_set(2))
    copy_all(leader, follower)
    at_ns = YEARS_AGO * 1_000_000
    os.utime(leader.log.segments[0].log_path, ns=(at_ns, at_ns))
    leader.log.appender.roll()
    leader.append(6)
    copy_all(leader, follower)
    leader.log.flusher.flush()
    leader.log.expiry.trim(1)
    copy_all(leader, follower)
    assert follower.log.log_start_offset == 1
    assert_outlook_equal(leader, follower)
    verdict, _ = follower.log.expiry.plan_retention(YEARS_AGO).verdicts
    assert verdict.expires_ms == later(YEARS_AGO, follower.log.settings.retention_ms + 1)


def test_a_lost_file_keeps_no_message_back_behind_it(
    leader: LogFolder, follower: LogFolder
) -> None:
    leader.open()
    follower.open(follows=True, high_watermark=0)
    leader.append(5)
    copy_all(leader, follower)
    leader.log.appender.roll()
    leader.append(6)
    leader.log.segments[0].log_path.unlink()
    copy_all(leader, follower)
    assert follower.bases() == [0, 1]


def test_nothing_expires_or_rolls_by_itself(leader: LogFolder, follower: LogFolder) -> None:
    leader.open(segment_bytes=80)
    leader.append(1, 2, 3, 4, 5)
    log = follower.open(follows=True, retention_ms=1, retention_bytes=0, segment_ms=1)
    copy_all(leader, follower)
    follower.clock.advance(10**10)
    plan = log.expiry.maintain(follower.clock.now_ms())
    assert (plan.delete_count, plan.roll_active) == (0, False)
    assert not log.expiry.roll_if_idle(follower.clock.now_ms())
    log.expiry.roll_before(5)
    assert follower.bases() == leader.bases()
    assert log.log_start_offset == 0
    ReplicaLog(log).begin_to_lead(1)
    log.expiry.maintain(follower.clock.now_ms())
    assert log.log_start_offset == 5


def test_the_log_start_comes_from_the_leader_once_what_is_below_is_safe(
    leader: LogFolder, follower: LogFolder
) -> None:
    leader.open(segment_bytes=80)
    leader.append(1, 2, 3, 4, 5)
    log = follower.open(follows=True)
    copy_all(leader, follower)
    assert ReplicaLog(log).begin_at(3) == 0
    log.flusher.flush()
    assert ReplicaLog(log).begin_at(3) == 3
    log.expiry.drop_expired()
    assert follower.bases() == [2, 4]
    assert ReplicaLog(log).begin_at(1) == 3
    assert ReplicaLog(log).begin_at(99) == 5


def test_a_copy_begins_with_the_oldest_segment(leader: LogFolder, follower: LogFolder) -> None:
    leader.open(segment_bytes=120)
    leader.append(1, 2, 3, 4, 5, 6, 7)
    leader.log.flusher.flush()
    leader.log.expiry.trim(4)
    leader.log.expiry.drop_expired()
    assert leader.bases() == [3, 6]
    with pytest.raises(OffsetOutOfRange, match="3 \\(oldest segment\\) to 7"):
        ReplicaLog(leader.log).read(2, 100)
    with pytest.raises(OffsetOutOfRange):
        ReplicaLog(leader.log).read(8, 100)
    follower.open(follows=True, high_watermark=0)
    copy_all(leader, follower)
    follower.log.flusher.flush()
    assert ReplicaLog(follower.log).begin_at(4) == 4
    assert follower.log.high_watermark == 4
    assert_equal(leader, follower)
    assert [offset for offset, _ in follower.times()] == [4, 5, 6]


def test_what_the_leader_has_not_synced_and_nobody_sees_is_copied(
    leader: LogFolder, follower: LogFolder
) -> None:
    leader.open()
    leader.log.hold_high_watermark(0)
    leader.append(1, 2)
    follower.open(follows=True, high_watermark=0)
    copy_all(leader, follower)
    assert (follower.log.log_end_offset, follower.log.high_watermark) == (2, 0)
    assert follower.times() == []
    follower.log.hold_high_watermark(1)
    assert follower.times() == [(0, 1)]


def test_the_epochs_of_a_stretch_may_be_written_in_another_thread(
    leader: LogFolder, follower: LogFolder
) -> None:
    leader.open(follows=True)
    log = follower.open(follows=True)
    for epoch in (3, 4):
        ReplicaLog(leader.log).begin_to_lead(epoch)
        leader.append(1, 2)
        data, told = copied(leader, log.log_end_offset, 1000)
        write = ReplicaLog(log).appending(data, told)
        assert write is not None
        write.run()
        follower.files.fail("pwrite", errno.EIO, name="checkpoint.tmp")
        ReplicaLog(log).append(data, told, write)
        assert follower.files.heal()
        assert ReplicaLog(log).last_epoch == epoch
        leader.append(3)
        data, told = copied(leader, log.log_end_offset, 1000)
        assert ReplicaLog(log).appending(data, told) is None
        ReplicaLog(log).append(data, told)
    assert_equal(leader, follower)
    with pytest.raises(InvalidRequest):
        ReplicaLog(log).appending(timed_set(1), facts(5, epoch=9))


def test_append_times_are_looked_at_in_pieces(leader: LogFolder) -> None:
    leader.open()
    leader.append(1, 2, 3)
    leader.restart()
    leader.log.prepare()
    with pytest.raises(FarAway):
        ReplicaLog(leader.log).read(0, 100, far=False)
    while not reader.append_times_loaded(leader.log, 0):
        pass
    assert ReplicaLog(leader.log).read(0, 100, far=False).found.size == 100


def test_a_full_disk_leaves_all_as_it_was(leader: LogFolder, follower: LogFolder) -> None:
    leader.open(follows=True)
    ReplicaLog(leader.log).begin_to_lead(1)
    leader.append(1, 2)
    log = follower.open(follows=True)
    for kind, name in [("pwrite", "checkpoint.tmp"), ("pwrite", ".log"), ("pwrite", ".appendtime")]:
        follower.files.fail(kind, errno.ENOSPC, name=name)
        with pytest.raises(StorageError):
            copy_once(leader, follower, 1000)
        follower.files.heal()
        assert (log.log_end_offset, log.size_bytes) == (0, 0)
    copy_all(leader, follower)
    assert_equal(leader, follower)


def test_a_retry_after_a_failover_is_recognised(leader: LogFolder, follower: LogFolder) -> None:
    leader.open(follows=True)
    filling = Filling(leader, Random(3))
    filling.lead()
    for _ in range(5):
        filling.number()
    follower.open(follows=True)
    copy_all(leader, follower)
    follower.kill_and_restart()
    ReplicaLog(follower.log).begin_to_lead(9)
    first = leader.log.appender.append(bytearray(filling.last_sent[-1]))
    again = follower.log.appender.append(bytearray(filling.last_sent[-1]))
    assert again.repeated
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)


def test_sendfile_gets_the_bytes_where_they_lie(leader: LogFolder) -> None:
    leader.open()
    leader.append(1, 2, 3)
    copy = ReplicaLog(leader.log).read(1, 50)
    stretch = copy.found.stretch()
    assert stretch is not None
    data = stretch.file.pread(len(stretch), stretch.position)
    assert data == copied(leader, 1, 50)[0]
    assert len(data) == 50
    leader.log.truncate(1)
    assert not stretch.intact
    del stretch


def lead_what_kafka_left(leader: LogFolder, parts: Sequence[Buffer]) -> None:
    """Let `leader` lead with a log file that was written elsewhere."""
    (leader.path / f"{0:020d}.log").write_bytes(b"".join(parts))
    leader.open(clean=False, gaps=True, follows=True, index_interval_bytes=0, retention_ms=-1)
    ReplicaLog(leader.log).begin_to_lead(1)


@pytest.mark.parametrize("max_bytes", [1, 100, 1 << 20])
def test_a_stretch_of_batches_without_records_is_copied(
    leader: LogFolder, follower: LogFolder, max_bytes: int
) -> None:
    parts = [empty_batch(0, 5), timed_set(1, 2, magic=2, base_offset=5), empty_batch(9, 20)]
    lead_what_kafka_left(leader, [*parts, empty_batch(20, 21, producer_id=7, base_sequence=3)])
    follower.open(high_watermark=0, follows=True, index_interval_bytes=0)
    copy_all(leader, follower, max_bytes)
    assert follower.log.log_end_offset == 21
    assert_equal(leader, follower)
    leader.append(3)
    copy_all(leader, follower, max_bytes)
    assert_equal(leader, follower)
    follower.kill_and_restart(checkpointed=False)
    assert_equal(leader, follower, lost=True)


@pytest.mark.parametrize("far", [2**31 - 2, 2**31 - 1, 2**31, 2**40])
def test_messages_too_far_for_an_index_are_copied(
    leader: LogFolder, follower: LogFolder, far: int
) -> None:
    """I-30, FO-2: the follower has them in the same segment as the leader."""
    offsets = [0, 1, far, far + 1, 3 * far]
    times = [50, 10, 30, 70, 60]
    parts = [
        bytes(timed_set(ms, base_offset=offset)) for ms, offset in zip(times, offsets, strict=True)
    ]
    lead_what_kafka_left(leader, parts)
    follower.open(high_watermark=0, follows=True, index_interval_bytes=0)
    for max_bytes in (100, 1 << 20):
        copy_all(leader, follower, max_bytes)
        assert_equal(leader, follower)
        assert follower.bases() == [0]
        follower.kill_and_restart(checkpointed=max_bytes == 100)
        assert_equal(leader, follower)
    assert leader.append(65) == [3 * far + 1]
    copy_all(leader, follower)
    assert_equal(leader, follower)
    assert follower.bases() == [0, 3 * far + 1]


def test_append_times_too_far_for_an_entry_are_unknown(follower: LogFolder) -> None:
    """Whatever the leader says of them: they would be those of the messages before."""
    log = follower.open(follows=True, index_interval_bytes=0)
    ReplicaLog(log).append(timed_set(1, 2), facts(0, times_end=2))
    far = timed_set(3, base_offset=2**31 - 2) + timed_set(4, base_offset=2**31 - 1)
    spans = ((2, 8), (2**31 - 1, 9))
    ReplicaLog(log).append(far, facts(2, gaps=True, spans=spans, times_end=2**31))
    ReplicaLog(log).append(
        timed_set(5, base_offset=2**40), facts(2**31, gaps=True, times_end=2**40 + 1)
    )
    for opened in (log, follower.restart()):
        known = {at: reader.append_time_ms(opened, at) for at, _ in follower.times()}
        assert known == {0: 7, 1: 7, 2**31 - 2: 8, 2**31 - 1: -1, 2**40: -1}
