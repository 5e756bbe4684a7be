"""Batches without records, as Kafka's cleaner leaves them: they have offsets, and no message."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from horolog.protocol.records.batches.batch import (
    build_batch,
    finish_batch,
    read_header,
    write_header,
)
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord
from horolog.storage.check.dump import DumpedMessage, Remark, dump
from horolog.storage.check.repair import Repair
from horolog.storage.check.verify import verify
from horolog.storage.events import ignore_events
from horolog.storage.files import SystemFiles
from horolog.storage.log.log import Log
from horolog.storage.log.segment_scan import scan_log_file
from horolog.storage.read.windows import TimeWindow
from horolog.testing.clock import ManualClock
from horolog.testing.logs import LogFolder, empty_batch

T = 1_700_000_000_000
CHUNK_BYTES = 1 << 20
"""What a scan reads at once."""
EMPTY_BYTES = 61


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


def lay(folder: LogFolder, *segments: tuple[int, Sequence[bytes]]) -> None:
    """Write log files, as a broker that is adopted has them."""
    for base_offset, parts in segments:
        (folder.path / f"{base_offset:020d}.log").write_bytes(b"".join(parts))


def largest(log: Log) -> tuple[int, int] | None:
    log.prepare()
    found = log.reader.find_largest().run()
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


def test_a_piece_of_a_scan_may_hold_no_record(folder: LogFolder) -> None:
    """More than a piece of them in a row, and one that a piece ends in."""
    count = CHUNK_BYTES // EMPTY_BYTES + 7
    parts = [empty_batch(number, number + 1) for number in range(count)]
    first = batch(count, T)
    lay(folder, (0, [*parts, first]))
    log = folder.open(clean=False, gaps=True)
    assert folder.times() == [(count, T)]
    assert folder.found(T) == [(T, count)]
    with closing(folder.files.open(log.segments[0].log_path, read_only=True)) as file:
        scan = scan_log_file(
            file, 0, count * EMPTY_BYTES, next_offset=0, gaps=True, check_crc=True
        )
    assert (scan.next_offset, scan.good_bytes) == (count, count * EMPTY_BYTES)
