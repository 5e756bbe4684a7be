"""Plans are pure; these hold for random logs."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.pipeline import planning
from horolog.pipeline.planning import DataLoss, PlannedSpan, TopicPartition

KEYS = st.tuples(st.sampled_from("abc"), st.integers(0, 12))
RANGES = st.dictionaries(KEYS, st.tuples(st.integers(0, 50), st.integers(0, 5000)), max_size=6)

Ranges = dict[TopicPartition, tuple[int, int]]


def bounds(ranges: Ranges) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    start = {key: begin for key, (begin, _) in ranges.items()}
    return start, {key: begin + size for key, (begin, size) in ranges.items()}


@given(RANGES, st.randoms(use_true_random=False))
def test_json_is_canonical(ranges: Ranges, random: Random) -> None:
    start, _ = bounds(ranges)
    shuffled = dict(random.sample(list(start.items()), len(start)))
    stored = planning.to_json(start)
    assert str(stored) == str(planning.to_json(shuffled))
    assert planning.from_json(stored) == start
    for numbers in stored.values():
        assert [int(number) for number in numbers] == sorted(int(number) for number in numbers)


@given(RANGES, st.integers(0, 40), st.integers(0, 700))
def test_split_covers_everything_once(ranges: Ranges, least: int, most: int) -> None:
    start, end = bounds(ranges)
    whole = planning.spans(start, end)
    pieces = planning.split(whole, min_partitions=least, max_records=most)
    for span in whole:
        own = [piece for piece in pieces if planning.span_key(piece) == planning.span_key(span)]
        assert own[0].start == span.start
        assert own[-1].end == span.end
        assert [piece.end for piece in own[:-1]] == [piece.start for piece in own[1:]]
    assert all(piece.size for piece in pieces)
    if most:
        assert all(piece.size <= most for piece in pieces)
    assert pieces == planning.split(whole, min_partitions=least, max_records=most)
    # As many as are asked for, where there are as many messages, and not one more.
    needed = sum(-(-span.size // most) if most else 1 for span in whole)
    assert len(pieces) == max(needed, min(least, sum(span.size for span in whole)))


@pytest.mark.parametrize("sizes", [(50_000, 50_000, 50_000), (1, 1, 100_000), (7, 11, 14), (32,)])
def test_thirty_two_partitions_are_thirty_two(sizes: tuple[int, ...]) -> None:
    whole = [PlannedSpan("t", number, 5, 5 + size) for number, size in enumerate(sizes)]
    assert len(planning.split(whole, min_partitions=32, max_records=0)) == 32


def test_the_largest_are_cut_again() -> None:
    whole = [PlannedSpan("t", 0, 0, 300), PlannedSpan("t", 1, 0, 100)]
    pieces = planning.split(whole, min_partitions=4, max_records=0)
    assert pieces == [
        PlannedSpan("t", 0, 0, 100),
        PlannedSpan("t", 0, 100, 200),
        PlannedSpan("t", 0, 200, 300),
        PlannedSpan("t", 1, 0, 100),
    ]


@given(RANGES, st.integers(1, 3000))
def test_a_rate_limit_advances_every_partition(ranges: Ranges, most: int) -> None:
    start, end = bounds(ranges)
    limited = planning.rate_limit(start, end, most)
    assert limited.keys() == end.keys()
    waiting = planning.spans(start, end)
    for span in waiting:
        reached = limited[planning.span_key(span)]
        assert span.start < reached <= span.end
    taken = sum(span.size for span in planning.spans(start, limited))
    assert taken <= most + len(waiting)


def test_a_partition_that_runs_backwards_is_a_loss() -> None:
    with pytest.raises(
        DataLoss, match="t-0 was to be read from offset 5 on, and its log ends at 3"
    ):
        planning.spans({("t", 0): 5}, {("t", 0): 3})
    lost = planning.gone({("t", 0): 5, ("t", 1): 2}, {("t", 0): 3})
    assert [text.partition(" was")[0] for text in lost] == ["t-0", "t-1"]


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert planning.spans({}, {("t", 0): 3}) == [PlannedSpan("t", 0, 0, 3)]


SOON_MS = 20_000
"""Messages from then on are of clocks that are wrong."""


class Logs:
    """The timestamps of partitions, and what the broker tells of them."""

    def __init__(self, times_ms: dict[TopicPartition, list[int]]) -> None:
        self.times_ms = times_ms
        self.end = {key: len(times) for key, times in times_ms.items()}

    def slice(self, start: dict[TopicPartition, int], slice_ms: int) -> dict[TopicPartition, int]:
        def first(from_ms: int) -> dict[TopicPartition, int]:
            return {
                key: offset
                for key, times in self.times_ms.items()
                for offset in reversed(range(start[key], len(times)))
                if from_ms <= times[offset] < SOON_MS
            }

        nexts = {key: self.times_ms[key][offset] for key, offset in first(0).items()}
        return planning.time_slice(start, self.end, nexts, first, slice_ms)

    def between(
        self, start: dict[TopicPartition, int], end: dict[TopicPartition, int]
    ) -> list[int]:
        """The times that are not wrong."""
        return [
            time_ms
            for key, times in self.times_ms.items()
            for time_ms in times[start[key] : end[key]]
            if time_ms < SOON_MS
        ]


TIMES = st.lists(st.integers(0, SOON_MS - 1), max_size=40)
WRONG = st.lists(st.tuples(st.integers(0, 40), st.integers(SOON_MS, 2**62)), max_size=3)


@st.composite
def logs_of(draw: st.DrawFn, *, ordered: bool) -> Logs:
    """Some with messages of the future among them."""
    times_ms = {}
    for key in draw(st.sets(KEYS, min_size=1, max_size=4)):
        times = draw(TIMES)
        if ordered:
            times.sort()
        for place, time_ms in draw(WRONG):
            times.insert(place, time_ms)
        times_ms[key] = times
    return Logs(times_ms)


@given(logs_of(ordered=False), st.integers(1, 9000))
def test_slices_of_time_reach_the_end_together(logs: Logs, slice_ms: int) -> None:
    start = dict.fromkeys(logs.end, 0)
    while start != logs.end:
        end = logs.slice(start, slice_ms)
        assert any(end[key] > start[key] for key in end)
        assert all(start[key] <= end[key] <= logs.end[key] for key in end)
        # No partition is left behind: what it has next belongs to a later slice.
        for key in end:
            if end[key] < logs.end[key]:
                next_ms = logs.times_ms[key][end[key]]
                assert max(logs.between(start, end)) // slice_ms < next_ms // slice_ms
        assert logs.slice(start, slice_ms) == end
        start = end


@given(logs_of(ordered=True), st.integers(1, 9000))
def test_no_message_comes_later_than_a_slice(logs: Logs, slice_ms: int) -> None:
    start = dict.fromkeys(logs.end, 0)
    latest_ms = 0
    while start != logs.end:
        end = logs.slice(start, slice_ms)
        times = logs.between(start, end)
        assert all(time_ms >= latest_ms - slice_ms for time_ms in times)
        latest_ms = max([latest_ms, *times])
        start = end


@given(logs_of(ordered=True), st.integers(1, 9000))
def test_a_slice_of_ordered_logs_is_one_stretch_of_time(logs: Logs, slice_ms: int) -> None:
    start = dict.fromkeys(logs.end, 0)
    while start != logs.end:
        end = logs.slice(start, slice_ms)
        assert len({time_ms // slice_ms for time_ms in logs.between(start, end)}) <= 1
        start = end


def test_without_times_a_slice_is_everything() -> None:
    start, end = {("t", 0): 1}, {("t", 0): 7}
    assert planning.time_slice(start, end, {}, lambda time_ms: {}, 1000) == end


@pytest.mark.parametrize("slice_ms", [1, 1000, 2**62])
def test_the_last_time_there_is_has_no_slice_behind_it(slice_ms: int) -> None:
    start, end = {("t", 0): 1, ("t", 1): 0}, {("t", 0): 7, ("t", 1): 3}
    last_ms = 2**63 - 1
    next_ms = dict.fromkeys(end, last_ms)
    asked: list[int] = []

    def stops_at(time_ms: int) -> planning.Offsets:
        asked.append(time_ms)
        return {}

    assert planning.time_slice(start, end, next_ms, stops_at, slice_ms) == end
    assert asked == [], "no broker can be asked for a later time"
