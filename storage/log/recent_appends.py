"""The times of a log's newest appends, for readers of windows that wait at its end."""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Final

from ...protocol.records.kernel import entry_spans
from ..files import Buffer
from ..index.time_map import BLOCK_BYTES, CLOSE_MS, ROW_NUMBERS, SetSpans, SetTimes

_APPENDS_KEPT: Final = 64
"""Readers look at the appends of one turn of the event loop, after it."""

_ROWS_BYTES_KEPT: Final = 48 << 10
"""Of all these appends: about a thousand rows."""

_UNASKED_MAX: Final = 1_000
"""After so many appends that no reader looked at, no reader is waiting."""


_NotedAppend = tuple[int, int, int, bytes, int, int]
"""Of an append: its first offset; bounds of its message times; rows of a time map (`time_spans`),
none if the bounds tell all; bounds of its append times. No message has a time that is not within
the bounds, or it has none."""


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


class RecentAppends:
    """The newest appends of a log, by message time and by append time: whether one of them brings
    something of a window is known without a look at the log.

    A log has it while readers of its windows wait. Each append pays for it, so rows are read only
    where the bounds leave it open.
    """

    __slots__ = ("_appends", "_next_offset", "_rows_bytes", "_unasked")

    def __init__(self, next_offset: int) -> None:
        self._appends: deque[_NotedAppend] = deque()
        self._next_offset = next_offset
        self._rows_bytes = 0
        self._unasked = 0

    @property
    def is_unasked(self) -> bool:
        """Whether no reader looked for long."""
        return self._unasked >= _UNASKED_MAX

    def note(
        self,
        data: Buffer,
        next_offset: int,
        largest_ms: int,
        times: SetTimes | SetSpans | bytes | None,
        append_bounds_ms: tuple[int, int],
    ) -> None:
        """Note an append of `data`, behind which the log ends at `next_offset`.

        `times` are those of its messages, as for a time map. Where they are not known, they are
        read, or, of compressed data, are at most `largest_ms`. `append_bounds_ms` are the earliest
        and the latest append time, -1 twice if none is known.
        """
        first_ms, last_ms, rows = 0, largest_ms, b""
        if isinstance(times, tuple):
            if len(times) == 4:
                rows = times[0]
            else:
                first_ms, last_ms, _ = times
                if last_ms - first_ms > CLOSE_MS:
                    rows = _rows_of(data, self._next_offset)
        elif times is None:
            rows = _rows_of(data, self._next_offset)
        else:
            rows = times
        appends = self._appends
        appends.append((self._next_offset, first_ms, last_ms, rows, *append_bounds_ms))
        self._rows_bytes += len(rows)
        while len(appends) > _APPENDS_KEPT or self._rows_bytes > _ROWS_BYTES_KEPT:
            self._rows_bytes -= len(appends.popleft()[3])
        self._next_offset = next_offset
        self._unasked += 1

    def lacks(self, begin: int, end: int, times: TimeIntervals, *, by_append: bool) -> bool:
        """Whether the appends between two offsets are noted, and none of their messages has one of
        these times."""
        self._unasked = 0
        if end > self._next_offset:
            return False
        first_offset = self._next_offset
        for noted in reversed(self._appends):
            if first_offset <= begin:
                break
            first_offset, low_ms, high_ms, rows, *appended = noted
            if by_append:
                low_ms, high_ms = appended
            if first_offset >= end or not times.meet(low_ms, high_ms):
                continue
            if by_append or not rows or times.meet_rows(rows):
                return False
        return first_offset <= begin


def _rows_of(data: Buffer, next_offset: int) -> bytes:
    """Rows of a time map of messages; none if they would have to be decompressed for them."""
    rows, end, _, _ = entry_spans(
        data, 0, block_bytes=BLOCK_BYTES, since_bytes=0, next_offset=next_offset, check_crc=False
    )
    return rows if end == len(data) else b""
