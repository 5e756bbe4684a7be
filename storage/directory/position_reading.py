"""What can be asked about the positions in memory, wherever they are kept on disk."""

import heapq
from collections.abc import Sequence
from typing import Final

from ...protocol.errors import InvalidCommitOffsetSize
from ...times import later
from .position_records import KEPT, StoredPosition
from .position_table import PositionTable

MAX_POSITIONS: Final = 1_000_000
"""All names together, whatever `max.positions.bytes` allows."""


class PositionReading:
    """Reads of a table of positions, which never wait."""

    def __init__(
        self,
        table: PositionTable,
        *,
        max_bytes: int | None = None,
        max_positions: int = MAX_POSITIONS,
    ) -> None:
        """`max_bytes` bounds the memory that positions take."""
        self._table = table
        self.max_bytes = max_bytes
        self.max_positions = max_positions

    def go_by(self, table: PositionTable) -> None:
        """Read another table from now on."""
        self._table = table

    def get(self, name: str, topic: str, partition: int) -> StoredPosition | None:
        """The position, or `None` when nothing was committed."""
        return self._table.get(name, topic, partition)

    def of(self, name: str) -> list[StoredPosition]:
        """All positions under `name`, by topic and partition."""
        return sorted(self._table.of(name))

    def newest(self, count: int) -> list[tuple[str, str, int]]:
        """Name, topic and partition of those committed last, the newest first."""
        return self._table.newest(count)

    def names(self, after: str = "", limit: int | None = None) -> list[str]:
        """The names that have a position, sorted: at most `limit` of those behind `after`."""
        behind = [name for name in self._table.names() if name > after]
        return sorted(behind) if limit is None else heapq.nsmallest(limit, behind)

    def __len__(self) -> int:
        """How many positions there are."""
        return len(self._table)

    @property
    def size_bytes(self) -> int:
        """Memory that they take, as `max.positions.bytes` counts it."""
        return self._table.size_bytes

    def has(self, name: str) -> bool:
        """Whether there is a position under `name`."""
        return name in self._table

    def count_of(self, name: str) -> int:
        """How many positions there are under `name`."""
        return self._table.count_of(name)

    def expires_ms(self, name: str, retention_ms: int) -> int | None:
        """When everything under `name` has outlived its use: none of it was committed, and no
        client used the name, for as long as it is to be kept. `None` for what is kept for ever.

        `retention_ms` is for the positions that go by the broker's settings.
        """
        held = self._table.of(name)
        if not held or any(position.retention_ms == KEPT for position in held):
            return None
        used_ms = max(max(position.commit_time_ms, position.used_ms) for position in held)
        longest_ms = max(position.retention_ms or retention_ms for position in held)
        return later(used_ms, longest_ms)

    def is_of_group(self, name: str) -> bool:
        """Whether what is stored under `name` was committed for a group of Kafka's clients."""
        return any(position.retention_ms != KEPT for position in self._table.of(name))

    def last_used_ms(self, name: str) -> int:
        """The last commit under `name`, or when it was seen in use after that; -1 for none."""
        held = self._table.of(name)
        return max((max(each.commit_time_ms, each.used_ms) for each in held), default=-1)

    def check_room(
        self,
        name: str,
        entries: Sequence[StoredPosition],
        *,
        pending: int = 0,
        pending_bytes: int = 0,
    ) -> None:
        """Raise `InvalidCommitOffsetSize` where `entries` would be more than there may be, with
        those that are on their way."""
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
