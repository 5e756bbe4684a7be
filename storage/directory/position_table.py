"""Positions in memory, each packed into bytes, because there may be a million of them; and queries
on them, wherever they are stored on disk.

A position is one `bytes` object: its numbers, then its text in UTF-8. Each name has a dictionary
from topic and partition to the position. All names share one key object for a partition, except for
partitions of window topics, whose number has no limit.
"""

import heapq
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from ...protocol.api.pieces import Pieces, finish
from ...protocol.errors import InvalidCommitOffsetSize
from ...protocol.window_topics import SEPARATOR
from ...times import later
from .position_records import (
    COMMIT,
    FORGET,
    KEPT,
    NOT_KNOWN,
    PositionChange,
    StoredPosition,
)

T = TypeVar("T")

MAX_POSITIONS: Final = 1_000_000
"""Maximum for all names together, whatever `max.positions.bytes` allows."""


_SUMMARISED_AT_ONCE: Final = 20_000
"""Number of positions of which one call returns the summaries, unless a single name has more."""

__all__ = ["NAME_BYTES", "POSITION_BYTES", "PositionTable"]

Key = tuple[str, int]
"""Topic and partition."""

NAME_BYTES: Final = 400
"""Memory for a name beside its own bytes and its positions."""

POSITION_BYTES: Final = 160
"""Memory for a position beside its text."""

WINDOW_BYTES: Final = 128
"""Additional memory for a position in a window topic, beside the topic's name."""

_NUMBERS: Final = Struct(">qqqqqiq")
"""Offset, timestamp, commit time, retention, time of the last use, leader epoch, time of the last
move."""
_USE: Final = Struct(">16xqqq")
"""Of the numbers: commit time, retention, and time of the last use."""

_MOVE: Final = Struct(">16xq20xq")
"""Of the numbers: commit time, and time of the last move."""

_RETENTION: Final = slice(24, 32)
"""The place of the retention."""

_KEPT: Final = KEPT.to_bytes(8, "big", signed=True)
_NOTHING: Final[Mapping[Key, bytes]] = {}

PIECE: Final = 20_000
"""Number of positions that are looked through before others get their turn."""

_SORTED_AT_ONCE: Final = 5_000
"""Number of positions that are sorted while no other thread can run: a million take a second."""

_CHANGED_AT_ONCE: Final = 2_000
"""Number of positions that are changed before others get their turn."""


class PositionTable:
    """All positions, by name, topic and partition.

    One thread at a time may change the table, and others may read meanwhile: every step of a change
    leaves the dictionaries readable, and readers iterate over copies.
    """

    def __init__(self) -> None:
        self._names: dict[str, dict[Key, bytes]] = {}
        self._keys: dict[Key, Key] = {}
        self._count = 0
        self.size_bytes = 0
        """Memory used for the positions: a rather high estimate."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def get(self, name: str, topic: str, partition: int) -> StoredPosition | None:
        packed = self._names.get(name, _NOTHING).get((topic, partition))
        return None if packed is None else _unpack((topic, partition), packed)

    def of(self, name: str) -> list[StoredPosition]:
        """Return all positions under `name`, unordered."""
        held = dict(self._names.get(name, _NOTHING))
        return [_unpack(key, packed) for key, packed in held.items()]

    def count_of(self, name: str) -> int:
        """Return the number of positions under `name`."""
        return len(self._names.get(name, _NOTHING))

    def uses_of(self, name: str) -> Iterator[tuple[int, int, int]]:
        """Yield commit time, retention and time of the last use of each position under `name`. Much
        faster than `of`: a name may have a position in each of 100,000 windows."""
        return map(_USE.unpack_from, self._packed(name))

    def moves_of(self, name: str) -> Iterator[tuple[int, int]]:
        """Yield commit time and time of the last move of each position under `name`."""
        return map(_MOVE.unpack_from, self._packed(name))

    def _packed(self, name: str) -> list[bytes]:
        return list(self._names.get(name, _NOTHING).values())

    def is_kept(self, name: str) -> bool:
        """Whether all positions under `name` are kept for ever, or there are none."""
        return all(each[_RETENTION] == _KEPT for each in self._packed(name))

    def first_expiring(
        self, name: str, without: Container[Key] = ()
    ) -> Pieces[tuple[StoredPosition | None, int]]:
        """Return that position under `name` that is first by topic and partition, of those that are
        neither kept for ever nor in `without`; and the time of the last use that one of them has,
        -1 for none."""
        held = self._names.get(name, _NOTHING)
        first: Key | None = None
        last_ms = -1
        for part in _parts(held.items()):
            expiring = {
                key: packed
                for key, packed in part
                if packed[_RETENTION] != _KEPT and key not in without
            }
            if expiring:
                lowest = min(expiring)
                first = lowest if first is None else min(first, lowest)
                uses = map(_USE.unpack_from, expiring.values())
                last_ms = max(last_ms, *(used_ms for _, _, used_ms in uses))
            yield
        return (None if first is None else _unpack(first, held[first])), last_ms

    def names(self) -> list[str]:
        """Return the names that have a position, unordered."""
        return list(self._names)

    def newest(self, count: int) -> list[tuple[str, str, int]]:
        """Return name, topic and partition of the most recent commits, newest first."""
        newest = heapq.nlargest(count, self._commit_times(), key=itemgetter(0))
        return [(name, *key) for _, name, key in newest]

    def _commit_times(self) -> Iterator[tuple[int, str, Key]]:
        for name, held in self._names.copy().items():
            for key, packed in held.copy().items():
                yield _NUMBERS.unpack_from(packed)[2], name, key

    def copy(self) -> "PositionTable":
        """Return a copy for another thread to read. Takes about 10 ns for each position."""
        copied = PositionTable()
        copied._names = {name: held.copy() for name, held in self._names.items()}
        return copied

    def window_topics(self, base: str) -> Pieces[set[str]]:
        """Return the topics with a position whose names may be those of windows of `base`."""
        start = base + SEPARATOR
        found: set[str] = set()
        for part in self._all_parts():
            found.update(key[0] for _, key in part if key[0].startswith(start))
            yield
        return found

    def has_topic(self, topic: str) -> bool:
        """Whether there is a position in `topic`."""
        return any(key[0] == topic for held in self._names.values() for key in held)

    def growth(self, name: str, entries: Iterable[StoredPosition]) -> tuple[int, int]:
        """Return how many positions, and how many bytes, `entries` would add."""
        held = self._names.get(name, _NOTHING)
        count = 0
        size_bytes = 0 if name in self._names else _name_bytes(name)
        for key, entry in {entry[:2]: entry for entry in entries}.items():
            before = held.get(key)
            count += before is None
            before_bytes = 0 if before is None else _packed_bytes(before)
            size_bytes += _entry_bytes(entry) - before_bytes
            if before is None:
                size_bytes += _key_bytes(key)
        return count, size_bytes

    def apply(self, change: PositionChange) -> None:
        """Apply a record."""
        finish(self.apply_in_pieces(change))

    def apply_in_pieces(self, change: PositionChange) -> Pieces[None]:
        """As `apply`, in pieces: a name may have a million positions. A commit is seen as a whole.
        If the work ends early, the table is of no use."""
        kind, name, entries = change
        if kind == COMMIT:
            packed: list[tuple[Key, bytes]] = []
            for entry in entries:
                packed.append((entry[:2], _pack(entry)))
                if len(packed) % _CHANGED_AT_ONCE == 0:
                    yield
            self._commit(name, packed)
        elif kind == FORGET:
            yield from self._forget(name)
        else:
            yield from self._drop(name, entries)

    def _commit(self, name: str, entries: Sequence[tuple[Key, bytes]]) -> None:
        if not entries:
            return
        count = 0
        size_bytes = 0 if name in self._names else _name_bytes(name)
        held = self._names.setdefault(name, {})
        for key, packed in entries:
            before = held.get(key)
            if before is None:
                count += 1
                size_bytes += _key_bytes(key) + _packed_bytes(packed)
                shared = key if SEPARATOR in key[0] else self._keys.setdefault(key, key)
                held[shared] = packed
            else:
                size_bytes += len(packed) - len(before)
                held[key] = packed
        self._count += count
        self.size_bytes += size_bytes

    def _forget(self, name: str) -> Pieces[None]:
        held = self._names.get(name)
        if held is None:
            return
        size_bytes = _name_bytes(name)
        for part in _parts(held.items()):
            size_bytes += sum(_packed_bytes(packed) + _key_bytes(key) for key, packed in part)
            yield
        del self._names[name]
        self._count -= len(held)
        self.size_bytes -= size_bytes
        while held:  # Freeing a million positions at once would take 100 ms.
            for _ in range(min(len(held), PIECE)):
                held.popitem()
            yield

    def _drop(self, name: str, entries: Iterable[StoredPosition]) -> Pieces[None]:
        """Drop the positions in the places of `entries` under `name`. The last use of the name is
        kept, because its positions expire together."""
        held = self._names.get(name, _NOTHING)
        gone: set[Key] = set()
        used_ms = -1
        for part in _parts(entries, _CHANGED_AT_ONCE):
            found = held.keys() & {entry[:2] for entry in part}
            gone |= found
            used_ms = max(used_ms, *(_USE.unpack_from(held[key])[2] for key in found), -1)
            yield
        first, last_ms = None, -1
        if used_ms >= 0 and len(gone) < len(held):
            first, last_ms = yield from self.first_expiring(name, gone)
        yield from self._remove(name, gone)
        if first is not None and used_ms > last_ms:
            self._commit(name, [(first[:2], _pack(first._replace(used_ms=used_ms)))])

    def _remove(self, name: str, gone: Collection[Key]) -> Pieces[None]:
        """Remove the positions `gone`, which exist, under `name`."""
        held = self._names.get(name)
        if held is None or not gone:
            return
        if len(gone) == len(held):
            yield from self._forget(name)
            return
        for part in _parts(gone, _CHANGED_AT_ONCE):
            for key in part:
                self.size_bytes -= _packed_bytes(held.pop(key)) + _key_bytes(key)
            self._count -= len(part)
            yield
        if len(gone) > len(held):
            self._names[name] = held.copy()  # It takes no more memory than its positions.

    def forget_topics(self, topic: str, windows: Container[str]) -> Pieces[None]:
        """Drop the positions in a topic, and in windows of it."""
        gone: dict[str, list[Key]] = {}
        for part in self._all_parts():
            for name, key in part:
                if key[0] == topic or key[0] in windows:
                    gone.setdefault(name, []).append(key)
            yield
        for name, keys in gone.items():
            yield from self._remove(name, keys)
        for key in [key for key in self._keys if key[0] == topic]:
            del self._keys[key]

    def _all_parts(self) -> Iterator[Sequence[tuple[str, Key]]]:
        """Yield name and key of all positions, `PIECE` at a time."""
        return _parts((name, key) for name, held in self._names.items() for key in held)


def _in_order(positions: list[StoredPosition]) -> list[StoredPosition]:
    """Return positions sorted, so that other threads can run meanwhile. Empties the list."""
    runs = []
    while positions:
        runs.append(sorted(positions[-_SORTED_AT_ONCE:]))
        del positions[-_SORTED_AT_ONCE:]
    runs.reverse()
    if all(before[-1] <= after[0] for before, after in pairwise(runs)):
        return list(chain.from_iterable(runs))
    return list(heapq.merge(*runs))


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
        return _in_order(self._table.of(name))

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
        retentions_ms, last_ms = set[int](), -1
        for committed_ms, own_ms, used_ms in self._table.uses_of(name):
            if own_ms == KEPT:
                return None
            retentions_ms.add(own_ms or retention_ms)
            # Twice as fast as `max`, of up to a million positions.
            if committed_ms > last_ms:
                last_ms = committed_ms
            if used_ms > last_ms:
                last_ms = used_ms
        return later(last_ms, max(retentions_ms)) if retentions_ms else None

    def is_of_group(self, name: str) -> bool:
        """Whether the positions under `name` were committed for a consumer group of
        a Kafka client."""
        return not self._table.is_kept(name)

    def last_used_ms(self, name: str) -> int:
        """Return the time of the last commit under `name`, or of a later use; -1 for none."""
        last_ms = -1
        for committed_ms, _, used_ms in self._table.uses_of(name):
            if committed_ms > last_ms:
                last_ms = committed_ms
            if used_ms > last_ms:
                last_ms = used_ms
        return last_ms

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
        moves = self._table.moves_of(name)
        moved_ms = [at_ms if own_ms == NOT_KNOWN else own_ms for at_ms, own_ms in moves]
        return NameSummary(
            name,
            positions=len(moved_ms),
            of_group=self.is_of_group(name),
            moved_ms=max(moved_ms, default=-1),
            used_ms=self.last_used_ms(name),
        )

    def check_room(
        self,
        name: str,
        entries: Sequence[StoredPosition],
        *,
        pending: int = 0,
        pending_bytes: int = 0,
    ) -> tuple[int, int]:
        """Return how many positions, and how many bytes, `entries` add. Raises
        `InvalidCommitOffsetSize` if they exceed a limit together with the pending ones."""
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
        return more, more_bytes


def _parts(items: Iterable[T], size: int | None = None) -> Iterator[list[T]]:
    """Yield `size` items at a time, `PIECE` by default."""
    left = iter(items)
    while part := list(islice(left, size or PIECE)):
        yield part


def _pack(entry: StoredPosition) -> bytes:
    return _NUMBERS.pack(*entry[2:5], *entry[6:]) + entry.metadata.encode()


def _unpack(key: Key, packed: bytes) -> StoredPosition:
    offset, timestamp_ms, commit_time_ms, *rest = _NUMBERS.unpack_from(packed)
    metadata = packed[_NUMBERS.size :].decode()
    return StoredPosition(*key, offset, timestamp_ms, commit_time_ms, metadata, *rest)


def _name_bytes(name: str) -> int:
    return NAME_BYTES + len(name.encode())


def _key_bytes(key: Key) -> int:
    """Return the memory of a position's key: 0 for a shared key; only keys in windows count."""
    return WINDOW_BYTES + len(key[0]) if SEPARATOR in key[0] else 0


def _packed_bytes(packed: bytes) -> int:
    return POSITION_BYTES + len(packed) - _NUMBERS.size


def _entry_bytes(entry: StoredPosition) -> int:
    return POSITION_BYTES + len(entry.metadata.encode())
