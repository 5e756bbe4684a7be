"""Some messages of a batch in columns, as a batch of their own."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from ...protocol.records.binary import BinaryColumn
from ...protocol.records.layout import Buffer
from ..results import ColumnBatch

Run = tuple[int, int]
"""Rows from the first number up to, without, the second."""

T = TypeVar("T")


def selected(batch: ColumnBatch, rows: Sequence[int]) -> ColumnBatch | None:
    """The rows with these ascending numbers; None when there are none."""
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
    """The stretches without a gap."""
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
    """The bits of these rows, and how many of them are 0."""
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
