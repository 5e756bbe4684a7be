"""The last messages of topics, found by reading partitions from their ends."""

from collections.abc import Iterable, Sequence
from typing import Final

from ...client.consume.time_bounds import CREATE
from .reading import ConsumedRange, RangeSource, TopicPartition, WindowSource
from .selection import Selection, time_of

LAST_MAX: Final = 100_000
"""Largest number of last messages whose places are kept in memory."""

_STEP_MAX: Final = 1_000_000
"""Largest piece of a partition, in offsets, that is looked through for its last messages."""

_NO_TIME: Final = -1

_Place = tuple[int, int]
"""(offset, time) of a message."""


class PartitionTails:
    """The places of the last messages of partitions, at most `count` in all.

    Of several partitions these are the messages that a merge from the ends gives: again and again,
    of the last messages that are left, the one with the latest time is taken. So a partition has
    all messages from the first one that is taken.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._tails: dict[TopicPartition, list[_Place]] = {}
        self._added: TopicPartition | None = None

    def add(self, key: TopicPartition, offset: int, time_ms: int | None) -> None:
        """Add a message. Those of a partition come together, in the order of their offsets."""
        if key != self._added:
            self.trim()
            self._added = key
        tail = self._tails.setdefault(key, [])
        tail.append((offset, _NO_TIME if time_ms is None else time_ms))
        if len(tail) >= 2 * self._count + 1000:
            del tail[: -self._count]

    def put_before(self, key: TopicPartition, messages: Sequence[_Place]) -> bool:
        """Add messages before those that the partition has; returns whether there are enough."""
        tail = [*messages, *self._tails.get(key, ())]
        self._tails[key] = tail[-self._count :]
        return len(tail) >= self._count

    def trim(self) -> None:
        """Drop what is not among the last messages of the partitions, which are complete."""
        places: list[tuple[int, TopicPartition, int]] = []
        for key, tail in self._tails.items():
            earliest_ms = tail[-1][1] if tail else _NO_TIME
            for offset, time_ms in reversed(tail[-self._count :]):
                # In the order of the merge a message is as late as the earliest one behind it.
                earliest_ms = min(earliest_ms, time_ms)
                places.append((earliest_ms, key, offset))
        places.sort()
        first: dict[TopicPartition, int] = {}
        for _, key, offset in places[-self._count :]:
            first[key] = min(offset, first.get(key, offset))
        self._tails = {
            key: [place for place in self._tails[key] if place[0] >= offset]
            for key, offset in first.items()
        }

    def ranges(self, topics: Sequence[str]) -> list[ConsumedRange]:
        """Return the ranges of offsets in which the messages are, in the order of the topics."""
        self.trim()
        numbers = {name: number for number, name in enumerate(topics)}
        keys = sorted(self._tails, key=lambda key: (numbers[key[0]], key[1]))
        return [
            ConsumedRange(*key, self._tails[key][0][0], self._tails[key][-1][0] + 1) for key in keys
        ]


async def find_last(
    sources: Iterable[WindowSource | RangeSource], count: int, selection: Selection
) -> PartitionTails:
    """Find the last `count` selected messages of the sources, which are not followed.

    A range of offsets is read from its end backwards, in pieces that grow, until there are enough;
    a window is read as a whole.
    """
    tails = PartitionTails(count)
    for source in sources:
        if isinstance(source, WindowSource):
            async for batch in source.batches():
                for record in selection.of(batch):
                    time_ms = time_of(record, source.bounds.by)
                    tails.add((record.topic, record.partition), record.offset, time_ms)
            continue
        await source.begin()
        found_all = True
        for one in source.ranges:
            found_all &= await _read_back(source, one, tails, count, selection)
            tails.trim()
        if not found_all:
            await source.find_missing()
    return tails


async def _read_back(
    source: RangeSource,
    whole: ConsumedRange,
    tails: PartitionTails,
    count: int,
    selection: Selection,
) -> bool:
    """Add the last messages of a range. Returns whether there are as many as are wanted."""
    end, step = whole.end or whole.start, count
    while end > whole.start:
        begin = max(whole.start, end - step)
        found: list[_Place] = []
        piece = ConsumedRange(whole.topic, whole.partition, begin, end)
        async for batch in source.read([piece]):
            for record in selection.of(batch):
                time_ms = time_of(record, CREATE)
                found.append((record.offset, _NO_TIME if time_ms is None else time_ms))
            del found[:-count]
        if tails.put_before(whole.key, found):
            return True
        end, step = begin, min(4 * step, _STEP_MAX)
    return False
