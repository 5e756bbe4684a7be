"""Member ids that clients got and have not joined with yet (MEMBER_ID_REQUIRED, KIP-394).

A client whose first request to join got lost asks again, and would leave a member behind that no
client knows of. So it is given an id first. Unlike in Kafka a rebalance does not wait for clients
that have an id only.
"""

import heapq
from collections.abc import Callable
from math import inf
from typing import Final

from .member import MEMBER_BYTES, Joining

LEFT_OVER_MAX: Final = 100
"""So many deadlines that do not count any more are no reason to clear up."""

Key = tuple[str, str]
"""Group and member id."""


class GivenIds:
    """The ids of all groups, each until its session would be over."""

    def __init__(self, on_size: Callable[[Joining, int], None]) -> None:
        """`on_size` is called with how many bytes more a client's ids take, or less."""
        self._on_size = on_size
        self._given: dict[Key, tuple[float, Joining]] = {}
        self._due: list[tuple[float, Key]] = []
        """A heap. Entries of ids that were taken are left over."""

    def give(self, now: float, key: Key, joining: Joining) -> None:
        expires_at = now + joining.session_timeout_ms / 1000
        self._given[key] = expires_at, joining
        heapq.heappush(self._due, (expires_at, key))
        if len(self._due) > LEFT_OVER_MAX + 2 * len(self._given):
            self._due = [(each[0], one) for one, each in self._given.items()]
            heapq.heapify(self._due)
        self._on_size(joining, size_bytes(joining))

    def has(self, key: Key) -> bool:
        return key in self._given

    def take(self, key: Key) -> bool:
        """Forget an id, which is used or given up; whether it was there."""
        found = self._given.pop(key, None)
        if found is None:
            return False
        self._on_size(found[1], -size_bytes(found[1]))
        return True

    def next_deadline(self) -> float:
        """When `time_passed` has something to do."""
        while self._due and self._due[0][1] not in self._given:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else inf

    def time_passed(self, now: float) -> None:
        """Forget the ids that were not used in time."""
        while self.next_deadline() <= now:
            self.take(heapq.heappop(self._due)[1])

    def clear(self) -> None:
        """No group is known any more."""
        self._given.clear()
        self._due.clear()


def size_bytes(joining: Joining) -> int:
    """What an id takes that a client got, about: as a member, which it is about to become."""
    return MEMBER_BYTES + joining.size_bytes
