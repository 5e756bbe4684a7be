"""Entries that lie across the ends of what is read at once: 8 KiB, more later, 1 MiB at start."""

import pytest

from horolog.protocol.records.layout import Codec
from horolog.storage.read import reader
from horolog.storage.read.search import FoundMessage
from horolog.testing.logs import LogFolder, timed_set

SUFFIXES = (".log", ".index", ".timeindex")
KIB_8 = 8 << 10
MIB = 1 << 20
IN_FIRST_READ = [0, 1, 7, 8, 11, 12, 13, 16, 17, 25, 26, 33, 34, 38, 39, 40]
"""How many bytes of the second entry are within the first read."""


def first_of(entry_bytes: int, timestamp_ms: int) -> bytearray:
    return timed_set(timestamp_ms, value=b"x" * (entry_bytes - 34))


def write_across(folder: LogFolder, boundary: int, in_first_read: int) -> None:
    """Offset 0 up to just before the boundary, offsets 1 to 3 behind it, without index entries."""
    folder.open(index_interval_bytes=10**9, max_message_bytes=10**8)
    folder.log.appender.append(first_of(boundary - in_first_read, 10))
    folder.append(20, 40, 30)


@pytest.mark.parametrize("in_first_read", IN_FIRST_READ)
def test_by_offset(folder: LogFolder, in_first_read: int) -> None:
    write_across(folder, KIB_8, in_first_read)
    at = KIB_8 - in_first_read
    positions = [folder.log.segments[0].locate(offset) for offset in range(5)]
    assert positions == [0, at, at + 39, at + 78, at + 117]


@pytest.mark.parametrize("in_first_read", IN_FIRST_READ)
def test_by_time(folder: LogFolder, in_first_read: int) -> None:
    write_across(folder, KIB_8, in_first_read)
    assert folder.found(5, 15, 35, 41) == [(10, 0), (20, 1), (40, 2), None]


@pytest.mark.parametrize("in_first_read", IN_FIRST_READ)
def test_the_largest_below_a_held_watermark(folder: LogFolder, in_first_read: int) -> None:
    write_across(folder, KIB_8, in_first_read)
    folder.log.hold_high_watermark(2)
    assert reader.find_largest(folder.log).run() == FoundMessage(1, 20)
    folder.log.hold_high_watermark(1)
    assert reader.find_largest(folder.log).run() == FoundMessage(0, 10)


@pytest.mark.parametrize("in_first_read", IN_FIRST_READ)
@pytest.mark.parametrize("torn", [False, True])
def test_recovery(folder: LogFolder, in_first_read: int, torn: bool) -> None:
    write_across(folder, MIB, in_first_read)
    before = folder.times()
    folder.let_go()
    if torn:
        with folder.log.segments[0].log_path.open("ab") as file:
            file.write(timed_set(50, base_offset=4)[:-1])
    log = folder.open(clean=False)
    assert folder.times() == before
    assert log.log_end_offset == 4
    assert len(folder.names(".broken")) == torn


@pytest.mark.parametrize("missing_bytes", [1, MIB, MIB + 39])
def test_a_torn_entry_larger_than_what_is_read_at_once(
    folder: LogFolder, missing_bytes: int
) -> None:
    folder.open(max_message_bytes=10**8)
    folder.append(10)
    folder.log.appender.append(first_of(3 * MIB, 20))
    path = folder.log.segments[0].log_path
    folder.let_go()
    with path.open("r+b") as file:
        file.truncate(39 + 3 * MIB - missing_bytes)
    folder.open(clean=False)
    assert folder.times() == [(0, 10)]
    (kept,) = folder.content([".broken"]).values()
    assert len(kept) == 3 * MIB - missing_bytes


@pytest.mark.parametrize("entry_bytes", [MIB - 1, MIB, MIB + 1, 3 * MIB])
def test_recovery_of_entries_as_large_as_a_read(folder: LogFolder, entry_bytes: int) -> None:
    folder.open(max_message_bytes=10**8, index_interval_bytes=0)
    for timestamp_ms in (10, 30, 20):
        folder.log.appender.append(first_of(entry_bytes, timestamp_ms))
    folder.append(40)
    live = folder.content(SUFFIXES)
    folder.kill_and_restart()
    assert folder.content(SUFFIXES) == live
    assert folder.found(15, 35) == [(30, 1), (40, 3)]


def test_recovery_of_many_reads_counts_intervals_across_them(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=4096, max_message_bytes=10**8)
    for number in range(40):
        folder.log.appender.append(timed_set(*range(number, number + 700, 7), value=b"v" * 500))
        folder.log.appender.append(timed_set(number, codec=Codec.GZIP, value=b"w" * 300))
    assert folder.log.size_bytes > 2 * MIB
    live = folder.content(SUFFIXES)
    folder.kill_and_restart()
    assert folder.content(SUFFIXES) == live
