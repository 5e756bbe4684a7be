"""The timestamps of the segment in which a log begins.

A trim changes no file: messages below the log start stay in their segment. A copy begun afterwards
does not have them. Retention has to judge both the same way. So an entry of that segment counts as
a whole if it holds a message at or behind the log start, as in a copy. Otherwise it does not count.
The index files still cover every message.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from ...protocol.records.kernel import scan_offset
from ...protocol.records.kernel.terms import NOT_FOUND, Problem
from ..entries.segment_scan import scan_log_file
from ..files import File, Files
from ..segment.segment import TIMESTAMP_MAX, Segment
from ..stepped_change import Steps
from .log_state import Counted, Largest, LogState
from .retention import SegmentFacts

READ_AT_ONCE_BYTES: Final = 256 << 10
"""Maximum to read in the event loop's thread, in stored bytes."""

_LOCATE_BYTES: Final = 256 << 10


class TrimmedSegment:
    """A segment in which the log begins, as retention sees it."""

    __slots__ = ("largest_timestamp_ms", "segment")

    def __init__(self, segment: Segment, largest_timestamp_ms: int) -> None:
        self.segment = segment
        self.largest_timestamp_ms = largest_timestamp_ms

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @property
    def next_offset(self) -> int:
        return self.segment.next_offset

    @property
    def size_bytes(self) -> int:
        return self.segment.size_bytes

    @property
    def largest_possible_ms(self) -> int:
        return TIMESTAMP_MAX if self.segment.largest_unknown else self.largest_timestamp_ms

    @property
    def age_from_ms(self) -> int:
        return self.segment.age_by(self.largest_timestamp_ms)


class TrimmedReading:
    """Reads a segment from the log start on, or from where an earlier reading ended.

    `run` may be called in any thread; `take` passes the result to the log.
    """

    def __init__(self, log: LogState, segment: Segment) -> None:
        self._log = log
        self._files: Files = log.seams.files
        self._segment = segment
        self._cuts = segment.cuts
        self._whole = segment.largest
        self._log_start_offset = log.log_start_offset
        self._end_bytes = segment.readable_bytes
        self._largest: Largest = (-1, -1)
        known = log.trimmed
        self._goes_on = known is not None and _goes_on(known, log, segment)
        if known is not None and self._goes_on:
            self._position, self._largest = known.end_bytes, known.largest
        else:
            self._position = indexed_position(segment, self._log_start_offset)

    @property
    def size_bytes(self) -> int:
        """Maximum that `run` reads, in bytes."""
        return self._end_bytes - self._position

    def run(self) -> None:
        """Read the segment. If it cannot be read, all its messages count."""
        try:
            with closing(self._files.open(self._segment.log_path, read_only=True)) as file:
                self._read(file)
        except OSError:
            self._largest = self._whole

    def _read(self, file: File) -> None:
        position = self._position
        if not self._goes_on:
            position = locate_in_file(file, self._log_start_offset, position, self._end_bytes)
        largest_ms, largest_offset = self._largest
        scan = scan_log_file(
            file,
            position,
            self._end_bytes,
            next_offset=self._segment.base_offset,
            largest_ms=largest_ms,
            gaps=True,
            check_crc=False,
        )
        if scan.problem is not Problem.NONE:
            self._largest = self._whole
        elif scan.largest_ms > largest_ms:
            self._largest = scan.largest_ms, scan.largest_offset
        else:
            self._largest = largest_ms, largest_offset

    def take(self) -> None:
        """Pass the result of `run` to the log."""
        self._log.trimmed = Counted(
            self._segment, self._cuts, self._log_start_offset, self._end_bytes, self._largest
        )


def indexed_position(segment: Segment, offset: int) -> int:
    """Return the position of the last indexed entry before `offset`."""
    try:
        return segment.offset_index.around(offset)[1]
    except OSError:
        return 0


def locate_in_file(file: File, offset: int, position: int, end: int) -> int:
    """Return the position of the first entry that holds `offset` or a later one, `end` if there is
    none. If bytes are met that are not entries, return their position."""
    while position < end:
        data = file.pread(min(_LOCATE_BYTES, end - position), position)
        found, stopped = scan_offset(data, 0, len(data), offset)
        if found != NOT_FOUND or not stopped:
            return position + (found if found >= 0 else stopped)
        position += stopped
    return end


def begins_in(log: LogState) -> Segment | None:
    """Return the segment in which the log begins behind its first message; `None` if the log begins
    with a segment."""
    segment = log.segment_list.holding(log.log_start_offset)
    return segment if segment.base_offset < log.log_start_offset else None


def may_be_lower(log: LogState, segment: Segment) -> bool:
    """Whether the segment's largest timestamp may belong only to trimmed messages."""
    start = log.log_start_offset
    largest_ms, largest_offset = segment.largest
    if segment.base_offset >= start or largest_ms < 0 or largest_offset >= start:
        return False
    try:
        return not segment.indexed or segment.time_index.start_for(largest_ms) < start
    except OSError:
        return True


def may_be_untimed(log: LogState, segment: Segment) -> bool:
    """Whether possibly no message from the log start on has a timestamp, so that the file's time
    counts."""
    return segment.largest[0] < 0 or may_be_lower(log, segment)


def unread(log: LogState) -> TrimmedReading | None:
    """Return the reading needed before `largest_of` is exact. Nearly always `None`: the time index
    shows that the largest timestamp is behind the log start."""
    segment = begins_in(log)
    if segment is None or not segment.indexed or not may_be_lower(log, segment):
        return None
    return TrimmedReading(log, segment) if _counted(log) is None else None


def reading(log: LogState) -> Steps[None]:
    """Read what `unread` returns. Each step yields work for any thread."""
    while (found := unread(log)) is not None:
        yield found.run
        found.take()


def read_at_once(log: LogState) -> None:
    """Read what `unread` returns, in this thread."""
    for work in reading(log):
        work()


def largest_of(log: LogState, segment: Segment) -> Largest:
    """Return the largest timestamp of a segment from the log start on, as `Segment.largest`. While
    a reading is `unread`, it is that of all messages in the segment."""
    known = _counted(log)
    return known.largest if known is not None and known.segment is segment else segment.largest


def judged(log: LogState) -> Sequence[SegmentFacts]:
    """The segments as retention sees them."""
    segments = log.segment_list.segments
    trimmed = trimmed_segment(log)
    if trimmed is None:
        return segments
    number = log.segment_list.number_of(trimmed.segment)
    return (*segments[:number], trimmed, *segments[number + 1 :])


def trimmed_segment(log: LogState) -> TrimmedSegment | None:
    """Return the segment in which the log begins, if its largest timestamp was read."""
    known = _counted(log)
    return None if known is None else TrimmedSegment(known.segment, known.largest[0])


def _counted(log: LogState) -> Counted | None:
    """Return the stored result if it is still valid and covers the whole segment."""
    known = log.trimmed
    if known is None or known.segment is not begins_in(log):
        return None
    whole = known.end_bytes == known.segment.readable_bytes
    return known if whole and _goes_on(known, log, known.segment) else None


def _goes_on(known: Counted, log: LogState, segment: Segment) -> bool:
    """Whether the part that was read is still the start of the segment from the log start on."""
    return (
        known.segment is segment
        and known.cuts == segment.cuts
        and known.log_start_offset == log.log_start_offset
        and known.end_bytes <= segment.readable_bytes
    )
