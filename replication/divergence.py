"""The offset at which a follower's log diverges from the leader's.

Two logs that have the same epoch at one offset are equal up to that offset, because only one broker
assigns offsets in an epoch.
"""

from bisect import bisect_right
from operator import attrgetter

from ..storage.log.epoch_history import EpochEnd, EpochHistory


def agrees(history: EpochHistory, log_end_offset: int, end: int, epoch: int) -> bool:
    """Whether a log that ends at `end`, with a last message of `epoch`, is a prefix of this log."""
    starts = history.starts
    found = len(starts)
    if not found or starts[-1].epoch != epoch:  # Nearly always the last epoch.
        found = bisect_right(starts, epoch, key=attrgetter("epoch"))
        if not found or starts[found - 1].epoch != epoch:
            return False
    start_offset = starts[found - 1].start_offset
    if end < start_offset or (end == start_offset and found > 1):
        return False  # The first start may stand for messages that are below the log start.
    return end <= (starts[found].start_offset if found < len(starts) else log_end_offset)


def cut_to(history: EpochHistory, log_end_offset: int, answer: EpochEnd) -> int:
    """Return the offset at which a follower with this history truncates its log, given the leader's
    `answer`.

    This is the smaller of two ends: that of the leader's epoch, and that of the follower's epochs
    up to the same one. It may be below the follower's log start. The follower asks again after the
    truncation, because its last epoch may still be one that the leader does not have.
    """
    return min(answer.end_offset, history.end_of(answer.epoch, 0, log_end_offset).end_offset)
