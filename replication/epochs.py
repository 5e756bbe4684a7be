"""Leader epochs: where each began, and where a log leaves the leader's.

A history is a list of `EpochStart`, epochs and offsets both rising. A message has the epoch of the
last start at or below it. Two logs that have the same epoch at one offset are equal up to there,
because in each epoch only one broker gives out offsets.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

NO_EPOCH: Final = -1
"""Of a log without messages, and of messages from before epochs were kept."""

_PAST_ALL_OFFSETS: Final = 2**63


class EpochStart(NamedTuple):
    """A line of `leader-epoch-checkpoint`."""

    epoch: int
    offset: int
    """Of its first message."""


class EpochEnd(NamedTuple):
    """Where an epoch ends in some log."""

    epoch: int
    """`NO_EPOCH` when the log has none at or below the one asked for."""
    offset: int
    """The first offset behind it."""


History = Sequence[EpochStart]


def latest(history: History) -> int:
    """The epoch of the last message."""
    return history[-1][0] if history else NO_EPOCH


def epoch_at(history: History, offset: int) -> int:
    """The epoch of the message at `offset`."""
    found = bisect_right(history, offset, key=lambda start: start.offset)
    return history[found - 1].epoch if found else NO_EPOCH


def end_of(history: History, epoch: int, log_end_offset: int) -> EpochEnd:
    """The greatest epoch at or below `epoch`, and where that one ends (KIP-101, KIP-279)."""
    found = bisect_right(history, (epoch, _PAST_ALL_OFFSETS))
    if not found:
        return EpochEnd(NO_EPOCH, history[0].offset if history else log_end_offset)
    end = history[found].offset if found < len(history) else log_end_offset
    return EpochEnd(history[found - 1].epoch, end)


def agrees(history: History, log_end_offset: int, end: int, epoch: int) -> bool:
    """Whether a log that ends at `end` with a message of `epoch` is a beginning of this one."""
    found = bisect_right(history, (epoch, _PAST_ALL_OFFSETS))
    if not found or history[found - 1].epoch != epoch:
        return False
    start = history[found - 1].offset
    if end < start or (end == start and found > 1):
        return False  # The first start may stand for messages that are below the log start.
    return end <= (history[found].offset if found < len(history) else log_end_offset)


def cut_to(history: History, log_end_offset: int, answer: EpochEnd) -> int:
    """Where a follower with this history cuts its log at the leader's `answer`.

    The smaller one of where the leader's epoch ends and where the follower's own epochs up to that
    one end. It asks again afterwards: its last epoch may be one that the leader does not have.
    """
    return min(answer.offset, end_of(history, answer.epoch, log_end_offset).offset)


def starts_between(history: History, offset: int, next_offset: int) -> tuple[EpochStart, ...]:
    """The starts that a reader of the messages from `offset` on needs; the first may be earlier."""
    first = max(0, bisect_right(history, offset, key=lambda start: start.offset) - 1)
    last = bisect_left(history, next_offset, key=lambda start: start.offset)
    return tuple(history[first:last])


def with_start(history: History, epoch: int, offset: int) -> list[EpochStart]:
    """The history when `epoch` begins at `offset`. Epochs that got no message go (as in Kafka)."""
    kept = [start for start in history if start.epoch < epoch and start.offset < offset]
    return [*kept, EpochStart(epoch, offset)]


def cut_end(history: History, log_end_offset: int) -> list[EpochStart]:
    """The history of a log that ends at `log_end_offset`: a start without a message is none."""
    return [start for start in history if start.offset < log_end_offset]


def cut_start(history: History, log_start_offset: int) -> list[EpochStart]:
    """The history of a log that begins at `log_start_offset`, as does the epoch in force there.

    So an emptied log has one start, at its end.
    """
    first = bisect_right(history, log_start_offset, key=lambda start: start.offset) - 1
    if first < 0:
        return list(history)
    return [EpochStart(history[first].epoch, log_start_offset), *history[first + 1 :]]
