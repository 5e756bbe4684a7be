"""Where something of a window can be, found out with few questions; and tasks made of that."""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.pipeline import planning
from horolog.pipeline.bounds import PROBES, stretches
from horolog.pipeline.planning import Held, PlannedSpan, Stretch


class Log:
    """Blocks of so many offsets, some of which may have messages of the window."""

    def __init__(self, blocks: set[int], size: int, *, tells: bool = True) -> None:
        self._starts = sorted(block * size for block in blocks)
        self._size = size
        self._tells = tells
        self.asked: list[int] = []

    def held(self, span: PlannedSpan) -> set[int]:
        return {
            offset
            for start in self._starts
            for offset in range(start, start + self._size)
            if span.start <= offset < span.end
        }

    async def firsts(self, offsets: Sequence[int]) -> list[int | None]:
        self.asked += offsets
        return [self._first(offset) if self._tells else None for offset in offsets]

    def _first(self, offset: int) -> int:
        at = bisect_left(self._starts, offset - self._size + 1)
        return max(self._starts[at], offset) if at < len(self._starts) else 2**40

    def stretches(self, span: PlannedSpan, probes: int) -> tuple[Stretch, ...]:
        return asyncio.run(stretches(self.firsts, span, probes))


def covered(found: Sequence[Stretch]) -> set[int]:
    return {offset for start, end in found for offset in range(start, end)}


@given(
    st.sets(st.integers(0, 60), max_size=20),
    st.integers(1, 40),
    st.integers(0, 500),
    st.integers(1, 2500),
    st.integers(1, PROBES),
)
def test_nothing_is_left_out_with_a_bounded_number_of_questions(
    blocks: set[int], size: int, start: int, length: int, probes: int
) -> None:
    log, span = Log(blocks, size), PlannedSpan("t", 0, start, start + length)
    found = log.stretches(span, probes)
    assert log.held(span) <= covered(found) <= set(range(span.start, span.end))
    assert len(log.asked) == len(set(log.asked)) <= probes
    assert all(first < end for first, end in found)
    assert list(found) == sorted(found)


@pytest.mark.parametrize("blocks", [{500}, {3, 997}, set(range(400, 460))])
def test_little_more_is_left_than_what_is_held(blocks: set[int]) -> None:
    log, span = Log(blocks, 1000), PlannedSpan("t", 0, 0, 1_000_000)
    found = covered(log.stretches(span, PROBES))
    assert len(found) <= len(log.held(span)) + 40_000


def test_a_broker_that_tells_nothing_is_asked_once() -> None:
    log, span = Log({5}, 10, tells=False), PlannedSpan("t", 0, 7, 100)
    assert log.stretches(span, PROBES) == ((7, 100),)
    assert log.asked == [7]


HELD = st.lists(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 400)), min_size=1, max_size=6), max_size=4
)


@given(HELD, st.integers(0, 30), st.integers(0, 300))
def test_tasks_have_every_stretch_once(
    drawn: list[list[tuple[int, int]]], least: int, most: int
) -> None:
    found = []
    for number, gaps in enumerate(drawn):
        kept, position = [], 0
        for gap, size in gaps:
            kept.append((position + gap, position + gap + size))
            position += gap + size
        found.append(Held(PlannedSpan("t", number, 0, position + 9), tuple(kept)))
    tasks = planning.split_held(found, min_partitions=least, max_records=most)
    for held in found:
        wanted = covered(held.stretches)
        own = [task for task in tasks if task.partition == held.span.partition]
        pieces = [wanted & set(range(task.start, task.end)) for task in own]
        assert set().union(*pieces) == wanted
        assert sum(map(len, pieces)) == len(wanted)
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
        if most:
            assert max(map(len, pieces)) <= most
        # What is at the ends of a task is work.
        assert all({task.start, task.end - 1} <= wanted for task in own)
    if found and not most:
        assert len(tasks) == max(len(found), min(least, sum(held.size for held in found)))
