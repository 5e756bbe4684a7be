"""The times of the closed segments together: which of them a window passes over."""

from collections.abc import Sequence
from typing import Final

from ...protocol.records.layout import NO_TIMESTAMP
from ...times import INT64_MAX
from ..segment.segment import Segment

_LEAST_PLACES: Final = 16

_STEPS_MAX: Final = 256
"""Of one search in the tree: 20 or so are enough unless times of old and new messages alternate."""


class ClosedTimes:
    """The smallest and the largest time that may be in each closed segment, in a binary tree.

    A change takes as long as the tree is deep, and so does a search. The tree has room for more
    segments behind the last one; those that were dropped in front leave their places empty until it
    is full.
    """

    __slots__ = ("_begin", "_ends_bytes", "_largest_ms", "_places", "_smallest_ms", "count")

    def __init__(self, segments: Sequence[Segment]) -> None:
        """`segments` are the closed ones, the oldest first."""
        self.count = 0
        """How many there are."""
        self._begin = 0
        self._ends_bytes = [0]
        """For each place up to the last one in use, the sizes of all before it; and of all."""
        self._grow(
            [segment.largest_possible_ms for segment in segments],
            [smallest_possible_ms(segment) for segment in segments],
        )
        for segment in segments:
            self._ends_bytes.append(self._ends_bytes[-1] + segment.size_bytes)

    def _grow(self, largest_ms: list[int], smallest_ms: list[int]) -> None:
        """Make a tree of these, with as many free places behind them."""
        self.count, self._begin = len(largest_ms), 0
        places = _LEAST_PLACES
        while places < 2 * self.count:
            places *= 2
        self._places = places
        free = places - self.count
        largest_ms = [NO_TIMESTAMP] * places + largest_ms + [NO_TIMESTAMP] * free
        smallest_ms = [INT64_MAX] * places + smallest_ms + [INT64_MAX] * free
        for node in range(places - 1, 0, -1):
            largest_ms[node] = max(largest_ms[2 * node], largest_ms[2 * node + 1])
            smallest_ms[node] = min(smallest_ms[2 * node], smallest_ms[2 * node + 1])
        self._largest_ms, self._smallest_ms = largest_ms, smallest_ms

    def _put(self, place: int, largest_ms: int, smallest_ms: int) -> None:
        largest, smallest = self._largest_ms, self._smallest_ms
        node = self._places + place
        largest[node], smallest[node] = largest_ms, smallest_ms
        while node > 1:
            node >>= 1
            largest[node] = max(largest[2 * node], largest[2 * node + 1])
            smallest[node] = min(smallest[2 * node], smallest[2 * node + 1])

    def append(self, segment: Segment) -> None:
        """One more was closed."""
        if self._begin + self.count == self._places:
            first, begin = self._places + self._begin, self._begin
            self._grow(self._largest_ms[first:], self._smallest_ms[first:])
            del self._ends_bytes[:begin]
        self.count += 1
        self._ends_bytes.append(self._ends_bytes[-1] + segment.size_bytes)
        self.update(self.count - 1, segment)

    def update(self, number: int, segment: Segment) -> None:
        """More is known of the times of one."""
        self._put(self._begin + number, segment.largest_possible_ms, smallest_possible_ms(segment))

    def drop_first(self) -> None:
        """The oldest one went."""
        self._put(self._begin, NO_TIMESTAMP, INT64_MAX)
        self._begin += 1
        self.count -= 1

    def drop_last(self) -> None:
        """The newest one went, or takes appends again."""
        self.count -= 1
        self._put(self._begin + self.count, NO_TIMESTAMP, INT64_MAX)
        self._ends_bytes.pop()

    def next_for(self, number: int, first_ms: int, last_ms: int) -> int:
        """The first segment from `number` on that may hold a time between these two, or one in
        front of it; where none of the closed ones may, what comes behind them."""
        if number >= self.count:
            return number
        largest, smallest, places = self._largest_ms, self._smallest_ms, self._places
        node = places + self._begin + number
        for _ in range(_STEPS_MAX):
            if largest[node] >= first_ms and smallest[node] <= last_ms:
                if node >= places:
                    break
                node *= 2
                continue
            while node & 1:
                node >>= 1
            if not node:
                return self.count
            node += 1
        while node < places:
            node *= 2
        return min(node - places - self._begin, self.count)

    def bytes_between(self, number: int, following: int) -> int:
        """The size of segments, up to one that is not among them."""
        return self._ends_bytes[self._begin + following] - self._ends_bytes[self._begin + number]


def smallest_possible_ms(segment: Segment) -> int:
    """The smallest message time that may be in a segment; behind all times where none has any."""
    time_map = segment.time_map
    if segment.damaged is not None or time_map.summary_bytes < segment.size_bytes:
        return 0
    return time_map.first_ms if time_map.last_ms >= 0 else INT64_MAX
