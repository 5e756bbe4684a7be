"""Batches without records, as Kafka's cleaner leaves them: they have offsets, and no message."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from horolog.protocol.records.batch import build_batch, read_header, write_header
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord
from horolog.storage.check.dump import DumpedMessage, DumpNote, dump
from horolog.storage.check.repair import Repair
from horolog.storage.check.verify import verify
from horolog.storage.entries.segment_scan import scan_log_file
from horolog.storage.events import ignore_events
from horolog.storage.files import Buffer, SystemFiles
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.testing.clock import ManualClock
from horolog.testing.logs import LogFolder, empty_batch
from horolog.tests.properties.window_reading import read_window

T = 1_700_000_000_000
CHUNK_BYTES = 1 << 20
"""What a scan reads at once."""
EMPTY_BYTES = 61
OFFSET_BYTES = 8


def batch(
    offset: int, *times_ms: int, next_offset: int | None = None, codec: Codec = Codec.NONE
) -> bytearray:
    """A batch with a record for each time; up to `next_offset` its last records were removed."""
    made = build_batch(
        [NewRecord(b"v", timestamp_ms=time_ms) for time_ms in times_ms],
        codec=codec,
        base_offset=offset,
    )
    if next_offset is not None:
        header = read_header(made)
        write_header(made, header._replace(last_offset_delta=next_offset - 1 - offset))
    return made


def lay(folder: LogFolder, *segments: tuple[int, Sequence[Buffer]]) -> None:
    """Write log files, as a broker that is adopted has them."""
    for base_offset, parts in segments:
        (folder.path / f"{base_offset:020d}.log").write_bytes(b"".join(parts))


def errors(path: Path) -> list[str]:
    return [found.rule for found in verify(SystemFiles(), path) if found.error]


def largest(log: Log) -> tuple[int, int] | None:
    log.prepare()
    found = reader.find_largest(log).run()
    return None if found is None else (found.timestamp_ms, found.offset)


SHAPES = {
    "one": ([empty_batch(0, 10)], 10, []),
    "with a producer": ([empty_batch(0, 10, producer_id=7, base_sequence=0)], 10, []),
    "of one offset": ([empty_batch(0, 1)], 1, []),
    "behind missing offsets": ([empty_batch(5, 10)], 10, []),
    "two": ([empty_batch(0, 10), empty_batch(10, 20)], 20, []),
    "of an aborted transaction": ([empty_batch(0, 1, attributes=0x30, producer_id=7)], 1, []),
    "with a time": ([empty_batch(0, 4, max_timestamp_ms=T)], 4, []),
    "before records": ([empty_batch(0, 4, max_timestamp_ms=T), batch(4, T)], 5, [(4, T)]),
    "behind records": ([batch(0, T), empty_batch(1, 4, max_timestamp_ms=T + 5)], 4, [(0, T)]),
    "with a codec": ([batch(0, T), empty_batch(1, 4, attributes=1)], 4, [(0, T)]),
}


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_log_of_batches_without_records_opens_and_goes_on(
    folder: LogFolder, shape: str, clean: bool
) -> None:
    """FO-2."""
    parts, end, times = SHAPES[shape]
    lay(folder, (0, parts))
    log = folder.open(clean=clean, gaps=True, index_interval_bytes=0)
    assert (log.log_start_offset, log.log_end_offset) == (0, end)
    assert folder.times() == times
    assert folder.found(0, T + 1) == [*([(T, times[0][0])] if times else [None]), None]
    assert largest(log) == ((T, times[0][0]) if times else None)
    folder.append(T + 9)
    for restart in (folder.kill_and_restart, folder.restart):
        log = restart()
        assert log.log_end_offset == end + 1
        assert folder.times() == [*times, (end, T + 9)]
        assert largest(log) == (T + 9, end)
        assert folder.found(T + 1) == [(T + 9, end)]
    assert not folder.events.named("segment_damaged")


def many_empty(count: int) -> bytes:
    """Batches without records, of one offset each: no CRC covers the offset."""
    template = bytes(empty_batch(0, 1))[OFFSET_BYTES:]
    return b"".join(number.to_bytes(OFFSET_BYTES, "big") + template for number in range(count))


def test_a_piece_of_a_scan_may_hold_no_record(folder: LogFolder) -> None:
    count = CHUNK_BYTES // EMPTY_BYTES + 7
    lay(folder, (0, [many_empty(count), batch(count, T)]))
    log = folder.open(clean=False, gaps=True)
    assert folder.times() == [(count, T)]
    assert folder.found(T) == [(T, count)]
    with closing(folder.files.open(log.segments[0].log_path, read_only=True)) as file:
        scan = scan_log_file(file, 0, count * EMPTY_BYTES, next_offset=0, gaps=True, check_crc=True)
    assert (scan.next_offset, scan.good_bytes) == (count, count * EMPTY_BYTES)
    assert errors(folder.path) == []


@pytest.mark.parametrize("clean", [False, True])
def test_a_closed_segment_may_hold_no_record(folder: LogFolder, clean: bool) -> None:
    middle = [empty_batch(2, 5, max_timestamp_ms=T + 3)]
    lay(folder, (0, [batch(0, T, T + 1)]), (2, middle), (5, [batch(6, T + 2)]))
    folder.open(clean=clean, gaps=True)
    assert folder.times() == [(0, T), (1, T + 1), (6, T + 2)]
    assert folder.found(T + 2, T + 3) == [(T + 2, 6), None]
    assert largest(folder.log) == (T + 2, 6)
    assert errors(folder.path) == []


TRIMS = {
    "before an empty end": (5, [(5, 15)], 4, 15),
    "to an empty end": (5, [(5, 15)], 5, 15),
    "into an empty end": (2, [(2, 15)], 9, 15),
    "to the last of two": (2, [(2, 4), (4, 15)], 4, 15),
    "to a removed end": (10, [], 5, 10),
}
"""Where a first batch of two records ends, the offsets of those without records, the log start and
the log end."""


@pytest.mark.parametrize("trim", TRIMS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_search_behind_the_last_record_finds_nothing_and_no_damage(
    folder: LogFolder, trim: str, codec: Codec
) -> None:
    """L-24: the log begins where only batches without records, or removed ends, are left."""
    first_end, empty, start, end = TRIMS[trim]
    parts = [batch(0, T, T + 9, next_offset=first_end, codec=codec)]
    parts += [empty_batch(begin, stop, max_timestamp_ms=T + 99) for begin, stop in empty]
    lay(folder, (0, parts))
    log = folder.open(clean=False, gaps=True, index_interval_bytes=0)
    log.flusher.flush()
    log.expiry.trim(start)
    for restarted in (False, True):
        log = folder.kill_and_restart() if restarted else log
        assert largest(log) is None
        assert folder.found(0, T, T + 9, T + 10, T + 99, T + 100) == [None] * 6
        assert read_window(log, 0, T + 999) == []
        assert log.segments[0].damaged is None
    assert folder.append(T + 5) == [end]
    assert largest(log) == (T + 5, end)
    assert not folder.events.named("segment_damaged")


def test_verify_and_repair_end(folder: LogFolder) -> None:
    """Repair keeps them, takes the bad bytes between them out, and a second look finds nothing."""
    parts = [empty_batch(0, 5), batch(5, T), empty_batch(6, 9), batch(9, T + 1)]
    lay(folder, (0, parts))
    assert errors(folder.path) == []
    path = folder.path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(parts[0]) + len(parts[1]) - 3] ^= 1
    path.write_bytes(data)
    assert len(errors(folder.path)) == 1
    repair = Repair(SystemFiles(), folder.path, clock=ManualClock(), observe=ignore_events)
    repair.carry_out(repair.plan())
    repair.release()
    assert errors(folder.path) == []
    log = folder.open(clean=False, gaps=True)
    assert folder.times() == [(9, T + 1)]
    assert log.log_end_offset == 10


def test_dump_says_that_a_batch_has_no_record(folder: LogFolder) -> None:
    lay(folder, (0, [empty_batch(0, 5, attributes=0x30), batch(5, T), empty_batch(6, 7)]))
    first, message, last = dump(SystemFiles(), folder.path / f"{0:020d}.log")
    assert isinstance(message, DumpedMessage)
    assert message.offset == 5
    assert (first, last) == (
        DumpNote(0, "offsets 0 to 4 have no message: a batch without records", False),
        DumpNote(
            EMPTY_BYTES + message.size_bytes,
            "offsets 6 to 6 have no message: a batch without records",
            False,
        ),
    )
