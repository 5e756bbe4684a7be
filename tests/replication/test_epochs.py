"""Where two logs part: questions and answers against two plain logs of (epoch, message)."""

from hypothesis import given
from hypothesis import strategies as st

from horolog.replication.divergence import agrees, cut_to
from horolog.storage.log.epoch_history import EpochHistory, EpochStart

epochs = st.lists(st.integers(1, 6), max_size=12).map(sorted)
"""A log, as the epochs of its messages."""


def history(log: list[int]) -> EpochHistory:
    """By definition: the first offset of each epoch."""
    return EpochHistory(tuple(EpochStart(epoch, log.index(epoch)) for epoch in sorted(set(log))))


@given(epochs, epochs)
def test_logs_agree_where_the_same_offset_has_the_same_epoch(
    mine: list[int], other: list[int]
) -> None:
    if mine:
        same = len(mine) <= len(other) and other[len(mine) - 1] == mine[-1]
        assert agrees(history(other), len(other), len(mine), mine[-1]) == same


@given(st.data())
def test_questions_end_and_leave_what_is_common(data: st.DataObject) -> None:
    """Two logs that were written as logs are: each epoch by one leader, copied from it."""
    common = data.draw(epochs)
    odd = [each for each in range(max(common, default=0) + 1, 12) if each % 2]
    even = [each for each in range(max(common, default=0) + 1, 12) if not each % 2]
    mine = common + sorted(data.draw(st.lists(st.sampled_from(odd), max_size=6)))
    other = common + sorted(data.draw(st.lists(st.sampled_from(even), max_size=6)))
    follower = mine[:]
    for _ in range(20):
        left, theirs = history(follower), history(other)
        if not follower or agrees(theirs, len(other), len(follower), left.last_epoch):
            break
        cut = cut_to(left, len(follower), theirs.end_of(left.last_epoch, 0, len(other)))
        assert cut < len(follower)
        del follower[cut:]
    assert follower == common


def test_logs_that_part_below_the_followers_start_are_cut_below_it() -> None:
    """The follower begins anew there; cut at its own start it would keep what the leader lacks."""
    mine = EpochHistory((EpochStart(1, 0), EpochStart(5, 10))).begun_at(20)
    theirs = EpochHistory((EpochStart(1, 0), EpochStart(3, 8)))
    answer = theirs.end_of(5, 0, 25)
    assert answer == (3, 25)
    assert cut_to(mine, 30, answer) == 10
