"""The times of a log's newest appends, for readers of windows that wait at its end."""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Final

from ...protocol.records.kernel import entry_spans
from ...times import INT64_MAX
from ..files import Buffer
from ..index.time_map import BLOCK_BYTES, CLOSE_MS, ROW_NUMBERS, SetSpans, SetTimes

_NOTES_KEPT: Final = 64
"""Readers look at the appends of one turn of the event loop, after it."""

_ROWS_BYTES_KEPT: Final = 48 << 10
"""Of all these appends: about a thousand rows."""

_WAITS_PER_EXTENT: Final = 100
"""After so many waits the extent of the awaited times begins anew: otherwise it would only grow."""

_UNASKED_MAX: Final = 1_000
"""After so many appends that no reader looked at, no reader is waiting."""

_NotedAppend = tuple[int, int, int, bytes, int, int]
"""Of an append: its first offset; bounds of its message times; rows of a time map (`time_spans`),
none if the bounds tell enough; bounds of its append times. No message has a time that is not within
the bounds, or it has none."""

_NotedRun = tuple[int, "_Extent", int]
"""Of appends in a row whose times are all outside of an extent: the first offset, the extent, and
how often it had grown."""


class TimeIntervals:
    """The times in any of some windows, as disjoint intervals in order. A check of an append takes
    about as long for ten thousand windows as for one."""

    __slots__ = ("_firsts_ms", "_lasts_ms")

    def __init__(self, windows: Iterable[tuple[int, int]]) -> None:
        """Each window is its first and its last time, both included."""
        firsts_ms, lasts_ms = array("q"), array("q")
        for first_ms, last_ms in sorted(windows):
            if lasts_ms and first_ms <= lasts_ms[-1]:
                lasts_ms[-1] = max(lasts_ms[-1], last_ms)
            else:
                firsts_ms.append(first_ms)
                lasts_ms.append(last_ms)
        self._firsts_ms, self._lasts_ms = firsts_ms, lasts_ms

    @property
    def bounds_ms(self) -> tuple[int, int]:
        """The first and the last time in any window, of which there must be one."""
        return self._firsts_ms[0], self._lasts_ms[-1]

    def meet(self, first_ms: int, last_ms: int) -> bool:
        """Whether a time from `first_ms` to `last_ms`, both included, is in a window."""
        number = bisect_right(self._firsts_ms, last_ms)
        return number > 0 and self._lasts_ms[number - 1] >= first_ms

    def meet_rows(self, rows: bytes) -> bool:
        """As `meet`, for any row of a time map."""
        if not self._firsts_ms:
            return False
        numbers, first_ms, last_ms = array("q", rows), self._firsts_ms[0], self._lasts_ms[-1]
        spans = zip(numbers[2::ROW_NUMBERS], numbers[3::ROW_NUMBERS], strict=True)
        return any(
            0 <= low_ms <= last_ms and high_ms >= first_ms and self.meet(low_ms, high_ms)
            for low_ms, high_ms in spans
        )


class _Extent:
    """Bounds of the message times and of the append times for which readers wait. It grows."""

    __slots__ = ("append_first_ms", "append_last_ms", "first_ms", "grown", "last_ms", "waits")

    def __init__(self) -> None:
        self.first_ms, self.last_ms = INT64_MAX, -1
        self.append_first_ms, self.append_last_ms = INT64_MAX, -1
        self.grown = 0
        """How often it has grown."""
        self.waits = 0
        """Number of waits whose times are in it."""

    def has(self, sent: TimeIntervals | None, appended: TimeIntervals | None) -> bool:
        """Whether it has all of some message times and of some append times."""
        if sent is not None:
            first_ms, last_ms = sent.bounds_ms
            if first_ms < self.first_ms or last_ms > self.last_ms:
                return False
        if appended is not None:
            first_ms, last_ms = appended.bounds_ms
            if first_ms < self.append_first_ms or last_ms > self.append_last_ms:
                return False
        return True

    def grow(self, sent: TimeIntervals | None, appended: TimeIntervals | None) -> None:
        if sent is not None:
            first_ms, last_ms = sent.bounds_ms
            self.first_ms = min(first_ms, self.first_ms)
            self.last_ms = max(last_ms, self.last_ms)
        if appended is not None:
            first_ms, last_ms = appended.bounds_ms
            self.append_first_ms = min(first_ms, self.append_first_ms)
            self.append_last_ms = max(last_ms, self.append_last_ms)
        self.grown += 1


AwaitedTimes = tuple[_Extent, int]
"""Of a reader that waits: the extent that has its times, and how often that had grown by then."""


class RecentAppends:
    """The newest appends of a log, by message time and by append time: whether one of them brings
    something of a window is known without a look at the log.

    A log has it while readers of its windows wait. Each append pays for it, so rows are read only
    where the bounds leave it open, and appends that are outside of all awaited times are one run.
    """

    __slots__ = ("_extent", "_next_offset", "_notes", "_rows_bytes", "_run_offset", "_unasked")

    def __init__(self, next_offset: int) -> None:
        self._notes: deque[_NotedAppend | _NotedRun] = deque()
        self._extent = _Extent()
        self._run_offset = next_offset
        """From here on all appends are outside of the extent."""
        self._next_offset = next_offset
        self._rows_bytes = 0
        self._unasked = 0

    def await_times(
        self, sent: TimeIntervals | None, appended: TimeIntervals | None
    ) -> AwaitedTimes:
        """Note that a reader waits for messages with some message times, or some append times."""
        if self._extent.waits >= _WAITS_PER_EXTENT:
            self._end_run()
            self._extent = _Extent()
        extent = self._extent
        extent.waits += 1
        if not extent.has(sent, appended):
            self._end_run()
            extent.grow(sent, appended)
        return extent, extent.grown

    def _end_run(self) -> None:
        if self._run_offset < self._next_offset:
            self._keep((self._run_offset, self._extent, self._extent.grown))
            self._run_offset = self._next_offset

    def _keep(self, noted: _NotedAppend | _NotedRun) -> None:
        notes = self._notes
        notes.append(noted)
        if len(noted) == 6:
            self._rows_bytes += len(noted[3])
        while len(notes) > _NOTES_KEPT or self._rows_bytes > _ROWS_BYTES_KEPT:
            gone = notes.popleft()
            if len(gone) == 6:
                self._rows_bytes -= len(gone[3])

    def note(
        self,
        data: Buffer,
        next_offset: int,
        largest_ms: int,
        times: SetTimes | SetSpans | bytes | None,
        append_bounds_ms: tuple[int, int],
    ) -> bool:
        """Note an append of `data`, behind which the log ends at `next_offset`. Return false after
        so many appends without a look that no reader can be waiting.

        `times` are those of its messages, as for a time map. Where they are not known, they are
        read, or, of compressed data, are at most `largest_ms`. `append_bounds_ms` are the earliest
        and the latest append time, -1 twice if none is known.
        """
        first_ms, last_ms = 0, largest_ms
        if isinstance(times, tuple) and len(times) == 3:
            first_ms, last_ms, _ = times
        append_first_ms, append_last_ms = append_bounds_ms
        extent = self._extent
        if (first_ms <= extent.last_ms and last_ms >= extent.first_ms) or (
            append_first_ms <= extent.append_last_ms and append_last_ms >= extent.append_first_ms
        ):
            self._end_run()
            rows = self._rows(data, times)
            self._keep((self._next_offset, first_ms, last_ms, rows, *append_bounds_ms))
            self._run_offset = next_offset
        self._next_offset = next_offset
        self._unasked += 1
        return self._unasked < _UNASKED_MAX

    def _rows(self, data: Buffer, times: SetTimes | SetSpans | bytes | None) -> bytes:
        if isinstance(times, bytes):
            return times
        if times is not None:
            if len(times) == 4:
                return times[0]
            if times[1] - times[0] <= CLOSE_MS:
                return b""
        return _rows_of(data, self._next_offset)

    def may_pass_over(self, begin: int, end: int, awaited: AwaitedTimes) -> bool:
        """Whether the appends between two offsets are noted, and all are outside of the times for
        which a reader waits."""
        if awaited[0] is not self._extent or begin < self._run_offset or end > self._next_offset:
            return False
        self._unasked = 0
        return True

    def lacks(
        self,
        begin: int,
        end: int,
        times: TimeIntervals,
        *,
        by_append: bool,
        awaited: AwaitedTimes | None = None,
    ) -> bool:
        """Whether the appends between two offsets are noted, and none of their messages has one of
        these times. `awaited` are those of a reader that waits for these times."""
        self._unasked = 0
        if end > self._next_offset:
            return False
        extent, grown = (None, 0) if awaited is None else awaited
        first_offset = self._run_offset
        if end > first_offset and extent is not self._extent:
            return False
        for noted in reversed(self._notes):
            if first_offset <= begin:
                break
            first_offset = noted[0]
            if first_offset >= end:
                continue
            if len(noted) == 3:
                if noted[1] is not extent or noted[2] < grown:
                    return False
            elif _may_have(noted, times, by_append=by_append):
                return False
        return first_offset <= begin


def _may_have(noted: _NotedAppend, times: TimeIntervals, *, by_append: bool) -> bool:
    """Whether a message of an append may have one of these times."""
    _, low_ms, high_ms, rows, *appended_ms = noted
    if by_append:
        low_ms, high_ms = appended_ms
    if not times.meet(low_ms, high_ms):
        return False
    return by_append or not rows or times.meet_rows(rows)


def _rows_of(data: Buffer, next_offset: int) -> bytes:
    """Rows of a time map of messages; none if they would have to be decompressed for them."""
    rows, end, _, _ = entry_spans(
        data, 0, block_bytes=BLOCK_BYTES, since_bytes=0, next_offset=next_offset, check_crc=False
    )
    return rows if end == len(data) else b""
