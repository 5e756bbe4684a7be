"""What a window topic shows of one log: which messages are in the window, where the last one is,
and what is known about it."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final
from weakref import WeakValueDictionary

from ...protocol.records.batch import BatchHeader, read_header
from ...protocol.records.columns import Columns
from ...protocol.records.kernel import rows_between
from ...protocol.records.layout import BATCH_MAGIC, MAGIC_AT, NO_TIMESTAMP, SIZE_AT, Buffer
from ...protocol.records.selection import Choose
from ...times import INT64_MAX
from ...values import value_class
from ..index.append_time_lookup import known_times, run_between
from ..index.append_times import Span
from ..index.time_map import StoredTimes
from ..log.log import Log
from ..log.recent_appends import AwaitedTimes, RecentAppends, TimeIntervals
from ..segment.segment import Segment
from . import windows
from .search import FoundMessage
from .slices import check_readable, visible_end
from .windows import ReadWindow, WindowPosition

_SEGMENTS_PASSED: Final = 1_000
"""Segments that are passed over at once."""

_LOOKED_AT_OFFSETS: Final = 4_096
"""The search for the last message of a stretch begins with so many offsets at its end."""


@value_class
class LogWindow:
    """The messages of a log whose time is in a window."""

    window: ReadWindow
    by_append: bool
    """Whether it goes by append times. A message whose append time is not known is in none."""

    def find(self, log: Log, offset: int, end_offset: int) -> WindowPosition:
        """Where from `offset` on, below `end_offset`, messages may be. Raises as
        `windows.find_position`."""
        if self.by_append:
            return windows.find_append_position(log, offset, self.window, end_offset)
        return windows.find_position(log, offset, self.window, end_offset)

    def like_stretch(self, log: Log, begin: int, end: int) -> tuple[int, bool]:
        """Up to which offset, from `begin` to `end` in one segment, the same is known of all
        messages: that they are in the window, or, second, that there may be others."""
        if self.by_append:
            return end, False
        return windows.like_stretch(log, begin, end, self.window)

    def chooser(self, segment: Segment, begin: int, end: int) -> Choose:
        """Chooses among messages of a segment from `begin` up to `end`. Raises `OSError`."""
        window = self.window
        if not self.by_append:

            def choose(_: Buffer, timestamps: Buffer) -> tuple[Buffer, int]:
                return rows_between(timestamps, from_ms=window.first_ms, last_ms=window.last_ms)

            return choose
        spans = known_times(segment.append_times, begin, end).spans

        def choose_appended(offsets: Buffer, _: Buffer) -> tuple[Buffer, int]:
            times = append_times_at(spans, memoryview(offsets).cast("q"))
            return rows_between(times, from_ms=window.first_ms, last_ms=window.last_ms)

        return choose_appended


def append_times_at(spans: Sequence[Span], offsets: Sequence[int]) -> "array[int]":
    """The append times of messages at ascending offsets, -1 where none is known."""
    times = array("q", [NO_TIMESTAMP]) * len(offsets)
    for number, (first, time_ms) in enumerate(spans):
        begin = bisect_left(offsets, first)
        end = len(offsets)
        if number + 1 < len(spans):
            end = bisect_left(offsets, spans[number + 1][0])
        times[begin:end] = array("q", [time_ms]) * (end - begin)
    return times


class WindowKnowledge:
    """Where the last message of a window of a log is, as far as the log was searched. It stays so
    until the log is truncated."""

    __slots__ = ("__weakref__", "last_offset", "searched_offset")

    def __init__(self) -> None:
        self.last_offset = -1
        """Of the last message in the window below `searched_offset`; -1 without any."""
        self.searched_offset = 0

    def note_last(self, last_offset: int, searched_offset: int) -> None:
        """The last message below `searched_offset` is at `last_offset`, -1 for none."""
        if searched_offset >= self.searched_offset:
            self.last_offset = max(last_offset, self.last_offset)
            self.searched_offset = searched_offset


def knowledge_of(log: Log, window: LogWindow, *, committed: bool) -> WindowKnowledge:
    """Return what is known of a window of a log. All readers share it, and the log has it as long
    as one of them holds it."""
    known = log.window_knowledge
    if known is None:
        known = log.window_knowledge = WeakValueDictionary()
    key = (*window.window, window.by_append, committed)
    found: WindowKnowledge | None = known.get(key)
    if found is None:
        found = known[key] = WindowKnowledge()
    return found


class WindowUnion:
    """Windows of one log of which a reader waits for any message."""

    __slots__ = ("_appended", "_sent")

    def __init__(self, windows: Iterable[LogWindow]) -> None:
        sent, appended = set[ReadWindow](), set[ReadWindow]()
        for each in windows:
            (appended if each.by_append else sent).add(each.window)
        self._sent = TimeIntervals(sent) if sent else None
        self._appended = TimeIntervals(appended) if appended else None

    def watch_appends(self, log: Log) -> AwaitedTimes:
        """Have the times of appends noted, because a reader waits for messages of the windows. As
        `RecentAppends.await_times`."""
        recent = log.recent_appends
        if recent is None:
            recent = log.recent_appends = RecentAppends(log.log_end_offset)
        return recent.await_times(self._sent, self._appended)

    def appends_lack(
        self, log: Log, begin: int, end: int, awaited: AwaitedTimes | None = None
    ) -> bool:
        """Whether the times that were noted at the appends from `begin` to `end` say that they
        brought nothing of any window. `awaited` is the result of `watch_appends`."""
        recent = log.recent_appends
        if recent is None:
            return False
        return all(
            times is None or recent.lacks(begin, end, times, by_append=by_append, awaited=awaited)
            for times, by_append in ((self._sent, False), (self._appended, True))
        )


@value_class
class UnsearchedStretch:
    """Offsets of one segment among which the last message of a window may be."""

    segment: Segment
    begin: int
    end: int
    unready: bool = False
    """Whether the time map of the segment has to be made first, or its append times loaded."""


def stretches_back(
    log: Log, window: LogWindow, begin: int, end: int
) -> Iterator[UnsearchedStretch | None]:
    """Where between two offsets messages of a window may be, the last stretches first; `None`
    where there is none for a while. One that is `unready` is given again when it was made ready.
    """
    segments = log.segment_list.segments
    number = log.segment_list.number_of(log.segment_list.holding(max(end - 1, begin)))
    passed = 0
    while number >= 0 and begin < end:
        segment = segments[number]
        number -= 1
        if segment.next_offset <= begin:
            return
        first, stop = max(segment.base_offset, begin), min(segment.next_offset, end)
        if first >= stop or not _may_hold(segment, window):
            passed += 1
            if passed % _SEGMENTS_PASSED == 0:
                yield None
            continue
        check_readable(segment, stop)
        if _is_unready(segment, window):
            yield UnsearchedStretch(segment, first, stop, unready=True)
        runs = yield from _runs_of(log, segment, window, first, stop)
        for run_begin, run_end in reversed(runs):
            if run_begin < stop and run_end > first:
                yield UnsearchedStretch(segment, max(run_begin, first), min(run_end, stop))


def _is_unready(segment: Segment, window: LogWindow) -> bool:
    if window.by_append:
        return not segment.append_times.loaded
    return windows.is_unmapped(segment)


def _runs_of(
    log: Log, segment: Segment, window: LogWindow, first: int, stop: int
) -> Generator[None, None, list[tuple[int, int]]]:
    """Where messages of a window may be in a segment that is ready, in order."""
    if not window.by_append:
        return windows.runs_in(log, segment, window.window)
    runs: list[tuple[int, int]] = []
    offset = first
    while offset < stop:
        begin, end = run_between(segment.append_times, *window.window, offset)
        if begin < end:
            runs.append((begin, end))
        if end <= offset:
            break  # Append times of the messages behind are unknown.
        offset = end
        yield None
    return runs


def _may_hold(segment: Segment, window: LogWindow) -> bool:
    if window.by_append:
        return segment.append_times.largest_ms >= window.window.first_ms
    return windows.may_hold(segment, window.window)


class WindowSearch:
    """Looks for messages of a window in a stretch of one segment; `run` may be in any thread."""

    def __init__(
        self,
        log: Log,
        window: LogWindow,
        segment: Segment,
        begin: int,
        end: int,
        *,
        committed: bool,
    ) -> None:
        """Raises `OSError`, `StorageError`."""
        self._left_out = aborted_batches(log, begin, end) if committed else None
        self._stored: StoredTimes = windows.stored_times(log, segment)
        self._window = window.window
        self._begin, self._end = begin, end
        self._start = segment.locate(begin) if begin > segment.base_offset else 0
        self._stop = visible_end(segment, end)
        self._spans: Sequence[Span] | None = None
        if window.by_append:
            self._spans = known_times(segment.append_times, begin, end).spans

    def last(self) -> FoundMessage | None:
        """The last message in it."""
        found = None
        for offsets, times in self._messages():
            marks, count = self._marks(times)
            if count:
                row = marks.rfind(1)
                found = FoundMessage(offsets[row], times[row])
        return found

    def first(self) -> FoundMessage | None:
        """The first message in it."""
        for offsets, times in self._messages():
            marks, count = self._marks(times)
            if count:
                row = marks.find(1)
                return FoundMessage(offsets[row], times[row])
        return None

    def _marks(self, times: "array[int]") -> tuple[bytearray, int]:
        first_ms, last_ms = self._window
        return rows_between(times, from_ms=first_ms, last_ms=last_ms)

    def _messages(self) -> Iterator[tuple["array[int]", "array[int]"]]:
        """Return offsets and times of the messages from the start to the end of the read range."""
        for position, data in self._stored.pieces(self._start, self._stop):
            if self._left_out is not None:
                data = memoryview(_without(data, self._left_out))
            for columns in self._stored.columns(data, position):
                yield self._inside(columns)

    def _inside(self, columns: Columns) -> tuple["array[int]", "array[int]"]:
        offsets, times = array("q", bytes(columns.offsets)), array("q", bytes(columns.timestamps))
        if self._spans is not None:
            times = append_times_at(self._spans, offsets)
        begin, end = bisect_left(offsets, self._begin), bisect_left(offsets, self._end)
        return offsets[begin:end], times[begin:end]


def aborted_batches(log: Log, begin: int, end: int) -> Callable[[BatchHeader], bool] | None:
    """Says of a batch between two offsets whether its transaction was aborted; `None` where none
    was."""
    spans = log.producers.states.aborted_between(begin, end)
    if not spans:
        return None

    def is_aborted(header: BatchHeader) -> bool:
        return header.is_transactional and any(
            span.producer_id == header.producer_id
            and span.first_offset <= header.base_offset <= span.last_offset
            for span in spans
        )

    return is_aborted


def _without(data: memoryview, left_out: Callable[[BatchHeader], bool]) -> bytearray:
    """Whole entries, without some of the batches among them."""
    kept, position = bytearray(), 0
    while position < len(data):
        size_at = position + SIZE_AT
        end = size_at + 4 + int.from_bytes(data[size_at : size_at + 4], "big")
        is_batch = data[position + MAGIC_AT] == BATCH_MAGIC
        if not (is_batch and left_out(read_header(data, position))):
            kept += data[position:end]
        position = end
    return kept


def pieces_back(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The offsets from `begin` to `end` in pieces, the last ones first, each larger than the one
    behind it: what is looked for is near the end."""
    size = _LOOKED_AT_OFFSETS
    while begin < end:
        start = max(begin, end - size)
        yield start, end
        end, size = start, min(2 * size, INT64_MAX)
