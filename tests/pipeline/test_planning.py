"""Plans are pure; these hold for random logs."""

from bisect import bisect_left
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.pipeline import planning
from horolog.pipeline.planning import DataLoss, Span, TopicPartition

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
    with pytest.raises(DataLoss, match="t-0 was read up to offset 5, and its log ends at 3"):
        planning.spans({("t", 0): 5}, {("t", 0): 3})
    lost = planning.gone({("t", 0): 5, ("t", 1): 2}, {("t", 0): 3})
    assert [text.partition(" was")[0] for text in lost] == ["t-0", "t-1"]


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert planning.spans({}, {("t", 0): 3}) == [Span("t", 0, 0, 3)]


class Logs:
    """The timestamps of partitions, searched as a broker does it."""

    def __init__(self, times_ms: dict[TopicPartition, list[int]]) -> None:
        self.times_ms = times_ms
        self.end = {key: len(times) for key, times in times_ms.items()}
        self.largest = {key: list(accumulate(times, max)) for key, times in times_ms.items()}

    def at(self, time_ms: int) -> dict[TopicPartition, int]:
        found = {key: bisect_left(largest, time_ms) for key, largest in self.largest.items()}
        return {key: offset for key, offset in found.items() if offset < self.end[key]}

    def next(self, start: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {
            key: self.times_ms[key][offset]
            for key, offset in start.items()
            if offset < self.end[key]
        }


LOGS = st.dictionaries(
    KEYS, st.lists(st.integers(0, 20_000), max_size=40), min_size=1, max_size=4
).map(Logs)


@given(LOGS, st.integers(1, 9000))
def test_slices_of_time_reach_the_end_together(logs: Logs, slice_ms: int) -> None:
    start = dict.fromkeys(logs.end, 0)
    while start != logs.end:
        end = planning.time_slice(start, logs.end, logs.next(start), logs.at, slice_ms)
        assert any(end[key] > start[key] for key in end)
        assert all(start[key] <= end[key] <= logs.end[key] for key in end)
        # No partition is left behind: what it would have had next belongs to a later slice.
        read = [logs.largest[key][end[key] - 1] for key in end if end[key] > start[key]]
        cut = (max(read) // slice_ms + 1) * slice_ms
        for key in end:
            if end[key] < logs.end[key]:
                assert logs.largest[key][end[key]] >= cut - slice_ms
        again = planning.time_slice(start, logs.end, logs.next(start), logs.at, slice_ms)
        assert again == end
        start = end


@given(LOGS, st.integers(1, 9000))
def test_a_slice_of_ordered_logs_is_one_stretch_of_time(logs: Logs, slice_ms: int) -> None:
    ordered = Logs({key: sorted(times) for key, times in logs.times_ms.items()})
    start = dict.fromkeys(ordered.end, 0)
    while start != ordered.end:
        end = planning.time_slice(start, ordered.end, ordered.next(start), ordered.at, slice_ms)
        slices = {
            time_ms // slice_ms
            for key in end
            for time_ms in ordered.times_ms[key][start[key] : end[key]]
        }
        assert len(slices) == 1
        start = end


def test_without_times_a_slice_is_everything() -> None:
    start, end = {("t", 0): 1}, {("t", 0): 7}
    assert planning.time_slice(start, end, {}, lambda time_ms: {}, 1000) == end
