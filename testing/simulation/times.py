"""The times of messages in a simulated log, and the log's answers about them.

Beside the messages a log keeps the start of its segments and the largest time in each, like a time
index. `answers` uses these; `true_answers` reads every message.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ...config.topic import topic_settings
from ...protocol.records.layout import NO_TIMESTAMP
from ...storage.log.retention import plan_retention

SEGMENT_MESSAGES: Final = 4
"""Messages in a segment before a leader starts the next one."""

RETENTION_MS: Final = 3_600_000

LIMIT_MS: Final = 1_800_000
"""The topics' `max.message.time.difference.ms`."""

SETTINGS: Final = topic_settings(
    {},
    {"retention.ms": str(RETENTION_MS), "max.message.time.difference.ms": str(LIMIT_MS)},
)


class TimeAnswers(NamedTuple):
    """What a log answers about the times of its messages in a range of offsets."""

    firsts: tuple[int, ...]
    """For each requested time, the first offset with that time or a later one; -1 for none."""
    counts: tuple[int, ...]
    """For each two consecutive times, the number of messages between them."""
    largest: tuple[int, int]
    """The largest time, and the first offset that has it."""
    deleted: tuple[int, ...]
    """For the middle times, the log start after retention at the moment when messages of that time
    expire."""


class Judged(NamedTuple):
    """A simulated segment, as the `SegmentFacts` that retention needs."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int

    @property
    def age_from_ms(self) -> int:
        return self.largest_timestamp_ms


class Times:
    """The times of one log."""

    __slots__ = ("bases", "largest_ms", "of", "start")

    def __init__(self) -> None:
        self.of: list[int] = []
        """Times by offset; -1 below the log start."""
        self.start = 0
        """The log start offset."""
        self.bases: list[int] = [0]
        """Base offsets of the segments. The first may be below the log start."""
        self.largest_ms: list[int] = [NO_TIMESTAMP]
        """Largest time of each segment, from the log start on."""

    def copy(self) -> "Times":
        made = Times()
        made.of, made.start, made.bases = self.of[:], self.start, self.bases[:]
        made.largest_ms = self.largest_ms[:]
        return made

    def append(self, time_ms: int) -> None:
        """Append a message as the leader, which starts new segments."""
        if len(self.of) - self.bases[-1] >= SEGMENT_MESSAGES:
            self.roll(len(self.of))
        self.add(time_ms)

    def add(self, time_ms: int) -> None:
        """Add a message to the last segment."""
        self.of.append(time_ms)
        if time_ms > self.largest_ms[-1]:
            self.largest_ms[-1] = time_ms

    def roll(self, base_offset: int) -> None:
        """Start a segment at the log end, unless the last one is empty."""
        if base_offset > self.bases[-1]:
            self.bases.append(base_offset)
            self.largest_ms.append(NO_TIMESTAMP)

    def bases_between(self, first: int, end: int) -> list[int]:
        """Return the base offsets within a range."""
        bases = self.bases
        return bases[bisect_left(bases, first) : bisect_left(bases, end)]

    def segment_of(self, offset: int) -> tuple[int, int]:
        """Return (base offset, end) of the segment that contains an offset."""
        number = bisect_right(self.bases, offset) - 1
        after = self.bases[number + 1 :]
        return self.bases[number], after[0] if after else len(self.of)

    def cut(self, end: int) -> None:
        """Remove the messages from `end` on."""
        del self.of[end:]
        count = max(bisect_left(self.bases, end), 1)
        del self.bases[count:], self.largest_ms[count:]
        self.bases[-1] = min(self.bases[-1], end)
        first = max(self.bases[-1], self.start)
        self.largest_ms[-1] = max(self.of[first:], default=NO_TIMESTAMP)

    def go_on_as(self, other: "Times", offset: int) -> None:
        """Become equal to `other` from `offset` on."""
        self.cut(offset)
        for at in range(offset, len(other.of)):
            if at in other.bases:
                self.roll(at)
            self.add(other.of[at])

    def begin(self, offset: int) -> None:
        """Remove everything; the log continues at `offset`."""
        self.of, self.start = [NO_TIMESTAMP] * offset, offset
        self.bases, self.largest_ms = [offset], [NO_TIMESTAMP]

    def raise_start(self, offset: int) -> None:
        """Remove the messages below `offset`."""
        if offset <= self.start:
            return
        count = bisect_right(self.bases, offset) - 1
        del self.bases[:count], self.largest_ms[:count]
        self.of[self.start : offset] = [NO_TIMESTAMP] * (offset - self.start)
        self.start = offset
        if self.bases[0] < offset:
            end = self.bases[1] if len(self.bases) > 1 else None
            self.largest_ms[0] = max(self.of[offset:end], default=NO_TIMESTAMP)

    # Answers.

    def answers(self, end: int, targets_ms: Sequence[int]) -> TimeAnswers:
        """Answer about the messages below `end`, from the segments and their largest times."""
        segments = self.segments(end)
        firsts = tuple(self._first(segments, target_ms) for target_ms in targets_ms)
        counts = tuple(
            self._count(segments, since_ms, until_ms) for since_ms, until_ms in pairwise(targets_ms)
        )
        largest_ms = max((one.largest_timestamp_ms for one in segments), default=NO_TIMESTAMP)
        return TimeAnswers(
            firsts,
            counts,
            (largest_ms, self._first(segments, largest_ms)),
            tuple(deleted(segments, target_ms) for target_ms in targets_ms[1:3]),
        )

    def segments(self, end: int) -> list[Judged]:
        """Return the segments, cut off at `end`."""
        found = []
        bases, of = self.bases, self.of
        for number, begin in enumerate(bases):
            base = max(begin, self.start)
            if base >= end:
                break
            next_offset = bases[number + 1] if number + 1 < len(bases) else len(of)
            largest_ms = self.largest_ms[number]
            if next_offset > end:
                next_offset, largest_ms = end, max(of[base:end])
            found.append(Judged(base, next_offset, next_offset - base, largest_ms))
        return found

    def _first(self, segments: Sequence[Judged], target_ms: int) -> int:
        for base, next_offset, _, largest_ms in segments:
            if largest_ms >= target_ms:
                for offset in range(base, next_offset):
                    if self.of[offset] >= target_ms:
                        return offset
        return -1

    def _count(self, segments: Sequence[Judged], since_ms: int, until_ms: int) -> int:
        return sum(
            since_ms <= time_ms < until_ms
            for base, next_offset, _, largest_ms in segments
            if largest_ms >= since_ms
            for time_ms in self.of[base:next_offset]
        )


def deleted(segments: Sequence[Judged], newest_ms: int) -> int:
    """Return the log start after retention at the first moment when messages of `newest_ms` are
    expired; -1 without a segment."""
    return expired_to(segments, newest_ms + RETENTION_MS + 1)


def expired_to(segments: Sequence[Judged], now_ms: int) -> int:
    """Return the log start after retention at `now_ms`; -1 without a segment."""
    if not segments:
        return -1
    end = segments[-1].next_offset
    plan = plan_retention(segments, SETTINGS, now_ms=now_ms, high_watermark=end, explain=False)
    count = plan.delete_count
    return segments[count].base_offset if count < len(segments) else end


def true_answers(
    times_ms: Sequence[int], bases: Sequence[int], start: int, targets_ms: Sequence[int]
) -> TimeAnswers:
    """Return the right answers about the messages from `start` on, in segments with these base
    offsets."""
    left = times_ms[start:]
    pairs = pairwise(targets_ms)
    largest_ms = max(left, default=NO_TIMESTAMP)
    first = bisect_right(bases, start)
    begins = [start, *bases[first:]] if left else []
    ends = [*bases[first:], len(times_ms)]
    segments = [
        Judged(base, end, end - base, max(times_ms[base:end]))
        for base, end in zip(begins, ends, strict=False)
    ]
    return TimeAnswers(
        tuple(
            next((at for at, ms in enumerate(left, start) if ms >= target), -1)
            for target in targets_ms
        ),
        tuple(sum(since <= ms < until for ms in left) for since, until in pairs),
        (largest_ms, start + left.index(largest_ms) if left else -1),
        tuple(deleted(segments, target_ms) for target_ms in targets_ms[1:3]),
    )
