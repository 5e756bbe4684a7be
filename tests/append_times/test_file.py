"""The file of one segment's append times: its bytes, what is believed of it, asking it."""

import errno
import struct
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from horolog.storage.index.append_time_lookup import first_since, known_times
from horolog.storage.index.append_times import BLOCK_ENTRIES, STEP_ENTRIES, AppendTimes
from horolog.storage.index.index_checksums import AppendTimesChecksum
from horolog.storage.seams import Seams
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import RecordedEvents

BASE = 40
NAME = f"{BASE:020d}.appendtime"
Entries = Sequence[tuple[int, int]]
"""Relative offset and time."""

SETS: Entries = [(0, 100), (3, 105), (4, 103), (9, 200)]
END = BASE + 12


def encoded(entries: Entries) -> bytes:
    return b"".join(struct.pack(">iq", *entry) for entry in entries)


def times_at(path: Path, seams: Seams) -> AppendTimes:
    return AppendTimes(path / NAME, BASE, seams)


def written(path: Path, seams: Seams, entries: Entries = SETS, end: int = END) -> AppendTimes:
    """A file that sets were appended to one by one."""
    times = times_at(path, seams)
    ends = [BASE + relative for relative, _ in entries[1:]] + [end]
    for (relative, append_time_ms), next_offset in zip(entries, ends, strict=True):
        times.add(BASE + relative, next_offset, append_time_ms)
    return times


def told(times: AppendTimes, end: int = END) -> list[int]:
    """The time of every offset."""
    return [known_times(times, at, at + 1).spans[-1][1] for at in range(BASE, end)]


ALL = [100, 100, 100, 105, 103, 103, 103, 103, 103, 200, 200, 200]


def test_an_entry_is_a_relative_offset_and_a_time_decision_28(tmp_path: Path, seams: Seams) -> None:
    written(tmp_path, seams, [(0, 1_479_144_272_509), (5, 1)])
    assert (tmp_path / NAME).read_bytes().hex() == (
        "000000000000015863de727d000000050000000000000001"
    )


def test_every_message_of_a_set_has_its_time(tmp_path: Path, seams: Seams) -> None:
    times = written(tmp_path, seams)
    assert told(times) == ALL
    assert (len(times), times.largest_ms, times.end_offset) == (4, 200, END)


def test_what_is_behind_the_end_is_unknown(tmp_path: Path, seams: Seams) -> None:
    times = written(tmp_path, seams)
    assert told(times, END + 2) == [*ALL, -1, -1]


@pytest.mark.parametrize(
    ("first", "end", "spans"),
    [
        pytest.param(0, 12, [(0, 100), (3, 105), (4, 103), (9, 200)], id="all"),
        pytest.param(1, 2, [(0, 100)], id="inside-a-set"),
        pytest.param(2, 4, [(0, 100), (3, 105)], id="over-a-border"),
        pytest.param(3, 4, [(3, 105)], id="one-set"),
        pytest.param(11, 12, [(9, 200)], id="last"),
        pytest.param(8, 14, [(4, 103), (9, 200), (12, -1)], id="past-the-end"),
        pytest.param(12, 14, [(12, -1)], id="behind-the-end"),
    ],
)
def test_what_covers_a_slice(
    tmp_path: Path, seams: Seams, first: int, end: int, spans: Entries
) -> None:
    found = known_times(written(tmp_path, seams), BASE + first, BASE + end)
    assert [(offset - BASE, ms) for offset, ms in found.spans] == spans
    assert found.end_offset == BASE + end


def test_neighbours_of_one_time_are_one_span(tmp_path: Path, seams: Seams) -> None:
    times = written(tmp_path, seams, [(0, 5), (1, 5), (2, 6), (3, 5), (4, 5)], BASE + 5)
    found = known_times(times, BASE, BASE + 5)
    assert found.spans == [(BASE, 5), (BASE + 2, 6), (BASE + 3, 5)]
    assert found.sets == 5


@pytest.mark.parametrize(("sets", "end"), [(1, 3), (2, 4), (3, 9), (4, 12), (5, 12)])
def test_a_slice_may_be_covered_in_part(tmp_path: Path, seams: Seams, sets: int, end: int) -> None:
    found = known_times(written(tmp_path, seams), BASE, END, sets)
    assert found.end_offset == BASE + end
    assert [offset for offset, _ in found.spans] == [BASE + at for at in (0, 3, 4, 9)][:sets]


def test_unknown_times_in_front_between_and_behind(tmp_path: Path, seams: Seams) -> None:
    times = times_at(tmp_path, seams)
    times.add(BASE, BASE + 2, -1)
    times.add(BASE + 2, BASE + 3, 7)
    times.add(BASE + 3, BASE + 5, -1)
    times.add(BASE + 5, BASE + 6, -1)
    times.add(BASE + 6, BASE + 7, 8)
    times.add(BASE + 7, BASE + 8, -1)
    assert (tmp_path / NAME).read_bytes() == encoded([(2, 7), (3, -1), (6, 8), (7, -1)])
    assert told(times, BASE + 8) == [-1, -1, 7, -1, -1, -1, 8, -1]
    assert known_times(times, BASE, BASE + 8).spans[0] == (BASE, -1)


# Searching

MANY: Entries = [(3 * number, (number * 37) % 1000) for number in range(3 * BLOCK_ENTRIES + 7)]


def first_at(entries: Entries, end: int, target_ms: int, low: int, high: int) -> Entries:
    """The answer by looking at every offset."""
    ends = [BASE + relative for relative, _ in entries[1:]] + [end]
    for (relative, append_time_ms), next_offset in zip(entries, ends, strict=True):
        first = max(BASE + relative, low)
        if append_time_ms >= max(target_ms, 0) and first < min(next_offset, high):
            return [(first, append_time_ms)]
    return []


def find(times: AppendTimes, target_ms: int, low: int, high: int) -> tuple[Entries, int]:
    return run(first_since(times, target_ms, low, high))


def run(search: Generator[None, None, tuple[int, int] | None]) -> tuple[Entries, int]:
    """What is found, and in how many steps."""
    for steps in range(1, 100):
        try:
            next(search)
        except StopIteration as stop:
            return [] if stop.value is None else [stop.value], steps
    raise AssertionError("no end")


@pytest.mark.parametrize("entries", [SETS, MANY], ids=["few", "blocks"])
def test_the_first_in_offset_order_is_found(tmp_path: Path, seams: Seams, entries: Entries) -> None:
    end = BASE + entries[-1][0] + 3
    times = written(tmp_path, seams, entries, end)
    targets = {ms + more for _, ms in entries[:50] for more in (-1, 0, 1)} | {0, 998, 999, 1000}
    for target_ms in targets:
        for low, high in ((BASE, end), (BASE + 4, end), (BASE + 1000, end - 1), (BASE, BASE + 10)):
            expected = first_at(entries, end, target_ms, low, high)
            assert find(times, target_ms, low, high)[0] == expected, (target_ms, low, high)


def test_unknown_times_are_not_found(tmp_path: Path, seams: Seams) -> None:
    times = times_at(tmp_path, seams)
    times.add(BASE, BASE + 2, -1)
    times.add(BASE + 2, BASE + 3, 0)
    assert find(times, 0, BASE, END)[0] == [(BASE + 2, 0)]
    assert find(times, -5, BASE, BASE + 2)[0] == []


def test_blocks_without_a_late_enough_time_are_not_read(
    tmp_path: Path, seams: Seams, files: FaultyFiles
) -> None:
    rising = [(number, number) for number in range(4 * BLOCK_ENTRIES)]
    times = written(tmp_path, seams, rising, BASE + len(rising))
    files.operations.clear()
    target_ms = 3 * BLOCK_ENTRIES + 5
    assert find(times, target_ms, BASE, BASE + len(rising)) == ([(BASE + target_ms, target_ms)], 1)
    assert files.did("pread") == 1


def test_loading_and_searching_are_done_in_steps(tmp_path: Path, seams: Seams) -> None:
    falling = [(number, 10**6 - number) for number in range(3 * STEP_ENTRIES)]
    end = BASE + len(falling)
    checksums = written(tmp_path, seams, falling, end).checksums()
    times = times_at(tmp_path, seams)
    times.adopt(checksums)
    found, steps = find(times, 10**6 - 5, BASE + 4, end)
    assert found == [(BASE + 4, 10**6 - 4)]
    assert steps == 3
    assert find(times, 10**6 - 5, BASE + 6, end)[1] > 20


def test_a_search_begins_anew_when_entries_are_taken_away(tmp_path: Path, seams: Seams) -> None:
    late = len(MANY)
    entries = [(0, 9), *[(number, 1) for number in range(1, late)]]
    times = written(tmp_path, seams, entries, BASE + late)
    search = first_since(times, 9, BASE + 1, BASE + late)
    next(search)
    times.truncate(BASE + 10, BASE + 10)
    times.add(BASE + 10, BASE + 11, 9)
    assert run(search)[0] == [(BASE + 10, 9)]


# What is believed


def resealed(path: Path, seams: Seams) -> AppendTimesChecksum:
    return written(path, seams).checksums()


def test_what_was_sealed_is_believed(tmp_path: Path, seams: Seams, files: FaultyFiles) -> None:
    checksums = resealed(tmp_path, seams)
    assert checksums == AppendTimesChecksum(48, checksums.crc, 200, END)
    times = times_at(tmp_path, seams)
    files.operations.clear()
    times.adopt(checksums)
    assert files.did("pread") == 0, "nothing is read until somebody asks"
    assert times.largest_ms == 200
    assert told(times) == ALL
    assert times.checksums() == checksums


def test_a_sealed_file_is_gone_on_with(tmp_path: Path, seams: Seams) -> None:
    times = times_at(tmp_path, seams)
    times.adopt(resealed(tmp_path, seams))
    times.add(END, END + 2, 150)
    assert told(times, END + 2) == [*ALL, 150, 150]
    again = times_at(tmp_path, seams)
    again.adopt(times.checksums())
    assert told(again, END + 2) == [*ALL, 150, 150]


def other(entries: Entries = ((0, 90), (1, 91), (2, 92), (7, 93))) -> bytes:
    return encoded(entries)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(None, "missing", id="missing"),
        pytest.param(b"", "missing", id="empty"),
        pytest.param(encoded(SETS[:3]), "shorter than it was", id="short"),
        pytest.param(encoded(SETS)[:-1], "shorter than it was", id="torn"),
        pytest.param(other(), "checksum does not fit", id="of-another-segment"),
        pytest.param(bytes(48), "damaged", id="zeros"),
        pytest.param(encoded([*SETS[:3], (12, 200)]), "damaged", id="past-the-end"),
        pytest.param(encoded([(0, -2), *SETS[1:]]), "damaged", id="no-time"),
        pytest.param(encoded([(-1, 100), *SETS[1:]]), "damaged", id="before-the-base"),
        pytest.param(encoded([SETS[1], SETS[0], *SETS[2:]]), "damaged", id="falling"),
    ],
)
def test_what_does_not_fit_its_seal_is_unknown(
    tmp_path: Path, seams: Seams, events: RecordedEvents, content: bytes | None, reason: str
) -> None:
    checksums = resealed(tmp_path, seams)
    seams.open_files.close()
    if content is None:
        (tmp_path / NAME).unlink()
    else:
        (tmp_path / NAME).write_bytes(content)
    times = times_at(tmp_path, seams)
    times.adopt(checksums)
    assert told(times) == [-1] * 12
    assert find(times, 0, BASE, END)[0] == []
    assert times.largest_ms == -1
    assert [event["reason"] for event in events.named("append_times_dropped")] == [reason]
    times.add(END, END + 1, 300)
    assert (tmp_path / NAME).read_bytes() == encoded([(12, 300)])
    assert told(times, END + 1) == [-1] * 12 + [300]


def test_each_flipped_bit_makes_all_unknown(tmp_path: Path, seams: Seams) -> None:
    checksums = resealed(tmp_path, seams)
    content = (tmp_path / NAME).read_bytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / NAME).write_bytes(flipped)
        times = times_at(tmp_path, seams)
        times.adopt(checksums)
        assert told(times) == [-1] * 12, bit


def test_a_longer_file_counts_as_far_as_it_was_sealed(tmp_path: Path, seams: Seams) -> None:
    checksums = resealed(tmp_path, seams)
    with (tmp_path / NAME).open("ab") as file:
        file.write(encoded([(12, 900), (13, 901)]))
    times = times_at(tmp_path, seams)
    times.adopt(checksums)
    assert told(times, END + 2) == [*ALL, -1, -1]
    times.add(END, END + 1, 300)
    assert (tmp_path / NAME).read_bytes() == encoded([*SETS, (12, 300)])


def test_no_seal_no_belief(tmp_path: Path, seams: Seams, events: RecordedEvents) -> None:
    resealed(tmp_path, seams)
    times = times_at(tmp_path, seams)
    times.adopt(None)
    assert told(times) == [-1] * 12
    assert len(events.named("append_times_dropped")) == 1


def test_nothing_is_told_of_a_file_that_never_was(
    tmp_path: Path, seams: Seams, events: RecordedEvents
) -> None:
    """As in a folder that Kafka wrote."""
    times = times_at(tmp_path, seams)
    times.adopt(None)
    times.end_at(END)
    assert told(times) == [-1] * 12
    assert events.seen == []
    times.add(END, END + 1, 5)
    assert (tmp_path / NAME).read_bytes() == encoded([(12, 5)])


@pytest.mark.parametrize(
    ("end", "entries", "expected"),
    [
        pytest.param(12, SETS, ALL, id="same"),
        pytest.param(10, SETS, ALL[:10], id="log-shorter"),
        pytest.param(9, SETS[:3], ALL[:9], id="log-shorter-by-a-set"),
        pytest.param(0, [], [], id="log-empty"),
        pytest.param(14, [*SETS, (12, -1)], [*ALL, -1, -1], id="log-longer"),
    ],
)
def test_the_log_ends_elsewhere(
    tmp_path: Path, seams: Seams, end: int, entries: Entries, expected: list[int]
) -> None:
    times = times_at(tmp_path, seams)
    times.adopt(resealed(tmp_path, seams))
    times.end_at(BASE + end)
    assert told(times, BASE + end) == expected
    assert (tmp_path / NAME).read_bytes() == encoded(entries)
    times.add(BASE + end, BASE + end + 1, 7)
    assert told(times, BASE + end + 1) == [*expected, 7]


# After a stop that was not clean


@pytest.mark.parametrize(
    ("certain", "entries", "known"),
    [
        pytest.param(0, [], 0, id="nothing"),
        pytest.param(2, [SETS[0], (2, -1)], 2, id="inside-the-first"),
        pytest.param(3, [SETS[0], (3, -1)], 3, id="one"),
        pytest.param(4, [*SETS[:2], (4, -1)], 4, id="two"),
        pytest.param(8, [*SETS[:3], (8, -1)], 8, id="inside-a-set"),
        pytest.param(11, [*SETS, (11, -1)], 11, id="inside-the-last"),
        pytest.param(12, SETS, 12, id="all"),
        pytest.param(50, SETS, 12, id="behind-the-end"),
        pytest.param(-20, [], 0, id="in-front"),
    ],
)
@pytest.mark.parametrize("checksum", [True, False])
def test_what_is_not_certain_becomes_unknown(
    tmp_path: Path,
    seams: Seams,
    events: RecordedEvents,
    certain: int,
    entries: Entries,
    known: int,
    checksum: bool,
) -> None:
    checksums = resealed(tmp_path, seams)
    times = times_at(tmp_path, seams)
    times.recover(checksums if checksum else None, BASE + certain, END)
    assert told(times) == ALL[:known] + [-1] * (12 - known)
    assert (tmp_path / NAME).read_bytes() == encoded(entries)
    told_events = events.named("append_times_unknown")
    assert [event["first_offset"] - BASE for event in told_events] == [known] * (known < 12)
    times.add(END, END + 1, 7)
    assert told(times, END + 1)[12] == 7


@pytest.mark.parametrize(
    ("content", "known"),
    [
        pytest.param(encoded(SETS), 10, id="whole"),
        pytest.param(encoded(SETS[:3]), 9, id="lost-behind"),
        pytest.param(encoded(SETS[:3]) + bytes(12), 9, id="zeros-behind"),
        pytest.param(encoded(SETS[:3]) + encoded(SETS)[36:41], 9, id="torn-behind"),
        pytest.param(None, 0, id="missing"),
    ],
)
def test_what_a_power_cut_can_leave_above_the_recovery_point(
    tmp_path: Path, seams: Seams, content: bytes | None, known: int
) -> None:
    """The recovery point is at 9, where the last set began, unless that one is synced too."""
    if content is not None:
        (tmp_path / NAME).write_bytes(content)
    times = times_at(tmp_path, seams)
    times.recover(None, BASE + known, END)
    assert told(times) == ALL[:known] + [-1] * (12 - known)


def test_a_seal_that_is_still_there_is_what_is_certain(tmp_path: Path, seams: Seams) -> None:
    """It goes with the first sync after more was appended: there was none."""
    times = written(tmp_path, seams)
    checksums = times.checksums()
    times.add(END, END + 1, 300)
    seams.open_files.close()
    times = times_at(tmp_path, seams)
    times.recover(checksums, END + 1, END + 1)
    assert told(times, END + 1) == [*ALL, -1]
    (tmp_path / NAME).write_bytes(other())
    times = times_at(tmp_path, seams)
    times.recover(checksums, END, END)
    assert told(times) == [-1] * 12


# Cutting


@pytest.mark.parametrize("end", range(12))
@pytest.mark.parametrize("adopted", [True, False])
def test_a_cut_keeps_what_is_in_front(
    tmp_path: Path, seams: Seams, end: int, adopted: bool
) -> None:
    times = written(tmp_path, seams)
    if adopted:
        checksums = times.checksums()
        times = times_at(tmp_path, seams)
        times.adopt(checksums)
    times.truncate(BASE + end, BASE + end)
    kept = [entry for entry in SETS if entry[0] < end]
    assert (tmp_path / NAME).read_bytes() == encoded(kept)
    assert told(times, END) == ALL[:end] + [-1] * (12 - end)
    assert times.largest_ms == max((ms for _, ms in kept), default=-1)
    times.add(BASE + end, END, 7)
    assert told(times) == ALL[:end] + [7] * (12 - end)
    again = times_at(tmp_path, seams)
    again.adopt(times.checksums())
    assert told(again) == ALL[:end] + [7] * (12 - end)


def test_a_cut_of_a_damaged_file_leaves_nothing(tmp_path: Path, seams: Seams) -> None:
    checksums = resealed(tmp_path, seams)
    (tmp_path / NAME).write_bytes(other())
    times = times_at(tmp_path, seams)
    times.adopt(checksums)
    times.truncate(BASE + 5, BASE + 5)
    assert (tmp_path / NAME).read_bytes() == b""
    assert told(times) == [-1] * 12


# Failures


@pytest.mark.parametrize("written_bytes", [0, 1, 11])
def test_a_failed_write_is_cut_back(
    tmp_path: Path, seams: Seams, files: FaultyFiles, written_bytes: int
) -> None:
    times = written(tmp_path, seams)
    files.fail("pwrite", errno.ENOSPC, name=".appendtime", written=written_bytes)
    with pytest.raises(OSError, match="space"):
        times.add(END, END + 1, 300)
    times.take_back()
    assert (tmp_path / NAME).read_bytes() == encoded(SETS)
    assert told(times) == ALL
    times.add(END, END + 1, 301)
    assert told(times, END + 1) == [*ALL, 301]


def test_what_could_not_be_cut_back_is_cut_before_the_next_write(
    tmp_path: Path, seams: Seams, files: FaultyFiles
) -> None:
    times = written(tmp_path, seams)
    files.fail("pwrite", errno.EIO, name=".appendtime", written=5)
    files.fail("truncate", errno.EIO, name=".appendtime")
    with pytest.raises(OSError, match="output"):
        times.add(END, END + 1, 300)
    with pytest.raises(OSError, match="output"):
        times.take_back()
    times.add(END, END + 1, 301)
    assert (tmp_path / NAME).read_bytes() == encoded([*SETS, (12, 301)])


def test_a_failed_sync_is_not_tried_again(tmp_path: Path, seams: Seams, files: FaultyFiles) -> None:
    times = written(tmp_path, seams)
    files.fail("sync", errno.EIO, name=".appendtime")
    with pytest.raises(OSError, match="output"):
        times.sync()
    assert not times.sync()
    times.add(END, END + 1, 301)
    assert not times.sync()
    assert files.did("sync") == 1


def test_a_sync_that_could_not_begin_is_tried_again(
    tmp_path: Path, seams: Seams, files: FaultyFiles
) -> None:
    times = written(tmp_path, seams)
    files.fail("open", errno.EMFILE, name=".appendtime")
    with pytest.raises(OSError, match="open files"):
        times.sync()
    assert times.sync()
    assert times.sync()
    assert files.did("sync") == 1


def test_a_file_that_somebody_cut_while_it_was_read(
    tmp_path: Path, seams: Seams, events: RecordedEvents
) -> None:
    times = written(tmp_path, seams)
    (tmp_path / NAME).write_bytes(encoded(SETS[:2]))
    assert told(times) == [-1] * 12
    assert len(events.named("append_times_dropped")) == 1
