"""The times of a log's newest appends, for readers of windows that wait at its end."""

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...protocol.records.kernel import entry_spans
from ..files import Buffer
from ..index.time_map import BLOCK_BYTES, CLOSE_MS, ROW_NUMBERS, SetSpans, SetTimes

_APPENDS_KEPT: Final = 64
"""Readers look at the appends of one turn of the event loop, after it."""

_ROWS_KEPT: Final = 1_024
"""The most rows that are kept of all these appends, at 48 bytes each."""

_UNASKED_MAX: Final = 1_000
"""After so many appends at which no reader looked, nobody waits any more."""


class _NotedAppend(NamedTuple):
    """An append. Times are bounds: no message has another one, or it has none."""

    first_offset: int
    first_ms: int
    last_ms: int
    rows: "array[int]"
    """Rows of a time map, if they tell more than the bounds."""
    first_appended_ms: int
    last_appended_ms: int
    """Bounds of the append times that are known; -1 twice without any."""

    def lacks(self, first_ms: int, last_ms: int, *, by_append: bool) -> bool:
        """Whether no message has a time between these two, both included."""
        if by_append:
            return self.first_appended_ms > last_ms or self.last_appended_ms < first_ms
        if self.first_ms > last_ms or self.last_ms < first_ms:
            return True
        spans = zip(self.rows[2::ROW_NUMBERS], self.rows[3::ROW_NUMBERS], strict=True)
        return bool(self.rows) and not any(
            0 <= low <= last_ms and high >= first_ms for low, high in spans
        )


class RecentAppends:
    """The newest appends of a log, by message time and by append time: whether one of them brings
    something of a window is known without a look at the log.

    A log has it while readers of its windows wait.
    """

    __slots__ = ("_appends", "_next_offset", "_numbers", "_unasked")

    def __init__(self, next_offset: int) -> None:
        self._appends: deque[_NotedAppend] = deque()
        self._next_offset = next_offset
        self._numbers = 0
        """Numbers in the rows that are kept."""
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
        append_times: Sequence[int],
    ) -> None:
        """Note an append of `data`, behind which the log ends at `next_offset`.

        `times` are those of its messages, as for a time map. Where they are not known, they are
        read, or, of compressed data, are at most `largest_ms`. `append_times` may have -1 for
        messages whose append time is not known.
        """
        first_ms, last_ms = 0, largest_ms
        rows = array("q")
        if isinstance(times, tuple) and len(times) == 3:
            first_ms, last_ms, _ = times
            if last_ms - first_ms > CLOSE_MS:
                rows = _rows(data, self._next_offset, None)
        else:
            rows = _rows(data, self._next_offset, times)
        if rows:
            timed = [low for low in rows[2::ROW_NUMBERS] if low >= 0]
            first_ms, last_ms = min(timed, default=-1), max(rows[3::ROW_NUMBERS])
        appended = [time_ms for time_ms in append_times if time_ms >= 0]
        bounds = min(appended, default=-1), max(appended, default=-1)
        self._keep(_NotedAppend(self._next_offset, first_ms, last_ms, rows, *bounds))
        self._next_offset = next_offset
        self._unasked += 1

    def _keep(self, noted: _NotedAppend) -> None:
        appends = self._appends
        appends.append(noted)
        self._numbers += len(noted.rows)
        while len(appends) > _APPENDS_KEPT or self._numbers > _ROWS_KEPT * ROW_NUMBERS:
            self._numbers -= len(appends.popleft().rows)

    def lacks(self, begin: int, end: int, first_ms: int, last_ms: int, *, by_append: bool) -> bool:
        """Whether the appends between two offsets are noted, and none of their messages has a time
        between these two, both included."""
        self._unasked = 0
        if end > self._next_offset:
            return False
        first_offset = self._next_offset
        for noted in reversed(self._appends):
            if first_offset <= begin:
                break
            first_offset = noted.first_offset
            if first_offset < end and not noted.lacks(first_ms, last_ms, by_append=by_append):
                return False
        return first_offset <= begin


def _rows(data: Buffer, next_offset: int, times: SetSpans | bytes | None) -> "array[int]":
    """Rows of a time map, from what is known of the times; none if `data` would have to be
    decompressed for them."""
    if times is not None:
        return array("q", times if isinstance(times, bytes) else times[0])
    rows, end, _, _ = entry_spans(
        data, 0, block_bytes=BLOCK_BYTES, since_bytes=0, next_offset=next_offset, check_crc=False
    )
    return array("q", rows if end == len(data) else b"")
