"""Time windows in one log: where messages of a window may be, and how many there are."""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from ...protocol.records.kernel import count_times, time_map_counts, time_map_runs
from ...times import INT64_MAX
from ...values import value_class
from ..index.append_time_lookup import run_between
from ..index.time_map import StoredTimes, TimeMapping
from ..log.closed_times import smallest_possible_ms
from ..log.log import Log
from ..log.log_state import Runs
from ..segment.segment import Segment
from .slices import check_readable, visible_end

UNMAPPED_BYTES: Final = 1 << 20
"""Up to this many bytes behind the end of a time map are read rather than mapped."""

_SEGMENTS_LOOKED_AT: Final = 1_000
"""Maximum number of segments in one search step. The next step continues behind them."""

_ANSWERS_KEPT: Final = 64
"""Number of cached time map answers. A window that takes many fetches is looked up once in each
segment."""

_READ_BYTES: Final = 64 << 20
"""Maximum of stored bytes that one count reads, or the blocks of one map entry."""


class ReadWindow(NamedTuple):
    """Timestamps from `first_ms` to `last_ms`, both included. Empty if `last_ms` is smaller."""

    first_ms: int
    last_ms: int

    @classmethod
    def between(cls, from_ms: int, until_ms: int) -> "ReadWindow":
        """Return the window from `from_ms` up to, but not including, `until_ms`. A negative value
        is no limit."""
        return cls(max(from_ms, 0), INT64_MAX if until_ms < 0 else until_ms - 1)


@value_class
class WindowPosition:
    """The position in a log at which a search for the messages of a window continues."""

    offset: int
    """No message of the window lies between the start of the search and this offset."""
    end_offset: int
    """Messages from `offset` up to, but not including, this offset may be in the window. Equal to
    `offset` if none are."""
    skipped_bytes: int
    """Stored bytes between the start of the search and `offset`."""
    unready: Segment | None = None
    """A segment whose time map has to be made, or its append times loaded, before the search can
    continue at `offset`."""


def find_position(log: Log, offset: int, window: ReadWindow, end_offset: int) -> WindowPosition:
    """Find where messages of a window may be, from `offset` on and below `end_offset`.

    The log has to be prepared. Raises `OSError`, and the damage of a segment that it meets.
    """
    listed = log.segment_list
    segments, known = listed.segments, listed.closed_times
    number, skipped_bytes = listed.number_of(listed.holding(offset)), 0
    for _ in range(_SEGMENTS_LOOKED_AT):
        if offset >= end_offset or number == len(segments):
            return WindowPosition(end_offset, end_offset, skipped_bytes)
        segment = segments[number]
        offset = max(offset, segment.base_offset)
        following = known.next_for(number, *window)
        if following > number:
            passed_bytes = known.bytes_between(number, following)
            skipped_bytes += passed_bytes - _position(segment, offset)
            number = following
            offset = min(segments[number].base_offset, end_offset)
            continue
        if not may_hold(segment, window):
            skipped_bytes += segment.size_bytes - _position(segment, offset)
        elif is_unmapped(segment):
            return WindowPosition(offset, offset, skipped_bytes, segment)
        else:
            begin, end = _next_run(log, segment, offset, window)
            position = _position(segment, offset)
            at = segment.locate(begin) if begin > offset else position
            end = min(end, end_offset)
            # Where a whole batch was truncated, there are offsets without a message.
            if begin < end and at < visible_end(segment, end):
                return WindowPosition(begin, end, skipped_bytes + at - position)
            skipped_bytes += segment.readable_bytes - position
            check_readable(segment, min(segment.next_offset, end_offset))
        offset = min(segment.next_offset, end_offset)
        number += 1
    return WindowPosition(offset, offset, skipped_bytes)


def find_append_position(
    log: Log, offset: int, window: ReadWindow, end_offset: int
) -> WindowPosition:
    """Like `find_position`, for a window of append times. A message with unknown append time is in
    no window."""
    listed = log.segment_list
    skipped_bytes = 0
    for _ in range(_SEGMENTS_LOOKED_AT):
        if offset >= end_offset:
            break
        segment = listed.holding(offset)
        offset = max(offset, segment.base_offset)
        times, position = segment.append_times, _position(segment, offset)
        begin = end = segment.next_offset
        if times.largest_ms >= window.first_ms:
            if not times.loaded:
                return WindowPosition(offset, offset, skipped_bytes, segment)
            if times.blocks.smallest_ms <= window.last_ms:
                begin, end = run_between(times, *window, offset)
            if end >= times.end_offset:
                end = segment.next_offset  # Append times of the messages behind are unknown.
                begin = end if begin >= times.end_offset else begin
        begin, end = min(begin, end_offset), min(end, end_offset)
        at = max(visible_end(segment, begin), position)
        # Where a whole batch was truncated, there are offsets without a message.
        if begin < end and at < visible_end(segment, end):
            return WindowPosition(begin, end, skipped_bytes + at - position)
        check_readable(segment, end)
        skipped_bytes += max(visible_end(segment, end), at) - position
        offset = end
    return WindowPosition(offset, offset, skipped_bytes)


def may_hold(segment: Segment, window: ReadWindow) -> bool:
    """Whether messages of a window may be in a segment, from what is known of the segment as a
    whole."""
    if segment.largest_possible_ms < window.first_ms:
        return False
    return smallest_possible_ms(segment) <= window.last_ms


def untimed_of(segment: Segment, offset: int, end_offset: int, window: ReadWindow) -> int | None:
    """Return how many messages of a segment have no timestamp, if the whole segment is counted,
    none of its messages is in the window, and the number is known without the time map; else
    `None`."""
    whole = offset <= segment.base_offset and segment.next_offset <= end_offset
    known = segment.time_map.summary_bytes == segment.size_bytes and segment.damaged is None
    if whole and known and not may_hold(segment, window):
        return segment.time_map.untimed
    return None


def is_unmapped(segment: Segment) -> bool:
    """Whether a segment's time map ends so far before the log end that the map has to be made
    first."""
    time_map = segment.time_map
    if not time_map.makes:
        time_map.data()  # May find out that there is no map.
    return not time_map.makes and segment.readable_bytes - time_map.log_bytes > UNMAPPED_BYTES


def _next_run(log: Log, segment: Segment, offset: int, window: ReadWindow) -> tuple[int, int]:
    """Return the first offsets in a segment, from `offset` on, of messages that may
    be in a window."""
    runs = _runs(log, segment, window)
    mapped_offset = segment.time_map.next_offset  # Nothing is left if the file cannot be read.
    number = _run_behind(runs, offset)
    if number == len(runs):
        return max(mapped_offset, offset), segment.next_offset
    _, _, begin, end = runs[number]
    if end == mapped_offset:
        end = segment.next_offset  # Messages behind the map may have any timestamp.
    return max(begin, offset), end


def _run_behind(runs: Runs, offset: int) -> int:
    """Return the number of the first run that ends behind an offset."""
    return bisect_right(runs, offset, key=itemgetter(3))


def runs_in(log: Log, segment: Segment, window: ReadWindow) -> list[tuple[int, int]]:
    """The first and the end offsets of all stretches of a segment that may hold messages of a
    window, in order."""
    runs = [(begin, end) for _, _, begin, end in _runs(log, segment, window)]
    mapped_offset = segment.time_map.next_offset  # Nothing is left if the file cannot be read.
    return [*runs, (mapped_offset, segment.next_offset)]


def like_stretch(log: Log, begin: int, end: int, window: ReadWindow) -> tuple[int, bool]:
    """Up to which offset, from `begin` to `end` in one segment, its time map says the same of all
    messages: that they are in a window, which comes second, or that there may be others."""
    segment = log.segment_list.holding(begin)
    sides = (
        ReadWindow(0, window.first_ms - 1),
        ReadWindow(min(window.last_ms, INT64_MAX - 1) + 1, INT64_MAX),
    )
    runs = [_runs(log, segment, side) for side in sides if side.first_ms <= side.last_ms]
    time_map = segment.time_map
    if time_map.untimed or segment.damaged is not None or begin >= time_map.next_offset:
        return end, False
    whole_end, mixed_end = min(end, time_map.next_offset), begin
    for side_runs in runs:
        number = _run_behind(side_runs, begin)
        if number == len(side_runs):
            continue
        _, _, first, behind = side_runs[number]
        if first <= begin:
            mixed_end = max(mixed_end, behind)
        else:
            whole_end = min(whole_end, first)
    return (whole_end, True) if mixed_end == begin else (min(mixed_end, end), False)


def _runs(log: Log, segment: Segment, window: ReadWindow) -> Runs:
    time_map = segment.time_map
    answers = log.window_runs
    if answers is None:
        answers = log.window_runs = OrderedDict()
    key = time_map.version, window
    runs = answers.get(key)
    if runs is None:
        runs = time_map_runs(
            time_map.data(),
            base_offset=segment.base_offset,
            from_ms=window.first_ms,
            last_ms=max(window.last_ms, window.first_ms - 1),
        )
        answers[key] = runs
        if len(answers) > _ANSWERS_KEPT:
            answers.popitem(last=False)
    else:
        answers.move_to_end(key)
    return runs


def mapping(log: Log, segment: Segment) -> TimeMapping:
    """Return the work that completes a segment's time map. `apply_mapping` stores the result."""
    time_map = segment.time_map
    return TimeMapping(
        stored_times(log, segment),
        time_map.log_bytes,
        segment.readable_bytes,
        time_map.next_offset,
        closed=segment is not log.segment_list.active,
    )


def stored_times(log: Log, segment: Segment) -> StoredTimes:
    """Reads times of messages of a segment, in any thread."""
    settings, files = log.settings, log.seams.files
    return StoredTimes(files, segment.log_path, settings.max_decompressed_bytes)


def apply_mapping(log: Log, segment: Segment, mapping: TimeMapping, cuts: int) -> None:
    """Store what was made of a time map, unless the log was truncated meanwhile (`Segment.cuts`).

    Raises the damage that was met, or the error that kept the map from being made, and
    `UnknownTopicOrPartition` if the log was deleted: its folder may be that of a new topic.
    """
    log.deletion.check()
    if segment.dropped or segment.cuts != cuts:
        return
    segment.time_map.take(
        mapping.start, bytes(mapping.blocks), mapping.log_bytes, mapping.next_offset
    )
    log.segment_list.time_map_made(segment)
    if mapping.unreadable_at is not None:
        raise segment.damage(mapping.unreadable_at)
    if mapping.error is not None:
        raise mapping.error


def counting(
    log: Log,
    begin_offset: int,
    end_offset: int,
    window: ReadWindow,
    every_ms: int,
    counts: "array[int]",
) -> "SegmentCount":
    """Return the count of messages from one offset to another, or to the end of the segment, whose
    time map has to be complete. Raises the damage in front of the end."""
    segment = log.segment_list.holding(begin_offset)
    end_offset = min(end_offset, segment.next_offset)
    check_readable(segment, end_offset)
    return SegmentCount(
        stored_times(log, segment),
        segment,
        segment.time_map.data(),
        (begin_offset, end_offset),
        window,
        every_ms,
        counts,
    )


def _position(segment: Segment, offset: int) -> int:
    """Return the position of the entry that holds an offset, or of the next entry."""
    return segment.locate(offset) if offset > segment.base_offset else 0


class SegmentCount:
    """Counts messages of one segment. `run` may be called in any thread."""

    def __init__(
        self,
        stored: StoredTimes,
        segment: Segment,
        time_map: bytes,
        offsets: tuple[int, int],
        window: ReadWindow,
        every_ms: int,
        counts: "array[int]",
    ) -> None:
        self._stored = stored
        self._base_offset = segment.base_offset
        self._map = time_map
        self._mapped = segment.time_map.log_bytes, segment.time_map.next_offset
        self._readable_bytes = segment.readable_bytes
        self._offsets = offsets
        self._window = {
            "from_ms": window.first_ms,
            "last_ms": max(window.last_ms, window.first_ms - 1),
            "every_ms": every_ms,
        }
        self.segment = segment
        self.counts = counts
        self.untimed = 0
        self.first_ms = self.last_ms = -1
        self._begin = segment.locate(offsets[0])
        self.log_bytes = visible_end(segment, offsets[1]) - self._begin
        """Stored bytes that the count covers: from the first offset up to `next_offset`, and those
        behind that were read."""
        self.read_bytes = 0
        self.next_offset = offsets[1]
        """Offset up to which messages were counted: the end, unless there was too much to read."""

    def run(self) -> None:
        """Count. Raises `OSError` and `UnreadableTimes`; the counts are not valid then."""
        begin_offset, end_offset = self._offsets
        if self._window["last_ms"] < self._window["from_ms"] and not self.counts:
            self.counts = array("q", [0])
        _, runs = self._ask_map(array("q", bytes(8 * len(self.counts))), end_offset)
        mapped_bytes, mapped_offset = self._mapped
        if end_offset > mapped_offset:
            runs.append((mapped_bytes, self._readable_bytes, mapped_offset, end_offset))
        # The first offset may be in the middle of a block.
        runs = [(max(run[0], self._begin), *run[1:]) for run in runs]
        total = 0
        for number, (position, end, first_offset, _) in enumerate(runs):
            total += end - position
            if number and total > _READ_BYTES:
                self.next_offset = end_offset = max(first_offset, begin_offset)
                self.log_bytes = max(position - self._begin, 0)
                del runs[number:]
                break
        counted, _ = self._ask_map(self.counts, end_offset)
        self._add(counted)
        for position, end, _, _ in runs:
            self._read(position, end, end_offset)
        self.log_bytes = max(self.log_bytes, self.read_bytes)

    def _ask_map(self, counts: "array[int]", end_offset: int) -> tuple[Sequence[int], Runs]:
        return time_map_counts(
            self._map,
            counts,
            base_offset=self._base_offset,
            begin_offset=self._offsets[0],
            end_offset=end_offset,
            **self._window,
        )

    def _read(self, start: int, end: int, end_offset: int) -> None:
        self.read_bytes += end - start
        for position, data in self._stored.pieces(start, end):
            for columns in self._stored.columns(data, position):
                counted = count_times(
                    columns.offsets,
                    columns.timestamps,
                    self.counts,
                    begin_offset=self._offsets[0],
                    end_offset=end_offset,
                    **self._window,
                )
                self._add(counted)

    def _add(self, counted: Sequence[int]) -> None:
        messages, untimed, first_ms, last_ms = counted
        self.untimed += untimed
        if messages:
            self.first_ms = first_ms if self.first_ms < 0 else min(self.first_ms, first_ms)
            self.last_ms = max(self.last_ms, last_ms)
