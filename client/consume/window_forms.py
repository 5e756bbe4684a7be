"""The messages of a fetch that are in a window, as records or in columns."""

from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from ...protocol.api.log.fetch import FetchPartitionResult
from ...protocol.records.columns import Content
from ...values import value_class
from ..results import ColumnBatch, ConsumerRecord
from .fetching import FetchOptions
from .selecting import selected
from .time_bounds import APPEND, TimeBounds

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@value_class
class Taken(Generic[T_co]):
    """What a fetch brought of a window."""

    items: "list[T_co]"
    next_offset: int | None
    """Behind the last message that was looked at; None when there was none."""
    untimed: int
    """Messages that were looked at and have no time."""


class WindowForm(Protocol[T_co]):
    """Takes the messages of a window out of a fetch."""

    def take(
        self, topic: str, result: FetchPartitionResult, offset: int, end: int | None
    ) -> Taken[T_co]:
        """Those from `offset` up to, without, `end`, if there is one."""
        ...


@value_class
class AsRecords:
    """One object for each message."""

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
    """Batches in columns; what is not in `content` comes as nulls."""

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
