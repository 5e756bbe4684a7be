"""Windows of time as a broker reads them out of a log, and what must be true of a time map."""

from array import array

from horolog.protocol.records.kernel.reference.times import time_map_blocks
from horolog.protocol.records.messages.sets import entries, records
from horolog.storage.log.log import Log
from horolog.storage.read import reader, windows
from horolog.storage.read.windows import ReadWindow
from horolog.storage.segment.segment import Segment

from .filling import MAX_DECOMPRESSED_BYTES


def make_map(log: Log, segment: Segment) -> None:
    """What `TimeMaps` does, without a thread."""
    mapping, cuts = windows.mapping(log, segment), segment.cuts
    mapping.run()
    windows.apply_mapping(log, segment, mapping, cuts)


def read_window(
    log: Log, from_ms: int, until_ms: int, *, by_append: bool = False, max_bytes: int = 300
) -> list[int]:
    """The offsets of the messages of a window, as a client gets them from many fetches."""
    window = ReadWindow.between(from_ms, until_ms)
    find = windows.find_append_position if by_append else windows.find_position
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        place = find(log, offset, window, log.high_watermark)
        assert place.offset >= offset
        if place.unready is not None:
            offset = place.offset
            if not by_append:
                make_map(log, place.unready)
            while by_append and not reader.append_times_loaded(log, offset):
                pass
            continue
        offset = place.offset
        if place.end_offset > offset:
            data = reader.read(
                log, offset, max_bytes, whole_first=True, end_offset=place.end_offset
            ).read()
            whole = list(entries(data))
            for record in records(
                data[: whole[-1].end], max_decompressed_bytes=MAX_DECOMPRESSED_BYTES
            ):
                time_ms = record.timestamp_ms
                if by_append:
                    time_ms = reader.append_time_ms(log, record.offset)
                in_window = window.first_ms <= time_ms <= window.last_ms
                if in_window and offset <= record.offset < log.high_watermark:
                    found.append(record.offset)
            offset = whole[-1].offset + 1
    return found


def count_window(
    log: Log, from_ms: int, until_ms: int, every_ms: int, intervals: int
) -> tuple[list[int], int, int, int]:
    """The counts, the messages without a time, the smallest and the largest time."""
    window = ReadWindow.between(from_ms, until_ms)
    counts = array("q", bytes(8 * intervals))
    untimed, times = 0, []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        segment = log.segment_list.holding(offset)
        if windows.is_unmapped(segment):
            make_map(log, segment)
        counting = windows.counting(log, offset, log.high_watermark, window, every_ms, counts)
        counting.run()
        untimed += counting.untimed
        if counting.last_ms >= 0:
            times += [counting.first_ms, counting.last_ms]
        assert counting.next_offset > offset
        offset = counting.next_offset
    return counts.tolist(), untimed, min(times, default=-1), max(times, default=-1)


def assert_time_map_true(segment: Segment) -> None:
    """Each block of the map is whole entries, and says all and only the times of its messages."""
    time_map = segment.time_map
    data = time_map.data()
    log = segment.log_path.read_bytes()
    starts = {entry.position for entry in entries(log)} | {len(log)}
    times = [
        (record.offset, record.timestamp_ms)
        for record in records(log, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    ]
    position, offset = 0, segment.base_offset
    for block in time_map_blocks(data, segment.base_offset):
        assert {block.position, block.end} <= starts
        inside = [ms for at, ms in times if block.offset <= at < block.next_offset]
        timed = [ms for ms in inside if ms >= 0]
        assert block.untimed == len(inside) - len(timed)
        assert sum(span.messages for span in block.spans) == len(timed)
        for span in block.spans:
            assert span.messages == sum(span.low <= ms <= span.high for ms in timed)
            assert {span.low, span.high} <= set(timed)
        position, offset = block.end, block.next_offset
    assert (position, offset) == (time_map.log_bytes, time_map.next_offset)
