"""Counting a topic's messages in each interval of a time window."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import add
from typing import Final

from ...clock import SystemClock
from ...protocol.api.framing import ProtocolError
from ...protocol.api.log.count_by_time import CountByTimeResponse
from ...protocol.errors import UnsupportedVersion
from ...protocol.limits import MAX_INTERVALS
from ...times import format_time
from ...values import value_class
from ..cluster.route import Route
from ..consume.fetching import FetchOptions
from ..consume.time_bounds import APPEND, TimeBounds, time_bounds
from ..consume.time_window import TimeWindow, partition_numbers
from ..results import TimeCount, TimeCounts
from .count_answers import count_answers
from .gone import complete_from, removed_since

_MIB: Final = 1024 * 1024

_OPTIONS: Final = FetchOptions(
    min_bytes=1,
    partition_max_bytes=_MIB,
    max_bytes=16 * _MIB,
    max_decompressed_bytes=64 * _MIB,
    append_times=False,
)


@value_class
class Intervals:
    """Intervals that divide a window. The first starts at the window's start, and the last ends at
    the window's end."""

    from_ms: int
    until_ms: int
    every_ms: int
    by: str

    def __len__(self) -> int:
        return -(-(self.until_ms - self.from_ms) // self.every_ms)

    def begin_ms(self, number: int) -> int:
        """Return the start of an interval. The start of the interval after the last one is the
        window's end."""
        return min(self.from_ms + number * self.every_ms, self.until_ms)


def intervals_of(
    start: datetime | int,
    end: datetime | int,
    every: timedelta | None,
    by: str,
    *,
    check_units: bool,
) -> Intervals:
    """Return the intervals that a program asks for. Raises TypeError, ValueError for invalid
    arguments and for more intervals than a broker counts at once."""
    bounds = time_bounds(start, end, by, check_units=check_units)
    if bounds.from_ms is None or bounds.until_ms is None:
        raise TypeError("count_by_time needs a start and an end")
    every_ms = _every_ms(every, bounds.until_ms - bounds.from_ms)
    found = Intervals(bounds.from_ms, bounds.until_ms, every_ms, bounds.by)
    number = -(-(found.until_ms - found.from_ms) // every_ms)
    if number > MAX_INTERVALS:
        shortest_ms = -(-(found.until_ms - found.from_ms) // MAX_INTERVALS)
        # Rounded up, so that the value still suffices a moment later for a window that ends now.
        round_ms = 10 ** max(len(str(shortest_ms)) - 2, 0)
        shortest_ms = -(-shortest_ms // round_ms) * round_ms
        raise ValueError(
            f"from {format_time(found.from_ms)} until {format_time(found.until_ms)} there are "
            f"{number:,} intervals of {every_ms} ms, and at most {MAX_INTERVALS:,} are counted at "
            f"once: every has to be {shortest_ms} ms or more"
        )
    return found


def _every_ms(every: timedelta | None, window_ms: int) -> int:
    if every is None:
        return max(window_ms, 1)
    if not isinstance(every, timedelta):
        raise TypeError(f"every is a timedelta, not {type(every).__name__}")
    every_ms, rest = divmod(every, timedelta(milliseconds=1))
    if every_ms < 1 or rest:
        raise ValueError(f"every is a whole number of milliseconds from 1 on, not {every}")
    return every_ms


@dataclass(slots=True)
class _CountSum:
    """Sum of the counts so far."""

    counts: list[int]
    first_ms: int | None = None
    last_ms: int | None = None
    untimed: int = 0
    read_bytes: int = 0
    log_bytes: int = 0
    times_ms: dict[int, int | None] = field(default_factory=dict)
    """By partition the time from which on it is complete; None if that is not known."""

    def add(self, partition: int, answer: CountByTimeResponse) -> None:
        """Add the counts of one response."""
        if len(answer.counts) != len(self.counts):
            raise ProtocolError(
                f"a response with {len(answer.counts)} counts, and {len(self.counts)} were asked "
                "for"
            )
        self.counts = list(map(add, self.counts, answer.counts))
        if answer.first_ms >= 0:
            self.see(answer.first_ms, answer.last_ms)
        self.untimed += answer.untimed
        self.read_bytes += answer.read_bytes
        self.log_bytes += answer.log_bytes
        known_ms = None if answer.complete_from_ms < 0 else answer.complete_from_ms
        self.times_ms[partition] = complete_from((self.times_ms.get(partition, 0), known_ms))

    def see(self, first_ms: int, last_ms: int) -> None:
        """Extend the range of counted times by these two."""
        self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
        self.last_ms = last_ms if self.last_ms is None else max(self.last_ms, last_ms)


async def count_by_time(
    cluster: Route, topic: str, intervals: Intervals, partitions: Sequence[int] | None
) -> TimeCounts:
    """Count the messages of these partitions, or of all partitions, by time.

    If the broker does not serve this request, as in a Kafka cluster, the client reads the messages
    instead.
    """
    if partitions is None:
        numbers = list(range((await cluster.partition_counts([topic]))[topic]))
    else:
        numbers = partition_numbers(partitions)
    total = _CountSum([0] * len(intervals))
    try:
        for partition in numbers:
            answers = count_answers(
                *(cluster, topic, partition, (intervals.from_ms, intervals.until_ms)),
                *(intervals.every_ms, intervals.by),
            )
            async for answer in answers:
                total.add(partition, answer)
    except UnsupportedVersion:
        total = _CountSum([0] * len(intervals), times_ms=dict.fromkeys(numbers))
        await _read(cluster, topic, numbers, intervals, total)
    removed = await removed_since(
        *(cluster, topic, total.times_ms, intervals.from_ms),
        by_append=intervals.by == APPEND,
    )
    return TimeCounts(
        tuple(
            TimeCount(intervals.begin_ms(number), intervals.begin_ms(number + 1), count)
            for number, count in enumerate(total.counts)
        ),
        total.first_ms,
        total.last_ms,
        total.untimed,
        total.read_bytes,
        total.log_bytes,
        complete_from(total.times_ms.values()),
        removed,
    )


async def _read(
    cluster: Route,
    topic: str,
    partitions: Sequence[int],
    intervals: Intervals,
    total: _CountSum,
) -> None:
    """Count by reading the messages of the window."""
    by_append = intervals.by == APPEND
    window = TimeWindow(
        cluster,
        topic,
        TimeBounds(intervals.from_ms, intervals.until_ms, "append" if by_append else "create"),
        partitions,
        _OPTIONS,
        max_wait_ms=500,
        retry_timeout_ms=0,
        follow=None,
        clock=SystemClock(),
        closed=lambda window: None,
    )
    counts: Counter[int] = Counter()
    try:
        async for batch in window.columns(columns=()):
            column = batch.append_times_ms if by_append else batch.timestamps_ms
            assert column is not None, "they are asked for with such a window"
            times = column.tolist()
            total.see(min(times), max(times))
            counts.update((time - intervals.from_ms) // intervals.every_ms for time in times)
    finally:
        await window.close()
    for number, count in counts.items():
        total.counts[number] = count
    total.untimed = window.untimed
    total.read_bytes = window.read_bytes
    total.log_bytes = window.log_bytes
