"""Where a follower's log leaves the leader's.

Two logs that have the same epoch at one offset are equal up to there, because in each epoch only
one broker gives out offsets.
"""

from bisect import bisect_right
from operator import attrgetter

from ..storage.log.epoch_history import EpochEnd, EpochHistory


def agrees(history: EpochHistory, log_end_offset: int, end: int, epoch: int) -> bool:
    """Whether a log that ends at `end` with a message of `epoch` is a beginning of this one."""
    starts = history.starts
    found = len(starts)
    if not found or starts[-1].epoch != epoch:  # It nearly always is the last one.
        found = bisect_right(starts, epoch, key=attrgetter("epoch"))
        if not found or starts[found - 1].epoch != epoch:
            return False
    start_offset = starts[found - 1].start_offset
    if end < start_offset or (end == start_offset and found > 1):
        return False  # The first start may stand for messages that are below the log start.
    return end <= (starts[found].start_offset if found < len(starts) else log_end_offset)


def cut_to(history: EpochHistory, log_end_offset: int, answer: EpochEnd) -> int:
    """Where a follower with this history cuts its log at the leader's `answer`.

    The smaller one of where the leader's epoch ends and where the follower's own epochs up to that
    one end, which may be below its log start. It asks again afterwards: its last epoch may be one
    that the leader does not have.
    """
    return min(answer.end_offset, history.end_of(answer.epoch, 0, log_end_offset).end_offset)
