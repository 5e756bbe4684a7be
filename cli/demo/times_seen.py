"""What the times of a topic look like in the order of the offsets, and what to show of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count, pairwise
from typing import Final

from ...client.results import ConsumerRecord

_DAY_MS: Final = 86_400_000
_YEAR_MS: Final = 365 * _DAY_MS

_LENGTHS_MS: Final = (
    *(1000, 10_000, 60_000, 600_000, 3_600_000, 6 * 3_600_000),
    *(_DAY_MS, 7 * _DAY_MS, 30 * _DAY_MS, 91 * _DAY_MS, _YEAR_MS),
)
"""Of intervals that are counted."""


@dataclass(frozen=True, slots=True)
class Disorder:
    """How far messages are from being in the order of their times."""

    late: int
    """Messages older than one before them."""
    furthest_ms: int
    """By how much the latest of them is older."""


@dataclass(frozen=True, slots=True)
class SeenWindow:
    """A span of time, and the offsets that stand for it."""

    start_ms: int
    end_ms: int
    start: int
    end: int


def time_of(record: ConsumerRecord) -> int:
    """Its time; -1, before every time, when it has none."""
    return -1 if record.timestamp_ms is None else record.timestamp_ms


def disorder(records: Sequence[ConsumerRecord]) -> Disorder:
    """Of messages in the order of their offsets."""
    late = furthest_ms = 0
    newest_ms = -1
    for record in records:
        time_ms = time_of(record)
        if 0 <= time_ms < newest_ms:
            late += 1
            furthest_ms = max(furthest_ms, newest_ms - time_ms)
        newest_ms = max(newest_ms, time_ms)
    return Disorder(late, furthest_ms)


def first_of_their_time(records: Sequence[ConsumerRecord]) -> list[ConsumerRecord]:
    """The messages that are newer than all before them: what a search by time can find."""
    found: list[ConsumerRecord] = []
    newest_ms = -1
    for record in records:
        if time_of(record) > newest_ms:
            found.append(record)
            newest_ms = time_of(record)
    return found


def moment_to_ask_for(records: Sequence[ConsumerRecord]) -> int:
    """A time at which the answer is a message in the middle, in round seconds where that gives
    the same answer. `records` must hold a message with a time.
    """
    candidates = first_of_their_time(records)
    middle = records[len(records) // 2].offset
    best = min(range(len(candidates)), key=lambda i: abs(candidates[i].offset - middle))
    time_ms = time_of(candidates[best])
    before_ms = time_of(candidates[best - 1]) if best else -1
    rounded_ms = time_ms // 1000 * 1000
    return rounded_ms if rounded_ms > before_ms else time_ms


def window_to_replay(records: Sequence[ConsumerRecord], messages: int) -> SeenWindow | None:
    """The window whose offsets hold about so many messages; None when no two times differ."""
    candidates = first_of_their_time(records)
    best: tuple[int, SeenWindow] | None = None
    for start, end in _spans(candidates, messages):
        span = SeenWindow(time_of(start), time_of(end), start.offset, end.offset)
        distance = abs(span.end - span.start - messages)
        if best is None or distance < best[0]:
            best = distance, span
    return None if best is None else best[1]


def intervals_to_count(records: Sequence[ConsumerRecord], most: int) -> tuple[int, int, int]:
    """Begin, end and length of at most so many intervals of a round length, with the times of all
    messages. `records` must hold a message with a time.
    """
    times = [time_of(record) for record in records if time_of(record) >= 0]
    first_ms, last_ms = min(times), max(times)
    years = max((last_ms - first_ms) // (most * _YEAR_MS), 2)  # fewer are too short
    for length_ms in chain(_LENGTHS_MS, map(_YEAR_MS.__mul__, count(years))):
        start = first_ms // length_ms
        end = last_ms // length_ms + 1
        if end - start <= most:
            break
    return start * length_ms, end * length_ms, length_ms


def _spans(
    candidates: Sequence[ConsumerRecord], messages: int
) -> list[tuple[ConsumerRecord, ConsumerRecord]]:
    """Each candidate with the next one, and with the first that is so many messages on."""
    spans = list(pairwise(candidates))
    last = 0
    for start in candidates:
        while last < len(candidates) and candidates[last].offset < start.offset + messages:
            last += 1
        if last < len(candidates):
            spans.append((start, candidates[last]))
    return spans
