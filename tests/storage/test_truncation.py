"""Cutting the end of a log off (rules TR-*)."""

import os
from random import Random

import pytest

from horolog.protocol.records.layout import Codec
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, delete_due, timed_set, untimed_set
from horolog.tests.followers.appending import append_copy

GZIP = Codec.GZIP
SUFFIXES = (".log", ".index", ".timeindex")


def five_messages(folder: LogFolder, segment_bytes: int = 78) -> None:
    folder.open(index_interval_bytes=0, segment_bytes=segment_bytes)
    folder.append(50, 10, 40, 20, 30)


@pytest.mark.parametrize(
    ("offset", "end", "bases", "times"),
    [
        pytest.param(5, 5, [0, 2, 4], [50, 10, 40, 20, 30], id="tc147-TR-1-log-end"),
        pytest.param(6, 5, [0, 2, 4], [50, 10, 40, 20, 30], id="tc147-TR-1-beyond"),
        pytest.param(4, 4, [0, 2, 4], [50, 10, 40, 20], id="TR-1-base-of-the-active-one"),
        pytest.param(3, 3, [0, 2], [50, 10, 40], id="tc147-TR-1-middle"),
        pytest.param(2, 2, [0, 2], [50, 10], id="TR-1-base-of-a-closed-one"),
        pytest.param(1, 1, [0], [50], id="TR-1-first-segment"),
        pytest.param(0, 0, [0], [], id="tc147-TR-1-everything"),
    ],
)
@pytest.mark.parametrize("again", ["live", "clean", "unclean"])
def test_truncate(
    folder: LogFolder, offset: int, end: int, bases: list[int], times: list[int], again: str
) -> None:
    five_messages(folder)
    log = folder.log
    log.truncate(offset)
    if again == "clean":
        log = folder.restart()
    elif again == "unclean":
        log = folder.kill_and_restart(checkpointed=False)
    assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (end, end, 0)
    assert folder.bases() == bases
    assert [at for _, at in folder.times()] == times
    assert folder.found(0, 45, 51) == [
        (50, 0) if times else None,
        (50, 0) if times else None,
        None,
    ]
    assert folder.append(60) == [end]
    assert folder.times()[-1] == (end, 60)


def test_a_negative_offset_is_refused_tr1(folder: LogFolder) -> None:
    five_messages(folder)
    with pytest.raises(ValueError, match="-1"):
        folder.log.truncate(-1)
    assert folder.log.log_end_offset == 5


@pytest.mark.parametrize(
    ("times", "offset", "largest", "found"),
    [
        pytest.param(list(range(1, 11)), 5, 5, (5, 4), id="tc148-TR-4-rising"),
        pytest.param([10, 1, 2, 3], 3, 10, (10, 0), id="tc149-TR-4-largest-first"),
        pytest.param([-1, -1, 5], 2, -1, None, id="tc150-TR-4-no-time-left"),
        pytest.param([1, 10, 2], 1, 1, (1, 0), id="TR-4-largest-is-cut-off"),
        pytest.param([400] * 30, 1, 400, (400, 0), id="TR-5-pinned"),
    ],
)
@pytest.mark.parametrize("interval", [0, 77, 4096])
@pytest.mark.parametrize("rolled", [False, True])
def test_the_largest_timestamp_left(
    folder: LogFolder,
    times: list[int],
    offset: int,
    largest: int,
    found: tuple[int, int] | None,
    interval: int,
    rolled: bool,
) -> None:
    log = folder.open(index_interval_bytes=interval)
    folder.append(*times)
    if rolled:
        log.appender.roll()
    log.truncate(offset)
    assert log.segments[-1].largest_timestamp_ms == largest
    assert folder.found(max(largest, 0)) == [found]
    assert reader.find_largest(log).run() == (
        reader.find_time(log, max(largest, 0)).run() if found else None
    )
    assert folder.append(largest + 1) == [offset]
    assert folder.found(largest + 1) == [(largest + 1, offset)]


def test_pinned_truncation_tr5(folder: LogFolder) -> None:
    log = folder.open(index_interval_bytes=77)
    log.truncate_fully(40)
    folder.append(*[400] * 30)
    log.truncate(41)
    assert folder.time_entries() == []
    assert log.segments[-1].largest_timestamp_ms == 400


def test_without_times_left_the_file_s_time_counts_tc150(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(untimed_set())
    folder.append(5)
    log.truncate(1)
    segment = log.segments[-1]
    assert segment.age_from_ms == segment.modified_ms > 5


@pytest.mark.parametrize("offset", [5, 6, 7])
def test_a_wrapper_goes_as_a_whole_tc151(folder: LogFolder, offset: int) -> None:
    """I-26."""
    log = folder.open(index_interval_bytes=0)
    folder.append(1, 2, 3, 4, 5)
    wrapper = timed_set(100, 300, 200, codec=GZIP)
    log.appender.append(bytes(wrapper))
    folder.append(400)
    whole = folder.stored()
    log.truncate(offset)
    assert (log.log_end_offset, log.size_bytes) == (offset, 5 * 39)
    assert log.segments[-1].largest_timestamp_ms == 5
    assert folder.found(6) == [None]
    log.truncate(5)  # as a follower does, which goes on with whole entries
    append_copy(log, whole[5 * 39 :])
    assert folder.stored() == whole
    assert folder.found(150, 301) == [(300, 6), (400, 8)]


@pytest.mark.parametrize("again", ["live", "clean", "unclean"])
def test_a_hole_that_a_truncation_leaves_is_no_damage(folder: LogFolder, again: str) -> None:
    log = folder.open()
    log.appender.append(timed_set(1, 2, 3, codec=GZIP))
    log.truncate(2)
    noted: list[bool] = []
    log.on_gaps = lambda log: noted.append(log.gaps)
    assert folder.append(4, 5) == [2, 3]
    if again == "clean":
        log = folder.restart()
    elif again == "unclean":
        log = folder.kill_and_restart(checkpointed=False)
    assert folder.times() == [(2, 4), (3, 5)]
    assert log.log_end_offset == 4
    assert folder.names(".broken") == []


def test_an_empty_active_segment_tc152(folder: LogFolder) -> None:
    """B-13."""
    log = folder.open(index_interval_bytes=0)
    folder.append(1, 2)
    log.appender.roll()
    log.truncate(2)
    assert folder.bases() == [0, 2]
    assert folder.append(3, 4, 5) == [2, 3, 4]
    assert folder.times() == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert len(folder.time_entries()) == 2


def test_an_empty_active_segment_at_a_lower_offset_tc152(folder: LogFolder) -> None:
    log = folder.open(index_interval_bytes=0)
    folder.append(1, 2)
    log.appender.roll()
    log.truncate(1)
    assert folder.bases() == [0]
    assert folder.append(3) == [1]
    log.appender.roll()
    assert folder.append(4) == [2]
    assert folder.times() == [(0, 1), (1, 3), (2, 4)]


@pytest.mark.parametrize("offset", [500, 3, 0])
def test_full_truncation_tc153(folder: LogFolder, offset: int) -> None:
    five_messages(folder)
    log = folder.log
    log.truncate_fully(offset)
    facts = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.segment_count)
    assert facts == (offset, offset, offset, 1)
    assert folder.bases() == [offset]
    assert log.recovery_point == min(offset, 0)
    assert folder.append(7) == [offset]
    assert folder.times() == [(offset, 7)]
    log = folder.restart()
    assert folder.times() == [(offset, 7)]
    assert folder.bases() == [offset]


def test_below_the_first_segment_is_a_full_truncation_tr1(folder: LogFolder) -> None:
    log = folder.open()
    log.truncate_fully(100)
    folder.append(1, 2)
    log.truncate(50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert folder.bases() == [50]


def test_a_log_start_above_the_cut_moves_down(folder: LogFolder) -> None:
    folder.open()
    folder.append(1, 2, 3, 4)
    folder.log.close()
    log = folder.open(log_start_offset=3)
    log.truncate(2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)


def test_what_is_cut_off_waits_as_deleted_files(folder: LogFolder) -> None:
    five_messages(folder)
    folder.log.truncate(1)
    assert folder.names(".log.deleted") == [
        "00000000000000000002.log.deleted",
        "00000000000000000004.log.deleted",
    ]
    folder.clock.advance(60_000)
    assert delete_due(folder.deletions) == 8
    assert folder.names(".deleted") == []


@pytest.mark.parametrize("offset", [5, 6])
def test_a_cut_of_nothing_leaves_the_file_s_time_rt14(folder: LogFolder, offset: int) -> None:
    five_messages(folder)
    path = folder.log.segments[-1].log_path
    os.utime(path, ns=(10**15, 10**15))
    folder.log.truncate(offset)
    assert path.stat().st_mtime_ns == 10**15
    folder.log.truncate(4)
    assert folder.log.segments[-1].log_path.stat().st_mtime_ns != 10**15


def test_the_recovery_point_moves_down_tr1(folder: LogFolder) -> None:
    """TR-8."""
    five_messages(folder)
    folder.log.flusher.flush()
    assert folder.log.recovery_point == 5
    folder.log.truncate(3)
    assert folder.log.recovery_point == 3


def test_a_sync_under_way_does_not_cover_what_comes_after_a_cut(folder: LogFolder) -> None:
    five_messages(folder, segment_bytes=4096)
    log = folder.log
    work = log.flusher.begin_flush()
    assert work is not None
    work.run()
    log.truncate(2)
    folder.append(*range(10))
    log.flusher.end_flush(work)
    assert log.recovery_point == 2


def test_seals_of_what_was_cut_are_forgotten(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=0)
    folder.append(50, 10, 40)
    folder.log.appender.roll()
    folder.append(20)
    folder.log.flusher.flush()
    checksum = (folder.path / "index-checksums").read_bytes()
    folder.log.truncate(3)
    folder.log.truncate(2)
    folder.append(99)
    folder.log.flusher.flush()
    assert (folder.path / "index-checksums").read_bytes() == b"0\n"
    # Even the old checksums, left there by a crash, make nothing believed.
    (folder.path / "index-checksums").write_bytes(checksum)
    folder.kill_and_restart()
    assert folder.found(51, 45) == [(99, 2), (50, 0)]


@pytest.mark.parametrize("seed", range(6))
def test_random_truncations_v7(folder: LogFolder, seed: int) -> None:
    random = Random(seed)
    interval = random.choice((0, 60, 300))
    folder.open(index_interval_bytes=interval, segment_bytes=400)
    expected: list[int] = []
    for _ in range(25):
        for _ in range(random.randrange(8)):
            at = random.choice((-1, random.randrange(1000)))
            folder.append(at)
            expected.append(at)
        cut = random.randrange(len(expected) + 1)
        if random.random() < 0.3:
            folder.restart().prepare()
        folder.log.truncate(cut)
        del expected[cut:]
        assert [at for _, at in folder.times()] == expected
        largest = reader.find_largest(folder.log).run()
        assert (largest.timestamp_ms if largest else -1) == max(expected, default=-1)
        for segment, following in zip(
            folder.log.segments, [*folder.bases()[1:], len(expected)], strict=True
        ):
            held = expected[segment.base_offset : following]
            assert segment.largest_timestamp_ms == max(held, default=-1)


def test_indexes_after_a_truncation_equal_rebuilt_ones(folder: LogFolder) -> None:
    """TR-2."""
    folder.open(index_interval_bytes=100)
    folder.append(*range(0, 400, 10))
    folder.log.truncate(23)
    folder.append(*range(500, 600, 10))
    live = folder.content(SUFFIXES)
    folder.kill_and_restart(checkpointed=False)
    assert folder.content(SUFFIXES) == live
