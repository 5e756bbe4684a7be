"""Queries on the positions in memory, wherever they are stored on disk."""

import heapq
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...protocol.errors import InvalidCommitOffsetSize
from ...times import later
from .position_records import KEPT, StoredPosition
from .position_table import PositionTable

MAX_POSITIONS: Final = 1_000_000
"""Maximum for all names together, whatever `max.positions.bytes` allows."""


_SUMMARISED_AT_ONCE: Final = 20_000
"""Number of positions of which one call returns the summaries, unless a single name has more."""


class NameSummary(NamedTuple):
    """The positions under one name, taken together."""

    name: str
    positions: int
    of_group: bool
    """Whether a client of Kafka's protocol committed one of them."""
    moved_ms: int
    """When one of them last moved; -1 for none."""
    used_ms: int
    """Time of the last commit, or of a later use of the name; -1 for none."""


class PositionReading:
    """Reads of a table of positions. They never wait."""

    def __init__(
        self,
        table: PositionTable,
        *,
        max_bytes: int | None = None,
        max_positions: int = MAX_POSITIONS,
    ) -> None:
        """`max_bytes` limits the memory used for positions."""
        self._table = table
        self.max_bytes = max_bytes
        self.max_positions = max_positions

    def go_by(self, table: PositionTable) -> None:
        """Read another table from now on."""
        self._table = table

    def get(self, name: str, topic: str, partition: int) -> StoredPosition | None:
        """Return the position, or `None` if nothing was committed."""
        return self._table.get(name, topic, partition)

    def of(self, name: str) -> list[StoredPosition]:
        """Return all positions under `name`, by topic and partition."""
        return sorted(self._table.of(name))

    def newest(self, count: int) -> list[tuple[str, str, int]]:
        """Return name, topic and partition of the most recent commits, newest first."""
        return self._table.newest(count)

    def names(self, after: str = "", limit: int | None = None) -> list[str]:
        """Return the names that have a position, sorted: at most `limit` of those after `after`."""
        behind = [name for name in self._table.names() if name > after]
        return sorted(behind) if limit is None else heapq.nsmallest(limit, behind)

    def __len__(self) -> int:
        """Number of positions."""
        return len(self._table)

    @property
    def size_bytes(self) -> int:
        """Memory used for the positions, as `max.positions.bytes` counts it."""
        return self._table.size_bytes

    def has(self, name: str) -> bool:
        """Whether there is a position under `name`."""
        return name in self._table

    def count_of(self, name: str) -> int:
        """Return the number of positions under `name`."""
        return self._table.count_of(name)

    def expires_ms(self, name: str, retention_ms: int) -> int | None:
        """Return when all positions under `name` expire: none of them was committed, and no client
        used the name, for their retention time. `None` if some are kept for ever.

        `retention_ms` applies to the positions that use the broker's setting.
        """
        held = self._table.of(name)
        if not held or any(position.retention_ms == KEPT for position in held):
            return None
        used_ms = max(position.used_at_ms for position in held)
        longest_ms = max(position.retention_ms or retention_ms for position in held)
        return later(used_ms, longest_ms)

    def is_of_group(self, name: str) -> bool:
        """Whether the positions under `name` were committed for a consumer group of
        a Kafka client."""
        return any(position.retention_ms != KEPT for position in self._table.of(name))

    def last_used_ms(self, name: str) -> int:
        """Return the time of the last commit under `name`, or of a later use; -1 for none."""
        held = self._table.of(name)
        return max((each.used_at_ms for each in held), default=-1)

    def summaries(self, after: str, limit: int) -> tuple[list[NameSummary], bool]:
        """Return the summaries of at most `limit` names after `after`, in order of name, and
        whether there are more. Fewer names, if they have many positions: the work is bounded."""
        names = self.names(after, limit + 1)
        found: list[NameSummary] = []
        positions = 0
        for name in names[:limit]:
            found.append(summary := self.summary(name))
            positions += summary.positions
            if positions >= _SUMMARISED_AT_ONCE:
                break
        return found, len(found) < len(names)

    def summary(self, name: str) -> NameSummary:
        """Return what is known of the positions under `name`."""
        held = self._table.of(name)
        return NameSummary(
            name,
            positions=len(held),
            of_group=any(each.retention_ms != KEPT for each in held),
            moved_ms=max((each.moved_at_ms for each in held), default=-1),
            used_ms=max((each.used_at_ms for each in held), default=-1),
        )

    def check_room(
        self,
        name: str,
        entries: Sequence[StoredPosition],
        *,
        pending: int = 0,
        pending_bytes: int = 0,
    ) -> None:
        """Raise `InvalidCommitOffsetSize` if `entries`, together with the pending ones, exceed a
        limit."""
        more, more_bytes = self._table.growth(name, entries)
        count, size_bytes = len(self._table) + pending, self._table.size_bytes + pending_bytes
        if more > 0 and count + more > self.max_positions:
            raise InvalidCommitOffsetSize(
                f"the store has {count} positions, {more} more would pass its limit "
                f"of {self.max_positions}; forget names that are out of use"
            )
        limit = self.max_bytes
        if limit is not None and more_bytes > 0 and size_bytes + more_bytes > limit:
            raise InvalidCommitOffsetSize(
                f"the stored positions take {size_bytes} bytes, {more_bytes} more would pass "
                f"max.positions.bytes={limit}; raise it, delete groups that are out of use, or "
                "commit shorter texts beside the positions"
            )
