"""What to read: pure functions over offsets, and the windows of time of an exact read.

A plan depends on its arguments alone, because Spark asks for the same one again: after a crash the
batch that was not finished is planned anew and must be the same.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import Any, Final

from ..protocol.errors import HorologError
from ..times import INT64_MAX
from .logs import KEY, NO_LOGS, UNKNOWN, LogId, TopicLogs

TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, int]

AHEAD_MS: Final = 300_000
"""How far ahead of now a message may be dated. Its producer's clock is wrong beyond that, and its
time says nothing about how far a partition has come."""


BEGINS_ANEW: Final = (
    "With failOnDataLoss=false it is read from its beginning; a new checkpoint starts anew"
)
"""What can be done about a topic that is another one."""


@dataclass(frozen=True, slots=True)
class Window:
    """The times from `from_ms` on and before `until_ms`. A message without a time is in none."""

    from_ms: int = 0
    until_ms: int | None = None
    """None is no end."""

    @property
    def empty(self) -> bool:
        """Whether the window contains no time."""
        return self.until_ms is not None and self.until_ms <= self.from_ms


class DataLoss(HorologError):
    """Messages that were to be read are not in the log any more."""


@dataclass(frozen=True, slots=True)
class PlannedSpan:
    """Messages of one partition, from `start` up to `end`, which is exclusive."""

    topic: str
    partition: int
    start: int
    end: int
    log: LogId = UNKNOWN
    """What the offsets are of."""

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end - self.start


Stretch = tuple[int, int]
"""Offsets of a partition, from the first up to the second, which is exclusive."""


@dataclass(frozen=True, slots=True)
class Held:
    """A span of which only some stretches, in order, can have something of what is wanted."""

    span: PlannedSpan
    stretches: tuple[Stretch, ...]

    @property
    def size(self) -> int:
        """How many offsets the stretches have."""
        return sum(end - start for start, end in self.stretches)


def to_json(offsets: Offsets, logs: TopicLogs = NO_LOGS) -> dict[str, Any]:
    """As Spark stores offsets, `{"topic": {"0": 12}}`, and beside them what they are of: topics and
    partitions in order, because Spark compares the text."""
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found | logs.to_json()


def from_json(stored: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The offsets that `to_json` wrote."""
    return {
        (topic, int(partition)): offset
        for topic, partitions in stored.items()
        if topic != KEY
        for partition, offset in partitions.items()
    }


def spans(start: Offsets, end: Offsets, logs: TopicLogs = NO_LOGS) -> list[PlannedSpan]:
    """What lies between, in order, without empty ones, of `logs`. A partition without a start
    starts at 0: it is younger than the query. Raises DataLoss for an end before its start."""
    found = []
    for (topic, partition), stop in sorted(end.items()):
        begin = start.get((topic, partition), 0)
        if stop < begin:
            raise DataLoss(_backwards(topic, partition, begin, stop))
        if stop > begin:
            found.append(PlannedSpan(topic, partition, begin, stop, logs.of(topic)))
    return found


def beyond_end(topic: str, partition: int, start: int, end: int) -> str:
    """Why a log that ends before where reading goes on cannot be read."""
    return (
        f"{topic}-{partition} was to be read from offset {start} on, and its log ends at {end}: it "
        "was deleted and made again, or data was lost"
    )


def _backwards(topic: str, partition: int, start: int, end: int) -> str:
    return (
        f"{beyond_end(topic, partition, start, end)}. With failOnDataLoss=false it is read on when "
        "it has grown that long again; a new checkpoint starts anew"
    )


def split(
    found: Sequence[PlannedSpan], *, min_partitions: int, max_records: int
) -> list[PlannedSpan]:
    """The spans cut into more, so that there are at least `min_partitions` where there are as many
    messages, and none has more than `max_records`; 0 asks for neither.

    There are no more than that takes, and those are cut again that have the largest pieces.
    """
    whole = [Held(span, ((span.start, span.end),)) for span in found]
    return split_held(whole, min_partitions=min_partitions, max_records=max_records)


def split_held(
    found: Sequence[Held], *, min_partitions: int, max_records: int
) -> list[PlannedSpan]:
    """As `split`, where only the stretches are work: a piece may have gaps between them that cost
    nothing to read, and gaps between pieces are left out."""
    counts = [-(-held.size // max_records) if max_records else 1 for held in found]
    missing = min(min_partitions, sum(held.size for held in found)) - sum(counts)
    if missing > 0:
        # The largest pieces first, whose sizes are kept negative; of equal ones the first span's.
        largest = [
            (-held.size / count, number)
            for number, (held, count) in enumerate(zip(found, counts, strict=True))
        ]
        heapify(largest)
        for _ in range(missing):
            _, number = largest[0]
            counts[number] += 1
            heapreplace(largest, (-found[number].size / counts[number], number))
    return [piece for held, count in zip(found, counts, strict=True) for piece in _cut(held, count)]


def _cut(held: Held, count: int) -> list[PlannedSpan]:
    """`count` spans whose work differs by one message at most."""
    ends = [held.size * number // count for number in range(count + 1)]
    pieces = []
    for work_start, work_end in pairwise(ends):
        before, start, stop = 0, held.span.end, held.span.start
        for first, end in held.stretches:
            behind = before + end - first
            if before < work_end and work_start < behind:
                start = min(start, first + max(work_start - before, 0))
                stop = first + min(work_end, behind) - before
            before = behind
        pieces.append(replace(held.span, start=start, end=stop))
    return pieces


def rate_limit(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, int]:
    """The part of the way from `start` to `end` with about `most` messages.

    Each partition gets a share as large as its part of what is waiting, and one message at least
    while it has one, so that a small partition beside a large one does not starve.
    """
    waiting = {span_key(span): span.size for span in spans(start, end)}
    total = sum(waiting.values())
    limited = dict(end)
    if total <= most:
        return limited
    for key, size in waiting.items():
        share = max(size * most // total, 1)
        limited[key] = start.get(key, 0) + min(share, size)
    return limited


def span_key(span: PlannedSpan) -> TopicPartition:
    """Its partition."""
    return span.topic, span.partition


def without(offsets: Offsets, topics: Container[str]) -> dict[TopicPartition, int]:
    """`offsets` but those of `topics`."""
    return {key: offset for key, offset in offsets.items() if key[0] not in topics}


def capped(end: Offsets, limit: Offsets) -> dict[TopicPartition, int]:
    """`end`, nowhere beyond `limit`; partitions without a limit are left out."""
    return {key: min(offset, limit[key]) for key, offset in end.items() if key in limit}


def not_before(end: Offsets, start: Offsets) -> dict[TopicPartition, int]:
    """`end`, nowhere before `start`."""
    return {key: max(offset, start.get(key, offset)) for key, offset in end.items()}


def stored(found: Sequence[PlannedSpan], first: Offsets) -> list[PlannedSpan]:
    """What of the spans is not before these first offsets of their logs."""
    kept = (replace(span, start=max(span.start, first[span_key(span)])) for span in found)
    return [span for span in kept if span.size > 0]


def gone(start: Offsets, latest: Offsets) -> list[str]:
    """What was lost since `start`, a sentence for each partition: it is not there any more, or
    ends before."""
    lost = []
    for (topic, partition), offset in sorted(start.items()):
        end = latest.get((topic, partition))
        if end is None:
            lost.append(
                f"{topic}-{partition} was to be read from offset {offset} on, and is not there"
            )
        elif end < offset:
            lost.append(_backwards(topic, partition, offset, end))
    return lost


def not_read(left: Iterable[TopicPartition]) -> list[str]:
    """What is said of partitions that are there, and that the options leave out."""
    return [
        f"{topic}-{partition} is in the checkpoint and is not subscribed to: it is not read, and "
        "from its beginning if it is subscribed to again"
        for topic, partition in sorted(left)
    ]


def time_slice(
    start: Offsets,
    end: Offsets,
    next_times_ms: Mapping[TopicPartition, int],
    stops_at: Callable[[int], Offsets],
    slice_ms: int,
) -> dict[TopicPartition, int]:
    """The part of the way from `start` to `end` up to the next time that is a multiple of
    `slice_ms` in every partition, so that no partition runs ahead of another.

    `next_times_ms` has the timestamp that comes next in each partition, where there is one;
    `stops_at` says for a time the first offset from `start` on with that timestamp or a later one,
    and nothing of partitions without one. So at least one partition advances, and stretches of
    time without messages are passed over. Where nothing that comes has a time, or no multiple is
    later, all of the way is returned.
    """
    times = [
        next_times_ms[span_key(span)]
        for span in spans(start, end)
        if next_times_ms.get(span_key(span), -1) >= 0
    ]
    if not times:
        return dict(end)
    stop_ms = (min(times) // slice_ms + 1) * slice_ms
    if stop_ms > INT64_MAX:
        return dict(end)
    at = stops_at(stop_ms)
    return {key: min(max(at.get(key, stop), start.get(key, 0)), stop) for key, stop in end.items()}
