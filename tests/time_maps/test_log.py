"""A time map lives and goes with its segment, and is never believed over the log."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.protocol.errors import UnknownTopicOrPartition
from horolog.storage.index.index_checksums import parse_checksums
from horolog.storage.index.time_map import BLOCK_BYTES
from horolog.storage.read import windows
from horolog.testing.logs import LogFolder, delete_due
from horolog.tests.properties.window_reading import assert_time_map_true, make_map, read_window

from .mapped import START_MS, append_sets, assert_windows_exact, filled, set_times


def name_of(base_offset: int) -> str:
    return f"{base_offset:020d}.timemap"


def times_of(folder: LogFolder) -> list[tuple[int, int]]:
    folder.log.prepare()
    return folder.times()


def assert_exact(folder: LogFolder) -> None:
    assert_windows_exact(folder.log, times_of(folder))
    for segment in folder.log.segments:
        assert_time_map_true(segment)


def assert_mapped(folder: LogFolder) -> None:
    """Every segment has a map of its whole log already, and reads no log for it."""
    folder.log.prepare()
    folder.files.operations.clear()
    for segment in folder.log.segments:
        assert not windows.is_unmapped(segment)
        assert segment.time_map.log_bytes == segment.size_bytes
        assert segment.time_map.next_offset == segment.next_offset
    assert {name for _, name in folder.files.operations if name.endswith(".log")} == set()
    assert folder.files.did("pread", ".timemap") == len(folder.log.segments)


# From one start to the next


def test_a_closed_segment_has_a_map_of_its_whole_log(folder: LogFolder) -> None:
    log = filled(folder)
    assert len(log.segments) == 3
    for segment in log.segments[:-1]:
        assert segment.size_bytes > 4 * BLOCK_BYTES
        assert segment.time_map.log_bytes == segment.size_bytes
        assert (folder.path / name_of(segment.base_offset)).read_bytes() == segment.time_map.data()
    assert_exact(folder)


def test_a_log_of_less_than_a_block_has_no_file(folder: LogFolder) -> None:
    filled(folder, sets=2)
    for _ in range(3):
        folder.restart()
        assert folder.names(".timemap") == []
        told = parse_checksums((folder.path / "index-checksums").read_bytes())[0].time_map
        assert told is not None
        assert (told.size_bytes, told.first_ms) == (0, START_MS)
    assert_exact(folder)


@pytest.mark.parametrize("starts", [1, 2, 3])
def test_maps_are_kept_over_restarts(folder: LogFolder, starts: int) -> None:
    filled(folder)
    for _ in range(starts):
        folder.restart()
    assert_mapped(folder)
    assert_exact(folder)
    assert folder.events.named("time_map_dropped") == []


def test_a_map_goes_on_behind_a_restart(folder: LogFolder) -> None:
    filled(folder)
    folder.restart()
    append_sets(folder.log, range(34, 39))
    assert_exact(folder)
    make_map(folder.log, folder.log.segments[-1])
    append_sets(folder.log, range(39, 60))
    assert_exact(folder)
    folder.restart()
    assert_exact(folder)
    assert folder.events.named("time_map_dropped") == []


def test_a_map_is_kept_where_the_segment_behind_it_is_gone(folder: LogFolder) -> None:
    log = filled(folder)
    first, second, _ = folder.bases()
    kept = log.segments[0].time_map.data()
    folder.log.close()
    for path in folder.path.glob(f"{second:020d}.*"):
        path.unlink()
    log = folder.open(gaps=True)
    log.prepare()
    assert log.segments[0].next_offset > second
    assert log.segments[0].time_map.data() == kept
    assert folder.events.named("time_map_dropped") == []
    assert read_window(log, START_MS, -1) == [
        offset
        for offset, time_ms in folder.times()
        if time_ms >= START_MS and not second <= offset < folder.bases()[1]
    ]
    assert first == folder.bases()[0]


@pytest.mark.parametrize("checkpointed", [True, False])
def test_windows_are_exact_after_a_kill(folder: LogFolder, checkpointed: bool) -> None:
    filled(folder)
    expected = times_of(folder)
    folder.kill_and_restart(checkpointed=checkpointed)
    assert times_of(folder) == expected
    assert_exact(folder)
    folder.restart()
    assert_exact(folder)
    assert folder.events.named("time_map_dropped") == []


def test_a_kill_after_a_flush_leaves_the_maps_of_closed_segments(folder: LogFolder) -> None:
    filled(folder)
    folder.log.flusher.flush()
    folder.kill_and_restart()
    folder.log.prepare()
    for segment in folder.log.segments[:-1]:
        assert not windows.is_unmapped(segment)
    assert windows.is_unmapped(folder.log.segments[-1])
    assert_exact(folder)


def test_a_torn_log_takes_the_map_along(folder: LogFolder) -> None:
    filled(folder)
    folder.let_go()
    first, second, last = folder.bases()
    log = folder.path / f"{second:020d}.log"
    log.write_bytes(log.read_bytes()[:-1_000])
    folder.open(clean=False, recovery_point=0)
    assert folder.bases() == [first, second]
    assert f"{last:020d}.log.broken" in folder.names()
    assert name_of(last) not in folder.names()
    assert_exact(folder)
    folder.restart()
    assert folder.events.named("orphan_index_removed") == []
    assert_exact(folder)


# What is wrong on the disk


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def of_another_segment(path: Path) -> None:
    (other,) = [other for other in path.parent.glob("*.timemap") if other.stem[-3:] == "280"]
    shutil.copy(other, path)


@pytest.mark.parametrize("harm", [flipped, shortened, emptied, of_another_segment, Path.unlink])
def test_a_map_that_is_not_what_it_was_is_made_anew(
    folder: LogFolder, harm: Callable[[Path], None]
) -> None:
    """decision 37."""
    filled(folder)
    folder.log.close()
    path = folder.path / name_of(0)
    before = path.read_bytes()
    harm(path)
    folder.open()
    assert_exact(folder)
    (dropped,) = folder.events.named("time_map_dropped")
    assert dropped["path"] == str(path)
    assert len(path.read_bytes()) > len(before) // 2
    folder.events.seen.clear()
    folder.restart()
    assert_exact(folder)
    segment = folder.log.segments[0]
    assert segment.time_map.log_bytes == segment.size_bytes
    assert folder.events.named("time_map_dropped") == []


def test_what_is_behind_a_map_does_no_harm(folder: LogFolder) -> None:
    filled(folder)
    folder.log.close()
    with (folder.path / name_of(0)).open("ab") as file:
        file.write(b"\x7f" * 100)
    folder.open()
    assert_exact(folder)
    assert folder.events.named("time_map_dropped") == []


# Disks that fail


@pytest.mark.parametrize(
    ("kind", "error", "written"),
    [
        ("pwrite", errno.ENOSPC, 3),
        ("pwrite", errno.EIO, 0),
        ("open", errno.EIO, 0),
        ("truncate", errno.EIO, 0),
    ],
)
@pytest.mark.parametrize("times", [1, -1])
def test_a_map_that_cannot_be_written_fails_no_append(
    folder: LogFolder, kind: str, error: int, written: int, times: int
) -> None:
    folder.files.fail(kind, error, name=".timemap", times=times, written=written)
    filled(folder)
    assert folder.files.failed
    assert [time_ms for _, time_ms in times_of(folder)] == [
        time_ms for number in range(34) for time_ms in set_times(number)
    ]
    assert_exact(folder)
    folder.restart()
    assert_exact(folder)
    folder.files.heal()
    append_sets(folder.log, range(34, 50))
    assert_exact(folder)
    folder.restart()
    assert_exact(folder)
    assert folder.events.named("time_map_dropped") == []


@pytest.mark.parametrize("passing", range(6))
@pytest.mark.parametrize("restarted", [True, False])
def test_a_map_that_cannot_be_read_hides_no_message(
    folder: LogFolder, passing: int, restarted: bool
) -> None:
    filled(folder)
    expected = times_of(folder)
    if restarted:
        folder.restart()
    folder.files.fail("pread", errno.EIO, name=".timemap", passing=passing, times=1)
    assert_windows_exact(folder.log, expected)
    assert_exact(folder)
    assert len(folder.events.named("time_map_dropped")) == len(folder.files.failed)


def test_a_map_that_cannot_be_kept_in_memory_hides_no_message(
    folder: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a segment that takes appends is read at each look then."""
    monkeypatch.setattr("horolog.storage.index.time_map._WRITTEN_BYTES", 1)
    log = filled(folder, sets=8)
    expected = times_of(folder)
    assert log.segments[0].time_map.makes
    folder.files.fail("pread", errno.EIO, name=".timemap", times=-1)
    assert read_window(log, START_MS, START_MS + 1_100) == [
        offset for offset, time_ms in expected if START_MS <= time_ms < START_MS + 1_100
    ]
    assert folder.files.failed


# Cutting and dropping


@pytest.mark.parametrize("again", ["live", "clean", "kill"])
def test_a_log_that_is_cut_and_grows_as_long_again(folder: LogFolder, again: str) -> None:
    """The maps have as many bytes as before, and other times."""
    log = filled(folder, sets=0)
    sizes = []
    for start_ms in (START_MS, START_MS + 7_000):
        append_sets(log, range(9), start_ms=start_ms)
        log.truncate(160)
        assert folder.names(".timemap") == []
        make_map(log, log.segments[0])
        assert_exact(folder)
        sizes.append((log.segments[0].time_map.size_bytes, log.segments[0].time_map.log_bytes))
        if len(sizes) == 1:
            log.truncate(0)
    assert sizes[0] == sizes[1]
    assert sizes[0][1] > BLOCK_BYTES
    if again != "live":
        folder.restart() if again == "clean" else folder.kill_and_restart()
    assert_exact(folder)


def test_a_log_that_is_begun_again_at_its_offset(folder: LogFolder) -> None:
    log = filled(folder, sets=8)
    assert_exact(folder)
    log.truncate_fully(0)
    append_sets(log, range(8), start_ms=START_MS + 7_000)
    assert_exact(folder)


def test_a_part_that_is_cut_off_is_in_no_map(folder: LogFolder) -> None:
    log = filled(folder)
    log.truncate(300)
    assert_exact(folder)
    append_sets(log, range(20), start_ms=START_MS + 1_000_000)
    assert_exact(folder)
    folder.restart()
    assert_exact(folder)


def test_an_append_that_is_taken_back_is_in_no_map(
    folder: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(folder, sets=3)
    time_map = log.segments[0].time_map

    def add(*noted: object) -> None:
        original(*noted)  # type: ignore[arg-type]
        raise MemoryError

    original = time_map.add
    monkeypatch.setattr("horolog.storage.index.time_map.TimeMap.add", lambda _, *noted: add(*noted))
    with pytest.raises(MemoryError):
        append_sets(log, [3])
    monkeypatch.undo()
    append_sets(log, range(10, 20))
    assert_exact(folder)
    folder.restart()
    assert_exact(folder)


def test_a_map_of_a_deleted_log_is_not_stored_beside_the_next_log_there(folder: LogFolder) -> None:
    """It was made in a thread while the topic was deleted, and created again."""
    filled(folder)
    folder.log.close()
    for path in folder.path.glob("*.timemap"):
        path.unlink()
    deleted = folder.open()
    deleted.prepare()
    segment = deleted.segments[0]
    assert windows.is_unmapped(segment)
    mapping, cuts = windows.mapping(deleted, segment), segment.cuts
    mapping.run()
    deleted.abandon()
    shutil.rmtree(folder.path)
    folder.path.mkdir()
    log = folder.open()
    append_sets(log, range(20), start_ms=START_MS + 1_000_000)
    stored = (folder.path / name_of(0)).read_bytes()
    assert stored
    with pytest.raises(UnknownTopicOrPartition):
        windows.apply_mapping(deleted, segment, mapping, cuts)
    assert (folder.path / name_of(0)).read_bytes() == stored
    assert_exact(folder)


def test_retention_takes_the_file_along(folder: LogFolder) -> None:
    log = filled(folder)
    folder.set(retention_bytes=200_000, file_delete_delay_ms=0)
    log.expiry.maintain(folder.clock.now_ms())
    kept = folder.bases()[0]
    assert kept > 0
    assert f"{name_of(0)}.deleted" in folder.names(".deleted")
    assert name_of(0) not in folder.names()
    assert_exact(folder)
    delete_due(folder.deletions)
    assert folder.names(".deleted") == []
    folder.restart()
    assert folder.events.named("stray_file") == []


def test_what_retention_left_is_removed_at_the_next_start(folder: LogFolder) -> None:
    log = filled(folder)
    folder.set(retention_bytes=200_000, file_delete_delay_ms=0)
    log.expiry.maintain(folder.clock.now_ms())
    assert folder.names(".timemap.deleted")
    folder.restart()
    assert folder.names(".timemap.deleted") == []


def test_a_file_without_a_log_is_removed(folder: LogFolder) -> None:
    filled(folder)
    folder.log.close()
    orphan = folder.path / name_of(7)
    orphan.write_bytes(bytes(12))
    folder.open()
    assert not orphan.exists()
    assert len(folder.events.named("orphan_index_removed")) == 1
    assert folder.events.named("stray_file") == []


def test_a_new_segment_takes_nothing_of_a_file_that_was_there(folder: LogFolder) -> None:
    filled(folder, sets=14)
    (folder.path / name_of(280)).write_bytes(b"\x7f" * 100)
    append_sets(folder.log, range(14, 16))
    assert folder.bases() == [0, 280]
    assert name_of(280) not in folder.names()
    assert_exact(folder)
