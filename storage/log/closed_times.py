"""The times of the closed segments together, used to skip segments outside a time window."""

from collections.abc import Sequence
from typing import Final

from ...protocol.records.layout import NO_TIMESTAMP
from ...times import INT64_MAX
from ..segment.segment import Segment

_LEAST_PLACES: Final = 16

_STEPS_MAX: Final = 256
"""Maximum steps of one search in the tree. About 20 are enough, unless segments with old and new
timestamps alternate."""


class ClosedTimes:
    """The smallest and the largest timestamp that may be in each closed segment, as a binary tree.

    A change and a search take as many steps as the tree is deep. The tree has room for more
    segments at its end. Segments dropped at the front leave empty places until the tree is full.
    """

    __slots__ = ("_begin", "_ends_bytes", "_largest_ms", "_places", "_smallest_ms", "count")

    def __init__(self, segments: Sequence[Segment]) -> None:
        """`segments` are the closed segments, oldest first."""
        self.count = 0
        """Number of segments."""
        self._begin = 0
        self._ends_bytes = [0]
        """For each place up to the last one in use, the total size of all places before it; then
        the total."""
        self._grow(
            [segment.largest_possible_ms for segment in segments],
            [smallest_possible_ms(segment) for segment in segments],
        )
        for segment in segments:
            self._ends_bytes.append(self._ends_bytes[-1] + segment.size_bytes)

    def _grow(self, largest_ms: list[int], smallest_ms: list[int]) -> None:
        """Make a new tree with these values and at least as many free places."""
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
        """Add a segment that was closed."""
        if self._begin + self.count == self._places:
            first, begin = self._places + self._begin, self._begin
            self._grow(self._largest_ms[first:], self._smallest_ms[first:])
            del self._ends_bytes[:begin]
        self.count += 1
        self._ends_bytes.append(self._ends_bytes[-1] + segment.size_bytes)
        self.update(self.count - 1, segment)

    def update(self, number: int, segment: Segment) -> None:
        """Update the timestamps of one segment, because more is known of them."""
        self._put(self._begin + number, segment.largest_possible_ms, smallest_possible_ms(segment))

    def drop_first(self) -> None:
        """Remove the oldest segment."""
        self._put(self._begin, NO_TIMESTAMP, INT64_MAX)
        self._begin += 1
        self.count -= 1

    def drop_last(self) -> None:
        """Remove the newest segment, because it was dropped or takes appends again."""
        self.count -= 1
        self._put(self._begin + self.count, NO_TIMESTAMP, INT64_MAX)
        self._ends_bytes.pop()

    def next_for(self, number: int, first_ms: int, last_ms: int) -> int:
        """Return the first segment from `number` on that may hold a timestamp in the range, or a
        segment before it. If no closed segment may, return the number after the last one."""
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
        """Return the total size of the segments from `number` up to, but not including,
        `following`."""
        return self._ends_bytes[self._begin + following] - self._ends_bytes[self._begin + number]


def smallest_possible_ms(segment: Segment) -> int:
    """Return the smallest message timestamp that may be in a segment; `INT64_MAX` if no message has
    one."""
    time_map = segment.time_map
    if segment.damaged is not None or time_map.summary_bytes < segment.size_bytes:
        return 0
    return time_map.first_ms if time_map.last_ms >= 0 else INT64_MAX
