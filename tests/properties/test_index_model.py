"""The rules of the time index on random segments, against a look at every message (I-24, tc103).

Both meanings of an entry are tried: ours, "all below this offset are at most this late", and
Kafka's, "the message at this offset is the first that is this late". Cuts are tried with both.
"""

from dataclasses import dataclass
from pathlib import Path
from struct import pack

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from horolog.storage.files import SystemFiles
from horolog.storage.index.time_index import TimeIndex
from horolog.storage.open_files import OpenFiles

from .examples import examples

BASE_OFFSET = 1_000
NO_TIME = -1


@dataclass(frozen=True)
class Case:
    """Message times in offset order, and after which messages the index gets an entry."""

    times: list[int]
    marks: list[bool]
    cut: int
    """How many messages are left when the segment is cut."""
    kafka: bool
    """Whether entries have Kafka's meaning."""

    def index(self) -> TimeIndex:
        """The index with an entry at each mark where the largest time has grown."""
        largest_ms, largest_at, entries = NO_TIME, -1, b""
        written_ms = NO_TIME
        for number, (timestamp_ms, marked) in enumerate(zip(self.times, self.marks, strict=False)):
            if timestamp_ms > largest_ms:
                largest_ms, largest_at = timestamp_ms, number
            if marked and largest_ms > written_ms:
                entries += pack(">qi", largest_ms, largest_at if self.kafka else number + 1)
                written_ms = largest_ms
        return loaded(entries)

    def after_cut(self) -> "Case":
        return Case(self.times[: self.cut], self.marks, self.cut, self.kafka)


def loaded(entries: bytes) -> TimeIndex:
    index = TimeIndex(Path("x.timeindex"), BASE_OFFSET, 1 << 20, OpenFiles(SystemFiles(), 1))
    index.load(entries)
    return index


def first_late_enough(times: list[int], target: int, start: int) -> int | None:
    """Where a scan from `start` on finds the first time that is late enough."""
    return next((at for at in range(start, len(times)) if times[at] >= target), None)


@st.composite
def cases(draw: st.DrawFn, kafka: bool | None = None) -> Case:
    times = draw(st.lists(st.integers(NO_TIME, 12), min_size=1, max_size=20))
    marks = draw(st.lists(st.booleans(), min_size=len(times), max_size=len(times)))
    meaning = draw(st.booleans()) if kafka is None else kafka
    return Case(times, marks, draw(st.integers(0, len(times))), meaning)


@examples(600)
@given(cases())
def test_lookups_are_right_for_both_meanings_tc103(case: Case) -> None:
    """decision 2."""
    index = case.index()
    for target in range(14):
        start = index.start_for(target) - BASE_OFFSET
        assert first_late_enough(case.times, target, start) == first_late_enough(
            case.times, target, 0
        )


@examples(600)
@given(cases())
def test_lookups_are_right_after_a_cut_tc103(case: Case) -> None:
    whole, left = case.index(), case.after_cut()
    count = whole.count_below(BASE_OFFSET + case.cut)
    index = loaded(whole.encoded()[: count * TimeIndex.ENTRY_BYTES])
    for target in range(14):
        start = index.start_for(target) - BASE_OFFSET
        assert first_late_enough(left.times, target, start) == first_late_enough(
            left.times, target, 0
        )
    largest_ms = max([NO_TIME, *left.times])
    assert index.last_timestamp_ms <= largest_ms


@examples(300)
@given(cases(kafka=False))
def test_live_entries_are_the_ones_of_the_rule_i13_i20(case: Case) -> None:
    """`add` at each mark makes the index that the case describes, `finish` its closing entry
    (D1, decision 1)."""
    index = loaded(b"")
    for number, marked in enumerate(case.marks):
        if marked:
            index.add(max(case.times[: number + 1]), BASE_OFFSET + number + 1)
    assert index.encoded() == case.index().encoded()
    largest_ms, end = max(case.times), BASE_OFFSET + len(case.times)
    index.finish(largest_ms, end)
    assert not len(index) if largest_ms < 0 else index.entry(len(index) - 1) == (largest_ms, end)


WRONG_LOOKUPS = {
    "at-or-below-the-target": lambda case, target: floor(case.index(), target + 1),
    "one-entry-further": lambda case, target: floor(case.index(), target + 2),
}


def floor(index: TimeIndex, below: int) -> int:
    return index.start_for(below) - BASE_OFFSET


@pytest.mark.parametrize("wrong", WRONG_LOOKUPS)
def test_wrong_lookups_would_be_found(wrong: str) -> None:
    """The trap of our meaning: starting at an entry with the target's own time skips messages."""

    def misses(case: Case) -> bool:
        return any(
            first_late_enough(case.times, target, WRONG_LOOKUPS[wrong](case, target))
            != first_late_enough(case.times, target, 0)
            for target in range(14)
        )

    found = find(cases(kafka=False), misses, settings=settings(max_examples=2_000, database=None))
    assert misses(found)


def test_a_lax_cut_would_be_found() -> None:
    """Kafka's entries must go when the message that they name goes."""

    def misses(case: Case) -> bool:
        whole, left = case.index(), case.after_cut()
        count = whole.count_below(BASE_OFFSET + case.cut + 1)
        index = loaded(whole.encoded()[: count * TimeIndex.ENTRY_BYTES])
        return index.last_timestamp_ms > max([NO_TIME, *left.times])

    found = find(cases(kafka=True), misses, settings=settings(max_examples=2_000, database=None))
    assert misses(found)
