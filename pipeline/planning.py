"""Plans reads: pure functions over offsets, and windows of time.

A plan depends on its arguments alone: after a crash Spark plans the unfinished batch again, and the
plan must be the same.
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
"""How far in the future a timestamp may be. Beyond that the producer's clock is wrong, and the
timestamp does not tell how far a partition has come."""


BEGINS_ANEW: Final = (
    "With failOnDataLoss=false it is read from its beginning; a new checkpoint starts anew"
)
"""Part of errors about a topic that was deleted and made again: what the user can do."""


@dataclass(frozen=True, slots=True)
class Window:
    """Window of time: from `from_ms` (inclusive) to `until_ms` (exclusive), epoch milliseconds. A
    message without a timestamp is in no window."""

    from_ms: int = 0
    until_ms: int | None = None
    """None for a window without an end."""

    @property
    def empty(self) -> bool:
        """Whether the window contains no time."""
        return self.until_ms is not None and self.until_ms <= self.from_ms


class DataLoss(HorologError):
    """Messages that were to be read are no longer in the log."""


@dataclass(frozen=True, slots=True)
class PlannedSpan:
    """Range of offsets of one partition to read, from `start` to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int
    log: LogId = UNKNOWN
    """Ids of the log that the offsets belong to."""

    @property
    def size(self) -> int:
        """Number of offsets in the span."""
        return self.end - self.start


Stretch = tuple[int, int]
"""Range of offsets of a partition: first offset, end offset (exclusive)."""


@dataclass(frozen=True, slots=True)
class Held:
    """A span, and the stretches of it, in order, that can hold messages of the window."""

    span: PlannedSpan
    stretches: tuple[Stretch, ...]

    @property
    def size(self) -> int:
        """Number of offsets in all stretches."""
        return sum(end - start for start, end in self.stretches)


def to_json(offsets: Offsets, logs: TopicLogs = NO_LOGS) -> dict[str, Any]:
    """Return offsets in the form that Spark stores, `{"topic": {"0": 12}}`, with the ids of their
    logs. Topics and partitions are sorted, because Spark compares the text."""
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found | logs.to_json()


def from_json(stored: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Read the offsets that `to_json` wrote."""
    return {
        (topic, int(partition)): offset
        for topic, partitions in stored.items()
        if topic != KEY
        for partition, offset in partitions.items()
    }


def spans(start: Offsets, end: Offsets, logs: TopicLogs = NO_LOGS) -> list[PlannedSpan]:
    """Return the non-empty spans from `start` to `end`, in order. A partition without a start
    begins at 0: it was added after the query began. Raises DataLoss for an end before its start."""
    found = []
    for (topic, partition), stop in sorted(end.items()):
        begin = start.get((topic, partition), 0)
        if stop < begin:
            raise DataLoss(_backwards(topic, partition, begin, stop))
        if stop > begin:
            found.append(PlannedSpan(topic, partition, begin, stop, logs.of(topic)))
    return found


def beyond_end(topic: str, partition: int, start: int, end: int) -> str:
    """Return the error text for a log that ends before the offset to read from."""
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
    """Cut spans into pieces of at most `max_records` offsets each, and into at least
    `min_partitions` pieces if there are as many offsets; 0 switches either limit off.

    There are no more pieces than these limits need; the spans with the largest pieces are cut
    further first.
    """
    whole = [Held(span, ((span.start, span.end),)) for span in found]
    return split_held(whole, min_partitions=min_partitions, max_records=max_records)


def split_held(
    found: Sequence[Held], *, min_partitions: int, max_records: int
) -> list[PlannedSpan]:
    """Like `split`, but only offsets in stretches count as work. A piece may contain gaps between
    stretches, which cost nothing to read; gaps between pieces are left out."""
    counts = [-(-held.size // max_records) if max_records else 1 for held in found]
    missing = min(min_partitions, sum(held.size for held in found)) - sum(counts)
    if missing > 0:
        # A heap of negative piece sizes, so that the span with the largest pieces comes first; for
        # equal sizes the first span.
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
    """Cut a span into `count` pieces whose work differs by one offset at most."""
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
    """Return an end nearer to `start`, so that a batch has about `most` messages.

    Each partition gets a share in proportion to its waiting messages, and at least one message if
    it has any, so that a small partition beside a large one does not starve.
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
    """The partition of a span."""
    return span.topic, span.partition


def without(offsets: Offsets, topics: Container[str]) -> dict[TopicPartition, int]:
    """Return `offsets` without the partitions of `topics`."""
    return {key: offset for key, offset in offsets.items() if key[0] not in topics}


def capped(end: Offsets, limit: Offsets) -> dict[TopicPartition, int]:
    """Return the smaller of `end` and `limit` for each partition; partitions without a limit are
    left out."""
    return {key: min(offset, limit[key]) for key, offset in end.items() if key in limit}


def not_before(end: Offsets, start: Offsets) -> dict[TopicPartition, int]:
    """Return the larger of `end` and `start` for each partition of `end`."""
    return {key: max(offset, start.get(key, offset)) for key, offset in end.items()}


def stored(found: Sequence[PlannedSpan], first: Offsets) -> list[PlannedSpan]:
    """Cut from the spans the offsets below `first`, the log starts; empty spans are dropped."""
    kept = (replace(span, start=max(span.start, first[span_key(span)])) for span in found)
    return [span for span in kept if span.size > 0]


def gone(start: Offsets, latest: Offsets) -> list[str]:
    """Return a sentence about each partition of `start` that does not exist any more, or whose log
    end in `latest` is before the offset in `start`."""
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
    """Return the warning for each partition that is in the checkpoint and is no longer
    subscribed to."""
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
    """Return an end nearer to `start`: in every partition the first offset of the next time slice,
    so that no partition runs ahead of another. Slices begin at multiples of `slice_ms`.

    `next_times_ms` has the next timestamp of each partition that has one. `stops_at` returns for a
    time the first offset of each partition, from `start` on, with that timestamp or a later one;
    partitions without such a message are left out. The slice is that of the earliest next
    timestamp, so at least one partition advances, and times without messages are skipped. If no
    next message has a timestamp, or the end of the slice does not fit in 64 bits, `end` is
    returned.
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
