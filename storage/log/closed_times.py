"""The times of the closed segments together: which of them a window passes over, by bisection."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from ...times import INT64_MAX
from .segment import Segment


class ClosedTimes:
    """What is known of the segments at one time. The last one, which takes appends, is in no
    bound."""

    __slots__ = ("_bases", "_ends_bytes", "_largest_ms", "_smallest_ms", "segments")

    def __init__(self, segments: tuple[Segment, ...], largest_ms: Sequence[int]) -> None:
        """`largest_ms` are, for each closed segment, the largest time that may be in it and all
        before it."""
        self.segments = segments
        self._largest_ms = largest_ms
        smallest = [smallest_possible_ms(segment) for segment in reversed(segments[:-1])]
        self._smallest_ms = list(accumulate(smallest, min))[::-1]
        self._bases = [segment.base_offset for segment in segments]
        self._ends_bytes = [0, *accumulate(segment.size_bytes for segment in segments[:-1])]

    def holding(self, offset: int) -> int:
        """The number of the segment that an offset is in."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def next_for(self, number: int, first_ms: int, last_ms: int) -> int:
        """The first segment from `number` on that may hold a time between these two, as far as the
        bounds of all before it and all behind it tell."""
        closed = len(self.segments) - 1
        if number >= closed:
            return number
        if self._smallest_ms[number] > last_ms:
            return closed
        return max(number, bisect_left(self._largest_ms, first_ms))

    def bytes_between(self, number: int, following: int) -> int:
        """The size of closed segments, up to one that is not among them."""
        return self._ends_bytes[following] - self._ends_bytes[number]


def smallest_possible_ms(segment: Segment) -> int:
    """The smallest message time that may be in a segment; behind all times where none has any."""
    time_map = segment.time_map
    if segment.damaged is not None or time_map.told_bytes < segment.size_bytes:
        return 0
    return time_map.first_ms if time_map.last_ms >= 0 else INT64_MAX
