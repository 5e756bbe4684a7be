"""Epoch histories: questions and answers against two plain logs of (epoch, message)."""

from hypothesis import given
from hypothesis import strategies as st

from horolog.replication.epochs import (
    NO_EPOCH,
    EpochStart,
    agrees,
    cut_end,
    cut_start,
    cut_to,
    end_of,
    epoch_at,
    latest,
    starts_between,
    with_start,
)

epochs = st.lists(st.integers(1, 6), max_size=12).map(sorted)
"""A log, as the epochs of its messages."""


def history(log: list[int]) -> list[EpochStart]:
    """By definition: the first offset of each epoch."""
    return [EpochStart(epoch, log.index(epoch)) for epoch in sorted(set(log))]


@given(epochs, st.integers(0, 7))
def test_an_epoch_ends_where_a_later_one_begins(log: list[int], epoch: int) -> None:
    found = end_of(history(log), epoch, len(log))
    before = [each for each in log if each <= epoch]
    assert found == (before[-1] if before else NO_EPOCH, len(before))


@given(epochs)
def test_every_message_has_its_epoch(log: list[int]) -> None:
    starts = history(log)
    assert [epoch_at(starts, offset) for offset in range(len(log))] == log
    assert latest(starts) == (log[-1] if log else NO_EPOCH)


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
        starts = history(follower)
        if not follower or agrees(history(other), len(other), len(follower), latest(starts)):
            break
        cut = cut_to(starts, len(follower), end_of(history(other), latest(starts), len(other)))
        assert cut < len(follower)
        del follower[cut:]
    assert follower == common


@given(epochs, st.integers(0, 12))
def test_a_cut_leaves_the_history_of_what_is_left(log: list[int], at: int) -> None:
    assert cut_end(history(log), min(at, len(log))) == history(log[:at])


@given(epochs, st.integers(0, 12))
def test_a_raised_start_keeps_the_epochs_above_it(log: list[int], at: int) -> None:
    if at < len(log):
        starts = cut_start(history(log), at)
        assert [epoch_at(starts, offset) for offset in range(at, len(log))] == log[at:]
        assert starts[0].offset == at


@given(epochs, st.integers(0, 11), st.integers(1, 12))
def test_a_reader_of_a_range_gets_the_epochs_of_its_messages(
    log: list[int], first: int, end: int
) -> None:
    if first < end <= len(log):
        starts = starts_between(history(log), first, end)
        assert [epoch_at(starts, offset) for offset in range(first, end)] == log[first:end]


def test_an_epoch_without_messages_leaves_no_start() -> None:
    starts = with_start(with_start([], 1, 0), 2, 5)
    assert with_start(starts, 3, 5) == [EpochStart(1, 0), EpochStart(3, 5)]
