"""Which messages of a log a retention pass or a trim removes: offsets, number and times, read
before the log start moves."""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing, suppress

from ...protocol.errors import CorruptMessage
from ...protocol.records.batch import read_header
from ...protocol.records.layout import (
    ATTRIBUTES_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
    MAGIC_AT,
    NO_TIMESTAMP,
)
from ..entries.segment_scan import scan_log_file
from ..index.time_map import StoredTimes, UnreadableTimes
from ..segment.segment import Segment
from ..stepped_change import Steps
from .log_state import LogState
from .retention import RemovedRange, RetentionVerdict
from .trimmed import indexed_position, largest_of, locate_in_file


def removed_by(log: LogState, verdicts: Sequence[RetentionVerdict]) -> list[RemovedRange]:
    """Return what the deletion of the oldest segments removes, one range for each run of segments
    that go by the same rule. The log start has not moved yet."""
    found: list[RemovedRange] = []
    segments = log.segment_list.segments
    for verdict, segment, following in zip(verdicts, segments, segments[1:], strict=False):
        first, end = max(segment.base_offset, log.log_start_offset), following.base_offset
        if first >= end:
            continue
        largest_ms = largest_of(log, segment)[0]
        if found and found[-1].rule == verdict.rule:
            largest_ms = max(largest_ms, found[-1].largest_timestamp_ms)
            found[-1] = found[-1]._replace(end_offset=end, largest_timestamp_ms=largest_ms)
        else:
            found.append(
                RemovedRange(verdict.rule, first, end, -1, _first_ms(segment, first), largest_ms)
            )
    return [_counted(log, each) for each in found]


def _counted(log: LogState, removed: RemovedRange) -> RemovedRange:
    messages = -1 if log.gaps else removed.end_offset - removed.first_offset
    return removed._replace(messages=messages)


def _first_ms(segment: Segment, offset: int) -> int:
    """Return the timestamp of a segment's first message, if that has this offset, and the set need
    not be decompressed for it."""
    if segment.base_offset != offset:
        return NO_TIMESTAMP
    with suppress(OSError):
        head = segment.file.pread(BATCH_OVERHEAD, 0)
        if len(head) == BATCH_OVERHEAD and head[MAGIC_AT] == BATCH_MAGIC:
            header = read_header(head, 0)
            return header.max_timestamp_ms if header.is_append_time else header.base_timestamp_ms
        if len(head) > ATTRIBUTES_AT and not head[ATTRIBUTES_AT] & CODEC_MASK:
            return segment.first_timestamp_ms
    return NO_TIMESTAMP


def removed_by_trim(log: LogState, offset: int) -> Steps[RemovedRange]:
    """Find what a trim to `offset`, at most the log end, removes. The log is prepared, and the log
    start has not moved yet.

    Each step yields work for any thread: a segment of which only a part goes may have to be read.
    """
    start = log.log_start_offset
    largest_ms = first_ms = NO_TIMESTAMP
    for segment in log.segment_list.segments:
        if segment.next_offset <= start:
            continue
        if segment.base_offset >= offset:
            break
        if segment.base_offset >= start and first_ms < 0:
            first_ms = _first_ms(segment, start)
        whole_ms, largest_offset = largest_of(log, segment)
        if segment.next_offset <= offset or start <= largest_offset < offset:
            largest_ms = max(largest_ms, whole_ms)
        else:
            reading = _PartReading(log, segment, start, offset)
            yield reading.run
            largest_ms = max(largest_ms, reading.largest_ms)
            first_ms = reading.first_ms if first_ms < 0 else first_ms
    return _counted(log, RemovedRange("", start, offset, -1, first_ms, largest_ms))


class _PartReading:
    """Reads the times of a segment's messages from offset `start` up to `end`. `run` may be called
    in any thread."""

    def __init__(self, log: LogState, segment: Segment, start: int, end: int) -> None:
        self.first_ms = self.largest_ms = NO_TIMESTAMP
        self._segment = segment
        self._start, self._end = start, end
        self._from = indexed_position(segment, start)
        self._to = indexed_position(segment, end)
        self._size_bytes = segment.readable_bytes
        limit_bytes = log.settings.max_decompressed_bytes
        self._stored = StoredTimes(log.seams.files, segment.log_path, limit_bytes)

    def run(self) -> None:
        """Read the part. What cannot be read has unknown times."""
        with (
            suppress(OSError, UnreadableTimes, CorruptMessage),
            closing(self._stored.open()) as file,
        ):
            first = locate_in_file(file, self._start, self._from, self._size_bytes)
            end = locate_in_file(file, self._end, max(self._to, first), self._size_bytes)
            scan = scan_log_file(
                file, first, end, next_offset=self._segment.base_offset, gaps=True, check_crc=False
            )
            self.largest_ms = scan.largest_ms
            times = self._times_in(first)
            self.first_ms = times[0] if times else NO_TIMESTAMP
            # The set at the end may have messages that go, and others that stay.
            self.largest_ms = max(self.largest_ms, max(self._times_in(end), default=NO_TIMESTAMP))

    def _times_in(self, position: int) -> Sequence[int]:
        """Return the timestamps of the messages that go in the set at `position`."""
        for at, data in self._stored.pieces(position, self._size_bytes):
            for columns in self._stored.columns(data, at):
                offsets = memoryview(columns.offsets).cast("q")
                begin, stop = bisect_left(offsets, self._start), bisect_left(offsets, self._end)
                return memoryview(columns.timestamps).cast("q")[begin:stop]
        return ()


def removed_with_topic(log: LogState) -> RemovedRange:
    """Return what the deletion of a topic removes from a log. Reads nothing from the disk."""
    first_ms = log.segment_list.first.first_ms
    # That of a record batch is the largest one in it.
    if log.segment_list.first.magic_span(0)[0] == BATCH_MAGIC:
        first_ms = None
    largest_ms = max((each.largest[0] for each in log.segment_list.segments), default=NO_TIMESTAMP)
    trimmed = log.log_start_offset > log.segment_list.first.base_offset
    removed = RemovedRange(
        "",
        log.log_start_offset,
        log.log_end_offset,
        -1,
        NO_TIMESTAMP if first_ms is None or trimmed else first_ms,
        largest_ms,
    )
    return _counted(log, removed)


def removed_by_cut(log: LogState, offset: int, rule: str) -> RemovedRange | None:
    """Return what a truncation to `offset` removes; `None` if no message. The largest time is known
    only if the message that has it goes too; nothing is read for it."""
    first, end = max(offset, log.log_start_offset), log.log_end_offset
    if first >= end:
        return None
    largest = [
        each.largest
        for each in log.segment_list.segments
        if each.next_offset > first and each.largest[1] >= first
    ]
    largest_ms = max((ms for ms, _ in largest), default=NO_TIMESTAMP)
    return _counted(log, RemovedRange(rule, first, end, -1, NO_TIMESTAMP, largest_ms))
