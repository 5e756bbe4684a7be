"""The messages of a window that a fetch brought: as records, or in columns."""

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Generic, Literal, Protocol, TypeVar

from ...protocol.api.log.fetch import FetchPartitionResult
from ...protocol.records.binary import BinaryColumn
from ...protocol.records.columns import Content
from ...protocol.records.layout import Buffer
from ...values import value_class
from ..results import ColumnBatch, ConsumerRecord
from .fetching import FetchOptions
from .time_bounds import APPEND, TimeBounds

Run = tuple[int, int]
"""Row numbers from the first up to, excluding, the second."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@value_class
class Taken(Generic[T_co]):
    """Messages of a window from one fetch."""

    items: "list[T_co]"
    next_offset: int | None
    """Offset after the last message examined; None when there was none."""
    untimed: int
    """Number of examined messages that have no time."""


class WindowForm(Protocol[T_co]):
    """Selects the messages of a window from a fetch."""

    def take(
        self, topic: str, result: FetchPartitionResult, offset: int, end: int | None
    ) -> Taken[T_co]:
        """Return the messages from `offset` up to, excluding, `end` (None: no end)."""
        ...


@value_class
class AsRecords:
    """One object per message."""

    options: FetchOptions
    bounds: TimeBounds

    def take(
        self, topic: str, result: FetchPartitionResult, offset: int, end: int | None
    ) -> Taken[ConsumerRecord]:
        read = self.options.records(topic, result, offset)
        behind = read[-1].offset + 1 if read else None
        if end is not None and behind is not None and behind > end:
            read = [record for record in read if record.offset < end]
        if self.bounds.by == APPEND:
            times = [record.append_time_ms for record in read]
        else:
            times = [record.timestamp_ms for record in read]
        holds = self.bounds.holds
        kept = [record for record, time in zip(read, times, strict=True) if holds(time)]
        return Taken(kept, behind, times.count(None))


@value_class
class AsColumns:
    """Batches in columns; columns that are not in `content` are nulls."""

    options: FetchOptions
    bounds: TimeBounds
    content: Collection[Content]

    def take(
        self, topic: str, result: FetchPartitionResult, offset: int, end: int | None
    ) -> Taken[ColumnBatch]:
        read = self.options.columns(topic, result, offset, self.content)
        kept: list[ColumnBatch] = []
        untimed = 0
        for batch in read:
            column = batch.timestamps_ms
            if self.bounds.by == APPEND:
                assert batch.append_times_ms is not None, "they are asked for with such a window"
                column = batch.append_times_ms
            times: list[int] = column.tolist()
            if end is not None and batch.next_offset > end:
                del times[_count_below(batch.offsets.tolist(), end) :]
            untimed += times.count(-1)
            chosen = selected(batch, self.bounds.rows(times))
            if chosen is not None:
                kept.append(chosen)
        return Taken(kept, read[-1].next_offset if read else None, untimed)


def _count_below(offsets: list[int], end: int) -> int:
    return next((row for row, offset in enumerate(offsets) if offset >= end), len(offsets))


def selected(batch: ColumnBatch, rows: Sequence[int]) -> ColumnBatch | None:
    """Return the rows with these ascending numbers as a batch; None when there are none."""
    if not rows:
        return None
    if len(rows) == batch.count:
        return batch
    runs = _runs(rows)
    append_times = batch.append_times_ms
    return replace(
        batch,
        count=len(rows),
        offsets=_numbers(batch.offsets, runs, "q"),
        timestamps_ms=_numbers(batch.timestamps_ms, runs, "q"),
        timestamp_types=_numbers(batch.timestamp_types, runs, "b"),
        keys=_strings(batch.keys, runs),
        values=_strings(batch.values, runs),
        append_times_ms=None if append_times is None else _numbers(append_times, runs, "q"),
        headers=None if batch.headers is None else _items(batch.headers, runs),
    )


def _runs(rows: Sequence[int]) -> list[Run]:
    """Group the row numbers into runs without gaps."""
    found: list[Run] = []
    start = end = rows[0]
    for row in rows:
        if row != end:
            found.append((start, end))
            start = row
        end = row + 1
    found.append((start, end))
    return found


def _numbers(column: memoryview, runs: Iterable[Run], kind: Literal["q", "b"]) -> memoryview:
    data = bytearray().join(column[start:end] for start, end in runs)
    return memoryview(data).cast(kind)


def _items(column: Sequence[T], runs: Iterable[Run]) -> list[T]:
    return [item for start, end in runs for item in column[start:end]]


def _strings(column: BinaryColumn, runs: Sequence[Run]) -> BinaryColumn:
    ends = memoryview(column.offsets).cast("B").cast("i")
    data = memoryview(column.data)
    taken = bytearray().join(data[ends[start] : ends[end]] for start, end in runs)
    offsets = array("i", [0])
    for start, end in runs:
        shift = offsets[-1] - ends[start]
        offsets.extend(position + shift for position in ends[start + 1 : end + 1])
    valid, nulls = None, 0
    if column.valid is not None:
        valid, nulls = _bits(column.valid, runs, len(offsets) - 1)
    return BinaryColumn(bytearray(offsets.tobytes()), taken, valid if nulls else None, nulls)


def _bits(bits: Buffer, runs: Iterable[Run], count: int) -> tuple[bytearray, int]:
    """Return the bits of these rows, and the number of zero bits among them."""
    taken, number = bytearray((count + 7) // 8), 0
    nulls = 0
    for start, end in runs:
        for row in range(start, end):
            if bits[row >> 3] >> (row & 7) & 1:
                taken[number >> 3] |= 1 << (number & 7)
            else:
                nulls += 1
            number += 1
    return taken, nulls
