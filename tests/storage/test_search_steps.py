"""Searches in steps, and what happens to the log between the steps (tc90)."""

from collections.abc import Callable

import pytest

from horolog.storage.read import reader
from horolog.storage.read.search import FoundMessage
from horolog.testing.logs import LogFolder, delete_due, timed_set, untimed_set

NOW = 1_479_144_272_509
FIRST_COUNT = 2000


def two_long_segments(folder: LogFolder) -> None:
    """Offsets 0 to 1999 with times 1 to 2000, then 2000 to 3999 with times 3001 to 5000.

    Without index entries a search has to read on from the segments' beginnings.
    """
    folder.open(index_interval_bytes=10**9, retention_ms=-1)
    folder.log.appender.append(timed_set(*range(1, FIRST_COUNT + 1)))
    folder.log.appender.roll()
    folder.log.appender.append(timed_set(*range(3001, 5001)))


def append(folder: LogFolder) -> None:
    folder.append(NOW)


def append_earlier_match(folder: LogFolder) -> None:
    folder.append(1999, 2000)


def roll(folder: LogFolder) -> None:
    folder.log.appender.roll()
    folder.append(NOW)


def roll_twice_and_sync(folder: LogFolder) -> None:
    folder.log.appender.roll()
    folder.append(NOW)
    folder.log.appender.roll()
    folder.log.flusher.flush()


def other_files(folder: LogFolder) -> None:
    """So many other files are opened that the searched one is closed meanwhile."""
    for number in range(20):
        path = folder.path / f"other-{number}"
        path.touch()
        folder.open_files.use(str(path))


def delete_later_segment_only(folder: LogFolder) -> None:
    folder.log.truncate(FIRST_COUNT)


def drop_nothing(folder: LogFolder) -> None:
    folder.log.expiry.maintain(NOW)


@pytest.mark.parametrize(
    "meanwhile",
    [
        append,
        append_earlier_match,
        roll,
        roll_twice_and_sync,
        other_files,
        delete_later_segment_only,
        drop_nothing,
    ],
)
@pytest.mark.parametrize("steps_before", range(5))
def test_the_answer_stays_right(
    folder: LogFolder, meanwhile: Callable[[LogFolder], None], steps_before: int
) -> None:
    two_long_segments(folder)
    search = reader.find_time(folder.log, 1990)
    for _ in range(steps_before):
        search.step()
    meanwhile(folder)
    assert search.run() == FoundMessage(1989, 1990)


@pytest.mark.parametrize("steps_before", range(6))
def test_what_is_appended_meanwhile_may_be_missed_but_not_misplaced(
    folder: LogFolder, steps_before: int
) -> None:
    two_long_segments(folder)
    search = reader.find_time(folder.log, 5001)
    for _ in range(steps_before):
        search.step()
    folder.append(6000, 7000)
    assert search.run() in (None, FoundMessage(4000, 6000))


def drop_first_by_age(folder: LogFolder) -> None:
    """Retention deletes the first segment, whose newest message is of time 2000."""
    folder.set(retention_ms=1000, file_delete_delay_ms=0)
    folder.log.expiry.maintain(3001)
    assert folder.bases() == [FIRST_COUNT]


def drop_first_and_remove_its_files(folder: LogFolder) -> None:
    drop_first_by_age(folder)
    delete_due(folder.deletions)
    assert folder.names(".deleted") == []


def drop_everything(folder: LogFolder) -> None:
    folder.log.truncate_fully(9000)


@pytest.mark.parametrize("target", [1990, 2500])
@pytest.mark.parametrize("steps_before", range(5))
@pytest.mark.parametrize("drop", [drop_first_by_age, drop_first_and_remove_its_files])
def test_a_segment_that_is_deleted_meanwhile(
    folder: LogFolder, drop: Callable[[LogFolder], None], steps_before: int, target: int
) -> None:
    two_long_segments(folder)
    search = reader.find_time(folder.log, target)
    done = [search.step() for _ in range(steps_before)]
    if any(done):
        return  # it was found before anything was deleted
    drop(folder)
    assert search.run() == FoundMessage(2000, 3001)


@pytest.mark.parametrize("steps_before", range(3))
def test_a_log_that_is_emptied_meanwhile(folder: LogFolder, steps_before: int) -> None:
    two_long_segments(folder)
    search = reader.find_time(folder.log, 1990)
    assert not any(search.step() for _ in range(steps_before))
    drop_everything(folder)
    assert search.run() is None


@pytest.mark.parametrize("steps_before", range(3))
def test_a_v0_answer_while_segments_are_deleted(folder: LogFolder, steps_before: int) -> None:
    two_long_segments(folder)
    folder.log.appender.roll()
    folder.log.appender.append(untimed_set())
    search = reader.offsets_before(folder.log, 1990, 10)
    assert not any(search.step() for _ in range(steps_before))
    drop_first_by_age_keeping_the_rest(folder)
    assert search.run()[0] in (1989, 2000)


def drop_first_by_age_keeping_the_rest(folder: LogFolder) -> None:
    folder.set(retention_ms=1000)
    folder.log.expiry.maintain(3001)
    assert folder.bases()[0] == FIRST_COUNT


@pytest.mark.parametrize("steps_before", range(3))
def test_the_largest_while_segments_are_deleted(folder: LogFolder, steps_before: int) -> None:
    folder.open(index_interval_bytes=10**9, retention_ms=-1)
    folder.log.appender.append(timed_set(*range(1, FIRST_COUNT), 2500))
    folder.log.appender.roll()
    folder.append(2400)
    search = reader.find_largest(folder.log)
    assert not any(search.step() for _ in range(steps_before))
    folder.set(retention_bytes=39)
    folder.log.expiry.maintain(3501)
    assert folder.bases() == [FIRST_COUNT]
    assert search.run() in (None, FoundMessage(2000, 2400))


@pytest.mark.parametrize("steps_before", range(4))
def test_the_tail_is_cut_off_and_written_anew_meanwhile(
    folder: LogFolder, steps_before: int
) -> None:
    two_long_segments(folder)
    search = reader.find_time(folder.log, 4990)
    for _ in range(steps_before):
        search.step()
    folder.log.truncate(2010)
    folder.log.appender.append(timed_set(*range(4000, 4900), value=b"of another length"))
    assert search.run() is None


def steps(folder: LogFolder, search_name: str, *arguments: int) -> int:
    """How many steps a search takes; none may read more than 256 KiB and one entry."""
    search = getattr(reader, search_name)(folder.log, *arguments)
    count = 1
    before = folder.files.did("pread")
    while not search.step():
        assert folder.files.did("pread") - before <= 3
        before = folder.files.did("pread")
        count += 1
    return count


def test_a_step_is_bounded_decision_10(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=10**9, segment_bytes=2 * 10**7)
    for _ in range(10):
        folder.log.appender.append(timed_set(5, *[1] * 9999))
    assert folder.log.size_bytes == 39 * 10**5
    folder.append(6)
    assert steps(folder, "find_time", 6) >= 39 * 10**5 // (256 << 10)


def test_finding_the_largest_below_a_held_watermark_is_bounded_too(folder: LogFolder) -> None:
    # Falling times leave a time index without entries, so the part below has to be read.
    folder.open(index_interval_bytes=4096, segment_bytes=2 * 10**7)
    for _ in range(10):
        folder.log.appender.append(timed_set(5, *[1] * 9999))
    folder.append(6)
    folder.log.hold_high_watermark(10**5)
    assert reader.find_largest(folder.log).run() == FoundMessage(0, 5)
    assert steps(folder, "find_largest") >= 39 * 10**5 // (256 << 10)
