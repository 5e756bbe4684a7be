"""Append times of a log, through all that can happen to it."""

import errno
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.protocol.errors import HorologError, StorageError
from horolog.protocol.records.layout import Codec
from horolog.storage.read import reader, windows
from horolog.storage.read.windows import ReadWindow
from horolog.testing.logs import ENTRY_BYTES, LogFolder, delete_due, timed_set, untimed_set
from horolog.tests.followers.appending import append_copy
from horolog.tests.properties.window_reading import read_window

NOW = 1_479_144_272_509
SUFFIXES = (".log", ".index", ".timeindex", ".appendtime")
Times = list[int | None]


def append(folder: LogFolder, *sizes: int, codec: Codec = Codec.NONE, step_ms: int = 10) -> None:
    """Sets of so many messages, one every ten milliseconds; the first is at `NOW`."""
    for size in sizes:
        folder.log.appender.append(timed_set(*[5] * size, codec=codec))
        folder.clock.step(step_ms)


def known(folder: LogFolder, start: int = 0) -> Times:
    """How long after `NOW` each message was appended; `None` is unknown."""
    log = folder.log
    if not log.prepared:
        log.prepare()
    times = [reader.append_time_ms(log, offset) for offset in range(start, log.log_end_offset)]
    return [None if ms == -1 else ms - NOW for ms in times]


def content(folder: LogFolder, base_offset: int = 0) -> list[tuple[int, int]]:
    data = (folder.path / f"{base_offset:020d}.appendtime").read_bytes()
    return [(relative, ms - NOW) for relative, ms in struct.iter_unpack(">iq", data)]


def found(folder: LogFolder, target: int) -> tuple[int, int] | None:
    folder.log.prepare()
    result = reader.find_append_time(folder.log, NOW + target).run()
    return None if result is None else (result.offset, result.timestamp_ms - NOW)


def test_one_entry_for_each_set_decision_28(folder: LogFolder) -> None:
    folder.open()
    append(folder, 2, 1, 3)
    append(folder, 2, codec=Codec.GZIP)
    assert content(folder) == [(0, 0), (2, 10), (3, 20), (6, 30)]
    assert known(folder) == [0, 0, 10, 20, 20, 20, 30, 30]
    assert {record.timestamp_ms for record in folder.records()} == {5}


def test_a_log_append_time_topic_has_its_stamp(folder: LogFolder) -> None:
    folder.open(message_timestamp_type="LogAppendTime")
    append(folder, 1, 1, step_ms=-100)
    folder.clock.step(1000)
    append(folder, 1)
    assert [record.timestamp_ms - NOW for record in folder.records()] == [0, 0, 800]
    assert known(folder) == [0, 0, 800]


def test_a_clock_that_steps_back(folder: LogFolder) -> None:
    folder.open(segment_bytes=78)
    append(folder, 1, 1, 1, step_ms=-30)
    append(folder, 1, 1)
    assert known(folder) == [0, -30, -60, -90, -80]
    assert folder.bases() == [0, 2, 4]
    expected = {-90: (0, 0), 0: (0, 0), 1: None}
    assert {target: found(folder, target) for target in expected} == expected


def test_messages_without_a_time_have_an_append_time(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(untimed_set(2))
    folder.clock.step(7)
    log.appender.append(timed_set(-1))
    assert known(folder) == [0, 0, 7]
    assert found(folder, 1) == (2, 7)


def test_each_segment_has_a_file(folder: LogFolder) -> None:
    folder.open(segment_bytes=78)
    append(folder, 1, 1, 1, 2, 1)
    assert folder.bases() == [0, 2, 3, 5]
    assert folder.names(".appendtime") == [f"{base:020d}.appendtime" for base in (0, 2, 3, 5)]
    assert [content(folder, base) for base in (0, 2, 3, 5)] == [
        [(0, 0), (1, 10)],
        [(0, 20)],
        [(0, 30)],
        [(0, 40)],
    ]
    assert known(folder) == [0, 10, 20, 30, 30, 40]


def test_they_never_roll_a_segment(folder: LogFolder) -> None:
    folder.open(segment_index_bytes=24)
    append(folder, *[1] * 50)
    assert folder.bases() == [0]
    assert known(folder) == [10 * number for number in range(50)]


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        pytest.param(timed_set(NOW + 10**6), "timestamp", id="V-14-timestamp"),
        pytest.param(timed_set(1, value=bytes(2000)), "max.message.bytes", id="V-14-size"),
        pytest.param(timed_set(1, 2)[:-1] + b"\0", "CRC", id="V-14-crc"),
        pytest.param(timed_set(1, value=bytes(700)), "segment.bytes", id="V-14-segment"),
    ],
)
def test_a_refused_set_leaves_them_untouched(folder: LogFolder, refused: bytes, error: str) -> None:
    folder.open(max_message_bytes=1000, segment_bytes=500, message_timestamp_after_max_ms=1000)
    append(folder, 1, 2)
    before = folder.content(SUFFIXES)
    folder.files.operations.clear()
    with pytest.raises(HorologError, match=error):
        folder.log.appender.append(refused)
    assert folder.content(SUFFIXES) == before
    assert folder.files.did("pwrite", ".appendtime") == 0
    append(folder, 1)
    assert known(folder) == [0, 10, 10, 20]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG], ids=str)
@pytest.mark.parametrize(
    ("name", "written"),
    [
        (".appendtime", 0),
        (".appendtime", 1),
        (".appendtime", 11),
        (".log", 20),
        (".index", 4),
        (".timeindex", 5),
    ],
)
def test_a_failed_write_cuts_all_files_back_v14(
    folder: LogFolder, error: int, name: str, written: int
) -> None:
    log = folder.open(index_interval_bytes=0)
    append(folder, 1, 1, 1)
    before = folder.content(SUFFIXES)
    folder.files.fail("pwrite", error, name=name, written=written)
    with pytest.raises(StorageError) as refused:
        log.appender.append(timed_set(6, 7))
    assert (refused.value.retriable, log.failure) == (True, None)
    assert folder.content(SUFFIXES) == before
    append(folder, 1)
    assert known(folder) == [0, 10, 20, 30]
    folder.restart()
    assert known(folder) == [0, 10, 20, 30]


def test_what_cannot_be_cut_back_ends_appends(folder: LogFolder) -> None:
    log = folder.open()
    append(folder, 1)
    folder.files.fail("pwrite", errno.ENOSPC, name=".appendtime", written=3)
    folder.files.fail("truncate", errno.EIO, name=".appendtime")
    with pytest.raises(StorageError, match="could not be taken back"):
        log.appender.append(timed_set(5))
    assert log.failure is not None
    folder.kill_and_restart()
    append(folder, 1)
    assert known(folder)[-1] == 10


# Stopping and starting


def test_a_clean_stop_keeps_all(folder: LogFolder) -> None:
    folder.open(segment_bytes=117)
    append(folder, 1, 2, 1, 3)
    before = folder.content([".appendtime"])
    folder.restart()
    assert known(folder) == [0, 10, 10, 20, 30, 30, 30]
    append(folder, 1)
    folder.restart()
    assert known(folder) == [0, 10, 10, 20, 30, 30, 30, 40]
    after = folder.content([".appendtime"])
    assert all(after[name].startswith(data) for name, data in before.items())
    assert folder.events.named("append_times_dropped") == []


def test_a_start_reads_nothing_of_them(folder: LogFolder) -> None:
    folder.open(segment_bytes=117)
    append(folder, 1, 2, 1, 3)
    folder.log.close()
    folder.files.operations.clear()
    folder.open()
    folder.log.prepare()
    append(folder, 1)
    touched = {kind for kind, name in folder.files.operations if name.endswith(".appendtime")}
    assert not touched & {"pread", "read_bytes"}
    assert known(folder)[-1] == 40


@pytest.mark.parametrize(
    ("flushed", "certain"),
    [pytest.param(0, 0, id="never"), pytest.param(3, 4, id="some"), pytest.param(5, 7, id="all")],
)
def test_a_kill_keeps_what_is_below_the_recovery_point(
    folder: LogFolder, flushed: int, certain: int
) -> None:
    folder.open()
    sizes = [1, 2, 1, 2, 1]
    append(folder, *sizes[:flushed])
    folder.log.flusher.flush()
    append(folder, *sizes[flushed:])
    folder.kill_and_restart()
    times: Times = [0, 10, 10, 20, 30, 30, 40]
    assert known(folder) == times[:certain] + [None] * (7 - certain)
    append(folder, 1)
    assert known(folder) == times[:certain] + [None] * (7 - certain) + [50]
    folder.restart()
    assert known(folder) == times[:certain] + [None] * (7 - certain) + [50]


def test_a_kill_over_several_segments(folder: LogFolder) -> None:
    folder.open(segment_bytes=78)
    append(folder, 1, 1, 1)
    folder.log.flusher.flush()
    append(folder, 1, 1, 1)
    assert folder.bases() == [0, 2, 4]
    folder.kill_and_restart()
    assert known(folder) == [0, 10, 20, None, None, None]
    assert content(folder, 2) == [(0, 20), (1, -1 - NOW)]
    assert content(folder, 4) == []
    folder.restart()
    assert known(folder) == [0, 10, 20, None, None, None]


def test_without_a_checkpoint_none_is_certain(folder: LogFolder) -> None:
    folder.open(segment_bytes=78)
    append(folder, 1, 1, 1)
    folder.log.flusher.flush()
    folder.kill_and_restart(checkpointed=False)
    assert known(folder) == [None] * 3
    assert {event["path"][-13:] for event in folder.events.named("append_times_unknown")} == {
        "00.appendtime",
        "02.appendtime",
    }


def test_the_checksums_of_a_stop_end_with_the_kill_after_it(folder: LogFolder) -> None:
    """Else the next recovery would believe nothing that came later."""
    folder.open()
    append(folder, 1)
    folder.restart()
    folder.kill_and_restart(checkpointed=False)
    append(folder, 1)
    folder.log.flusher.flush()
    folder.kill_and_restart()
    assert known(folder) == [None, 10]


def test_a_torn_tail_takes_its_entries_along(folder: LogFolder) -> None:
    folder.open()
    append(folder, 1, 1)
    folder.log.flusher.flush()
    append(folder, 1, 1)
    log_path = folder.log.segments[0].log_path
    folder.let_go()
    with log_path.open("r+b") as file:
        file.truncate(39 * 3 + 20)
    folder.open(clean=False, recovery_point=2)
    assert folder.log.log_end_offset == 3
    assert known(folder) == [0, 10, None]
    append(folder, 1)
    assert known(folder) == [0, 10, None, 40]


# Files that are not as they should be


def remove(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-12])


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + struct.pack(">iq", 40, NOW) + b"\0\0")


def exchange(path: Path) -> None:
    path.write_bytes(path.with_name(f"{2:020d}.appendtime").read_bytes())


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        pytest.param(remove, None, id="missing"),
        pytest.param(shorten, None, id="short"),
        pytest.param(tear, None, id="torn"),
        pytest.param(lengthen, 10, id="longer-than-the-log"),
        pytest.param(exchange, None, id="of-another-segment"),
    ],
)
@pytest.mark.parametrize("base", [0, 4], ids=["closed", "active"])
def test_a_file_that_is_not_as_it_was_left(
    folder: LogFolder, harm: Callable[[Path], None], expected: int | None, base: int
) -> None:
    folder.open(segment_bytes=78)
    append(folder, 1, 1, 1, 1, 1, 1)
    assert folder.bases() == [0, 2, 4]
    folder.log.close()
    stored = folder.content([".log", ".index", ".timeindex"])
    harm(folder.path / f"{base:020d}.appendtime")
    folder.open()
    times: Times = [0, 10, 20, 30, 40, 50]
    if expected is None:
        times[base : base + 2] = [None, None]
    assert known(folder) == times
    assert found(folder, 0) == next(
        ((offset, ms) for offset, ms in enumerate(times) if ms is not None and ms >= 0), None
    )
    append(folder, 1)
    assert known(folder) == [*times, 60]
    kept = folder.content([".log", ".index", ".timeindex"])
    assert {name: kept[name] for name in stored if name in kept} == stored
    assert folder.events.named("index_rebuilt") == []
    folder.restart()
    assert known(folder) == [*times, 60]


def test_without_index_checksums_none_is_believed(folder: LogFolder) -> None:
    folder.open(segment_bytes=78)
    append(folder, 1, 1, 1)
    folder.log.close()
    (folder.path / "index-checksums").unlink()
    folder.open()
    assert known(folder) == [None] * 3


def test_a_log_that_grew_without_its_file(folder: LogFolder) -> None:
    """By a version of this broker that knows nothing of it."""
    folder.open()
    append(folder, 1, 1)
    folder.log.close()
    with folder.log.segments[0].log_path.open("ab") as file:
        file.write(timed_set(5, base_offset=2))
    folder.open()
    assert set(known(folder)[2:]) == {None}
    append(folder, 1)
    assert known(folder)[-1] == 20


def test_a_file_without_a_log_is_removed(folder: LogFolder) -> None:
    folder.open()
    append(folder, 1)
    folder.log.close()
    orphan = folder.path / f"{7:020d}.appendtime"
    orphan.write_bytes(bytes(12))
    folder.open()
    assert not orphan.exists()
    assert len(folder.events.named("orphan_index_removed")) == 1
    assert folder.events.named("stray_file") == []


def test_a_new_segment_takes_nothing_of_a_file_that_was_there(folder: LogFolder) -> None:
    folder.open(segment_bytes=78)
    append(folder, 1, 1)
    (folder.path / f"{2:020d}.appendtime").write_bytes(struct.pack(">iq", 0, 1) * 5)
    append(folder, 1)
    assert content(folder, 2) == [(0, 20)]


# Cutting and dropping


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize("again", ["live", "clean", "kill"])
def test_a_cut_takes_the_times_along(folder: LogFolder, offset: int, again: str) -> None:
    folder.open(segment_bytes=117)
    append(folder, 1, 2, 1, 1, 2)
    log = folder.log
    log.flusher.flush()
    log.truncate(offset)
    times: Times = [0, 10, 10, 20, 30, 40, 40]
    assert known(folder) == times[:offset]
    if again == "clean":
        folder.restart()
    elif again == "kill":
        log.flusher.flush()
        folder.kill_and_restart()
    append(folder, 2)
    assert known(folder) == [*times[:offset], 50, 50]
    folder.restart()
    assert known(folder) == [*times[:offset], 50, 50]


@pytest.mark.parametrize("offset", range(8))
def test_a_cut_and_a_kill_leave_no_wrong_time(folder: LogFolder, offset: int) -> None:
    """A segment that was closed before the cut still has its old checksums then."""
    folder.open(segment_bytes=117)
    append(folder, 1, 2, 1, 1, 2)
    log = folder.log
    log.flusher.flush()
    log.truncate(offset)
    append(folder, 1, 1)
    folder.kill_and_restart()
    times: Times = [*[0, 10, 10, 20, 30, 40, 40][:offset], None, None]
    assert all(one in (None, right) for one, right in zip(known(folder), times, strict=True))


def test_a_wrapper_that_is_cut_off_whole(folder: LogFolder) -> None:
    """Its first offsets are of no message any more, so a search may not answer them."""
    folder.open()
    append(folder, 1)
    append(folder, 4, codec=Codec.GZIP)
    folder.log.truncate(3)
    folder.clock.step(-100)
    append(folder, 1)
    assert [record.offset for record in folder.records()] == [0, 3]
    assert (known(folder)[0], known(folder)[3]) == (0, -80)
    assert found(folder, 5) is None
    folder.restart()
    assert found(folder, 5) is None
    assert known(folder)[3] == -80


def test_emptying_a_log(folder: LogFolder) -> None:
    folder.open()
    append(folder, 1, 1)
    folder.log.truncate_fully(70)
    append(folder, 1)
    assert known(folder, 70) == [20]
    assert folder.names(".appendtime") == [f"{70:020d}.appendtime"]


def test_retention_takes_the_file_along(folder: LogFolder) -> None:
    folder.open(segment_bytes=78, retention_bytes=78, retention_ms=-1, file_delete_delay_ms=0)
    append(folder, 1, 1, 1, 1, 1)
    folder.log.expiry.maintain(folder.clock.now_ms())
    kept = folder.bases()[0]
    assert kept > 0
    assert f"{0:020d}.appendtime.deleted" in folder.names(".deleted")
    assert known(folder, kept) == [10 * number for number in range(kept, 5)]
    assert found(folder, 0) == (kept, 10 * kept)
    delete_due(folder.deletions)
    assert folder.names(".deleted") == []


def test_they_never_decide_retention(folder: LogFolder) -> None:
    """Messages of long ago go although they were appended just now, and the other way round."""
    log = folder.open(segment_bytes=39, retention_ms=1000)
    log.appender.append(timed_set(NOW - 5000))
    log.appender.append(timed_set(NOW + 5000))
    log.appender.append(timed_set(NOW + 5000))
    folder.clock.step(4000)
    log.expiry.maintain(folder.clock.now_ms())
    assert folder.bases() == [1, 2]


def test_a_log_start_inside_a_set(folder: LogFolder) -> None:
    folder.open()
    append(folder, 3, 2)
    folder.log.close()
    folder.open(log_start_offset=2)
    assert found(folder, 0) == (2, 0)
    assert found(folder, 1) == (3, 10)
    folder.log.log_start_offset = 3
    assert found(folder, 0) == (3, 10)


def test_what_consumers_do_not_see_is_not_found(folder: LogFolder) -> None:
    log = folder.open()
    append(folder, 1)
    log.appender.append(timed_set(5), wait_for_sync=True)
    assert found(folder, 1) is None
    answer = reader.find_append_time(log, NOW + 1, to_log_end=True).run()
    assert answer is not None
    assert answer.offset == 1
    log.flusher.flush()
    assert found(folder, 1) == (1, 10)


# Bytes from elsewhere


def test_stored_bytes_have_no_append_time(folder: LogFolder) -> None:
    log = folder.open()
    append_copy(log, timed_set(5, 5))
    assert content(folder) == [], "nothing is known in front of the first entry anyway"
    append(folder, 1, 1)
    append_copy(log, timed_set(5, 5, base_offset=4))
    append_copy(log, timed_set(5, base_offset=6))
    append(folder, 1)
    assert content(folder) == [(2, 0), (3, 10), (4, -1 - NOW), (7, 20)]
    expected = [None, None, 0, 10, None, None, None, 20]
    assert known(folder) == expected
    assert found(folder, 0) == (2, 0)
    assert found(folder, 11) == (7, 20)
    folder.restart()
    assert known(folder) == expected
    log = folder.log
    append_copy(log, timed_set(5, base_offset=8))
    assert known(folder) == [*expected, None]
    log.flusher.flush()
    folder.kill_and_restart()
    assert known(folder) == [*expected, None]


def test_stored_bytes_behind_a_gap(folder: LogFolder) -> None:
    log = folder.open()
    append(folder, 1)
    append_copy(log, timed_set(5, base_offset=2**31 + 5))
    append(folder, 1)
    assert reader.append_time_ms(log, 0) == NOW
    assert reader.append_time_ms(log, 2**31 + 5) == -1
    assert reader.append_time_ms(log, 2**31 + 6) == NOW + 10
    assert found(folder, 1) == (2**31 + 6, 10)


def test_a_copy_knows_only_its_own_append_times(folder: LogFolder) -> None:
    folder.open()
    append(folder, 2, 1)
    copy = LogFolder(folder.path.with_name("copy-0"))
    copy.open()
    append_copy(copy.log, folder.stored())
    assert copy.times() == folder.times()
    assert reader.append_time_ms(copy.log, 0) == -1
    copy.let_go()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("back_ms", [0, -40], ids=["rising", "clock-turned-back"])
def test_a_window_of_append_times_passes_over_the_rest(
    folder: LogFolder, back_ms: int, restarted: bool
) -> None:
    """Blocks of 512 sets, of which there are three in a segment."""
    folder.open(segment_bytes=63_960, retention_ms=-1)
    for number in range(3_300):
        append(folder, 1, step_ms=back_ms if number % 700 == 699 else 1)
    if restarted:
        folder.restart()
    log = folder.log
    log.prepare()
    appended = known(folder)
    assert len(log.segments) == 3
    for first in (0, 5, 640, 1_630, 1_640, 3_200, 4_000):
        window = ReadWindow(NOW + first, NOW + first + 29)
        inside = [at for at, ms in enumerate(appended) if ms is not None and 0 <= ms - first < 30]
        assert read_window(log, NOW + first, NOW + first + 30, by_append=True) == inside
        offset, passed_bytes, given = 0, 0, 0
        while offset < log.high_watermark:
            place = windows.find_append_position(log, offset, window, log.high_watermark)
            assert place.unready is None
            passed_bytes += place.skipped_bytes
            given += place.end_offset - place.offset
            offset = max(place.end_offset, place.offset)
        assert given == len(inside)
        assert passed_bytes == log.size_bytes - len(inside) * ENTRY_BYTES[1]
