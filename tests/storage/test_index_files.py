"""The two index files by themselves: bytes, lookups, truncation (rules I-*)."""

import errno
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from struct import pack

import pytest

from horolog.storage.files import SystemFiles
from horolog.storage.index import index_file
from horolog.storage.index.index_checksums import (
    ChecksumTable,
    SegmentChecksums,
    format_checksums,
    parse_checksums,
)
from horolog.storage.index.index_file import StoredColumn, StoredFile
from horolog.storage.index.offset_index import OffsetIndex
from horolog.storage.index.time_index import TimeIndex
from horolog.storage.open_files import IndexCache, OpenFiles
from horolog.testing.files import FaultyFiles

OPEN_FILES = 4


@pytest.fixture
def time_index(tmp_path: Path) -> TimeIndex:
    """Base 45; entries (20, 50), (30, 60), (40, 65)."""
    path = tmp_path / "x.timeindex"
    path.touch()
    index = TimeIndex(path, 45, 1200, OpenFiles(SystemFiles(), OPEN_FILES))
    for entry in [(20, 50), (30, 60), (40, 65)]:
        index.add(*entry)
    index.write_from(0)
    return index


@pytest.fixture
def offset_index(tmp_path: Path) -> OffsetIndex:
    """Base 50; entries (52, 100), (55, 4096), (60, 5000)."""
    path = tmp_path / "x.index"
    path.touch()
    index = OffsetIndex(path, 50, 1200, OpenFiles(SystemFiles(), OPEN_FILES))
    for entry in [(52, 100), (55, 4096), (60, 5000)]:
        index.add(*entry)
    index.write_from(0)
    return index


def test_bytes_of_a_time_entry_tc91(tmp_path: Path) -> None:
    """I-2."""
    index = TimeIndex(tmp_path / "x", 45, 100, OpenFiles(SystemFiles(), OPEN_FILES))
    index.add(20, 65)
    assert index.encoded().hex() == "000000000000001400000014"


def test_bytes_of_an_offset_entry_tc91(tmp_path: Path) -> None:
    """I-2."""
    index = OffsetIndex(tmp_path / "x", 50, 100, OpenFiles(SystemFiles(), OPEN_FILES))
    index.add(55, 4096)
    assert index.encoded().hex() == "0000000500001000"


def test_files_hold_the_entries_and_nothing_more(
    time_index: TimeIndex, offset_index: OffsetIndex
) -> None:
    """decision 4."""
    assert time_index.path.read_bytes().hex() == (
        "000000000000001400000005000000000000001e0000000f000000000000002800000014"
    )
    assert offset_index.path.read_bytes().hex() == (
        "000000020000006400000005000010000000000a00001388"
    )


def test_what_was_written_is_loaded(time_index: TimeIndex, offset_index: OffsetIndex) -> None:
    for index in (time_index, offset_index):
        again = type(index)(index.path, index.base_offset, 1200, OpenFiles(SystemFiles(), 1))
        again.load(index.path.read_bytes())
        assert [again.entry(n) for n in range(3)] == [index.entry(n) for n in range(3)]
        assert again.checksum() == index.checksum()


@pytest.mark.parametrize(
    ("target_ms", "start"),
    [
        pytest.param(19, 45, id="tc101-I-22-below-the-first"),
        pytest.param(20, 45, id="tc101-decision-2-equal-to-the-first"),
        pytest.param(21, 50, id="tc101-I-22-just-above"),
        pytest.param(30, 50, id="tc101-decision-2-equal-is-the-entry-before"),
        pytest.param(35, 60, id="tc101-I-22-between"),
        pytest.param(40, 60, id="tc101-decision-2-equal-to-the-last"),
        pytest.param(41, 65, id="tc101-I-22-above-the-last"),
        pytest.param(2**63 - 1, 65, id="tc101-largest"),
    ],
)
def test_where_to_look_for_a_time(time_index: TimeIndex, target_ms: int, start: int) -> None:
    assert time_index.start_for(target_ms) == start


@pytest.mark.parametrize(
    ("offset", "position"),
    [
        pytest.param(50, 0, id="tc101-below-the-first"),
        pytest.param(51, 0, id="tc101-just-below-the-first"),
        pytest.param(52, 100, id="tc101-equal"),
        pytest.param(54, 100, id="tc101-between"),
        pytest.param(55, 4096, id="tc101-equal-to-the-second"),
        pytest.param(61, 5000, id="tc101-above-the-last"),
    ],
)
def test_where_to_look_for_an_offset(offset_index: OffsetIndex, offset: int, position: int) -> None:
    assert offset_index.lookup(offset) == position


@pytest.mark.parametrize(("offset", "count"), [(52, 0), (53, 1), (55, 1), (56, 2), (61, 3)])
def test_how_many_offset_entries_are_below_an_offset(
    offset_index: OffsetIndex, offset: int, count: int
) -> None:
    assert offset_index.count_below(offset) == count


@pytest.mark.parametrize(("position", "count"), [(100, 0), (101, 1), (4096, 1), (5001, 3)])
def test_how_many_offset_entries_are_before_a_position(
    offset_index: OffsetIndex, position: int, count: int
) -> None:
    assert offset_index.count_before(position) == count


def test_what_the_time_index_knows_of_the_part_before_an_offset(time_index: TimeIndex) -> None:
    known = [time_index.known_before(offset) for offset in (50, 51, 60, 61, 99)]
    assert known == [(-1, 45), (20, 50), (20, 50), (30, 60), (40, 65)]


def test_a_failed_write_is_made_good_by_the_next(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    path = tmp_path / "x.timeindex"
    path.touch()
    index = TimeIndex(path, 0, 1200, OpenFiles(files, OPEN_FILES))
    index.add(1, 1)
    index.add(2, 2)
    files.fail("pwrite", errno.ENOSPC, written=13)
    with pytest.raises(OSError, match="No space"):
        index.write_from(0)
    assert path.stat().st_size == 13
    index.add(3, 3)
    assert index.write_from(2)
    assert path.read_bytes() == index.encoded()
    assert not index.write_from(3)


def test_an_empty_index_says_the_beginning(tmp_path: Path) -> None:
    open_files = OpenFiles(SystemFiles(), OPEN_FILES)
    assert TimeIndex(tmp_path / "x", 45, 100, open_files).start_for(7) == 45
    assert TimeIndex(tmp_path / "x", 45, 100, open_files).last_timestamp_ms == -1
    assert OffsetIndex(tmp_path / "x", 45, 100, open_files).lookup(50) == 0


@pytest.mark.parametrize(
    ("offset", "kept"),
    [
        pytest.param(60, 1, id="tc102-I-23-at-an-entry"),
        pytest.param(61, 2, id="tc102-I-23-just-above"),
        pytest.param(55, 1, id="tc102-between"),
        pytest.param(45, 0, id="tc102-at-the-base"),
        pytest.param(99, 3, id="tc102-above-all"),
    ],
)
def test_truncation_of_the_time_index(time_index: TimeIndex, offset: int, kept: int) -> None:
    time_index.truncate(offset)
    assert len(time_index) == kept
    assert time_index.path.stat().st_size == 12 * kept
    assert time_index.last_timestamp_ms == [-1, 20, 30, 40][kept]


def test_truncation_of_the_offset_index_tr2(offset_index: OffsetIndex) -> None:
    data = offset_index.path.read_bytes()
    before = [offset_index.entry(number) for number in range(3)]
    for offset in (50, 52, 53, 55, 60, 61):
        for position in (0, 99, 100, 101, 4096, 5000, 5001):
            offset_index.path.write_bytes(data)
            offset_index.load(data)
            offset_index.truncate(offset, position)
            kept = [entry for entry in before if entry[0] < offset and entry[1] < position]
            assert [offset_index.entry(number) for number in range(len(offset_index))] == kept
            assert offset_index.path.stat().st_size == 8 * len(kept)


@pytest.mark.parametrize(
    ("timestamp_ms", "next_offset", "changed", "last"),
    [
        pytest.param(41, 70, 3, (41, 70), id="I-18-new-entry"),
        pytest.param(40, 70, 2, (40, 70), id="I-16-same-time-moves-up"),
        pytest.param(40, 65, 3, (40, 65), id="tc99-I-16-already-there"),
        pytest.param(-1, 70, 3, (40, 65), id="I-13-no-time"),
    ],
)
def test_the_closing_entry(
    time_index: TimeIndex,
    timestamp_ms: int,
    next_offset: int,
    changed: int,
    last: tuple[int, int],
) -> None:
    assert time_index.finish(timestamp_ms, next_offset) == changed
    assert time_index.entry(len(time_index) - 1) == last


def test_a_time_that_is_no_news_gets_no_entry_i13(time_index: TimeIndex) -> None:
    assert not time_index.add(40, 70)
    assert not time_index.add(-1, 71)
    assert time_index.add(41, 72)
    assert len(time_index) == 4


@pytest.mark.parametrize(
    ("max_bytes", "offset_entries", "time_entries"),
    [
        pytest.param(100, 12, 8, id="tc92-I-4"),
        pytest.param(24, 3, 2, id="I-1A"),
        pytest.param(360, 45, 30, id="tc100-I-19"),
    ],
)
def test_capacity(tmp_path: Path, max_bytes: int, offset_entries: int, time_entries: int) -> None:
    """I-7."""
    open_files = OpenFiles(SystemFiles(), OPEN_FILES)
    offsets = OffsetIndex(tmp_path / "x", 0, max_bytes, open_files)
    times = TimeIndex(tmp_path / "x", 0, max_bytes, open_files)
    for number in range(1, 100):
        if offsets.room:
            offsets.add(number, number)
        if times.room:
            times.add(number, number)
    assert (len(offsets), len(times)) == (offset_entries, time_entries - 1)


def test_entries_added_together_are_as_if_added_one_by_one(
    time_index: TimeIndex, offset_index: OffsetIndex
) -> None:
    offset_index.add_all(array("i", [61 - 50, 70 - 50]), array("i", [5100, 6000]))
    next_offsets = array("i", [at - 45 for at in (65, 66, 70, 80)])
    time_index.add_all(array("q", [39, 40, 41, 50]), next_offsets)
    assert [offset_index.entry(n) for n in (3, 4)] == [(61, 5100), (70, 6000)]
    assert [time_index.entry(n) for n in range(2, 5)] == [(40, 65), (41, 70), (50, 80)]
    assert (len(offset_index), len(time_index)) == (5, 5)


SEALS = {
    0: SegmentChecksums(700, (16, 0xDEADBEEF), (24, 1), ((0, 0), (620, 1))),
    7: SegmentChecksums(0, (0, 0), (0, 0), ()),
    10**15: SegmentChecksums(2**40, (8, 2**32 - 1), (12, 5), ((0, 1),)),
}


def test_seals_survive_their_file() -> None:
    assert parse_checksums(format_checksums(SEALS)) == SEALS


def test_a_table_has_the_lines_of_what_it_was_told_last() -> None:
    """In the order of the segments, in whatever order they came, and went."""
    table = ChecksumTable({})
    assert table.content() == format_checksums({})
    told: dict[int, SegmentChecksums] = {}
    other = SegmentChecksums(5, (8, 1), (12, 2), ((0, 1),), open_form=(1, 3))
    bases = sorted(SEALS)
    for base, checksums in (
        *((bases[1], SEALS[bases[1]]), (bases[0], other), (bases[2], other)),
        *((bases[0], SEALS[bases[0]]), (bases[1], None), (bases[1], other), (bases[2], None)),
    ):
        if checksums is None:
            assert table.forget(base)
            assert not table.forget(base)
            del told[base]
        else:
            table.put(base, checksums)
            told[base] = checksums
        assert {base: table.get(base) for base in bases if base in table} == told
        assert table.content() == format_checksums(told)
        assert parse_checksums(table.content()).keys() == told.keys()


def test_the_text_of_seals() -> None:
    assert format_checksums({7: SEALS[0]}) == b"0\n7 700 16 3735928559 24 1 0:0,620:1\n"


@pytest.mark.parametrize(
    ("data", "bases"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b"1\n7 99 16 1 24 1 0:0\n", [], id="later-version"),
        pytest.param(b"0\nnonsense\n7 99 16 1 24 1 0:0\n", [7], id="one-bad-line"),
        pytest.param(b"0\n7 99 16 1 24\n", [], id="too-few-fields"),
        pytest.param(b"0\n7 99 16 1 24 1 0:0\n8 99 16 1 24 1 0", [7], id="cut-in-a-span"),
        pytest.param(b"\xff\xfe\x00", [], id="no-text"),
        pytest.param(b"0\n7 99 16 1 24 1 0:0:0\n", [], id="bad-span"),
    ],
)
def test_lines_that_make_no_sense_are_left_out(data: bytes, bases: list[int]) -> None:
    assert list(parse_checksums(data)) == bases


def test_entries_are_read_where_they_lie_in_bounded_memory(tmp_path: Path) -> None:
    """decision 39."""
    entries, limit_bytes = 100_000, 64 * 1024
    path = tmp_path / "x.index"
    path.write_bytes(array("Q", range(1, entries + 1)).tobytes()[::-1])
    cache = IndexCache(limit_bytes)
    file = StoredFile(OpenFiles(SystemFiles(), OPEN_FILES), cache, str(path), 8, entries)
    column = StoredColumn(file, 8, "Q", 0)
    assert [column[number] for number in range(0, entries, 99)] == list(range(entries, 0, -99))
    assert 0 < cache.size_bytes <= limit_bytes
    before = cache.size_bytes
    assert column[entries - 1] == 1
    assert cache.size_bytes == before, "what was read is kept"


@pytest.mark.parametrize("entries", [0, 1, 2, 511, 512, 513, 1024, 1300])
@pytest.mark.parametrize(("letter", "at"), [("q", 0), ("i", 8)])
def test_entries_are_searched_where_they_lie(
    tmp_path: Path, entries: int, letter: str, at: int
) -> None:
    """decision 39: as `bisect` searches them in memory."""
    numbers = [3 * (number // 2) - 900 for number in range(entries)]  # each twice
    path = tmp_path / "x.timeindex"
    path.write_bytes(b"".join(pack(">qi", number, number) for number in numbers))
    open_files = OpenFiles(SystemFiles(), OPEN_FILES)
    file = StoredFile(open_files, IndexCache(), str(path), 12, entries)
    column = StoredColumn(file, 12, letter, at)
    for value in (-(2**63), *range(-902, 3 * entries // 2 - 896), 2**63 - 1):
        assert index_file.bisect_left(column, value) == bisect_left(numbers, value)
        assert index_file.bisect_right(column, value) == bisect_right(numbers, value)
    open_files.close()


def test_open_files_closes_the_one_used_longest_ago(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(path.name.encode())
    open_files = OpenFiles(SystemFiles(), 2)
    first = open_files.use(str(paths[0]))
    second = open_files.use(str(paths[1]), paths[1])
    assert open_files.use(str(paths[0])) is first
    open_files.use(str(paths[2]))
    assert first.pread(1, 0) == b"a"
    with pytest.raises(OSError, match="Bad file descriptor"):
        second.pread(1, 0)
    assert open_files.use(str(paths[1])).pread(1, 0) == b"b"
    open_files.close()
