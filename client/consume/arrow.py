"""Columns of messages as Apache Arrow record batches. Needs pyarrow, from the extra `arrow`.

The client's columns have Arrow's layout already, so most are only wrapped. `pyarrow.compute` is
imported where it is used, because the import takes a tenth of a second.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import pyarrow as pa

from ...protocol.api.log.fetch import FetchPartitionResult
from ...protocol.records.binary import BinaryColumn
from ...protocol.records.columns import Content
from ...times import INT64_MAX
from ...values import value_class
from ..results import ColumnBatch
from .fetching import FetchOptions
from .time_bounds import APPEND, TimeBounds
from .window_forms import Taken

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Type of a column of headers."""

_TIME: Final = pa.timestamp("ms", tz="UTC")


def joined(
    batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows with small batches joined, up to `rows_max` and `bytes_max` (as Arrow
    counts them), and with batches above `bytes_max` cut; empty batches are dropped. A row larger
    than `bytes_max` gets its own batch."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(batch, bytes_max):
            # Too large a number for a slice, but forty times faster than `nbytes`, which is exact.
            piece_bytes = piece.get_total_buffer_size()
            if rows and (rows + piece.num_rows > rows_max or size + piece_bytes > bytes_max):
                yield _join(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows += piece.num_rows
            size += piece_bytes
    if waiting:
        yield _join(waiting)


def _pieces(batch: pa.RecordBatch, bytes_max: int) -> list[pa.RecordBatch]:
    """Cut a batch into batches of up to `bytes_max`, without copying."""
    rows = batch.num_rows
    if not rows:
        return []
    if rows == 1 or batch.get_total_buffer_size() <= bytes_max or batch.nbytes <= bytes_max:
        return [batch]
    return _pieces(batch.slice(0, rows // 2), bytes_max) + _pieces(
        batch.slice(rows // 2), bytes_max
    )


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def number_array(kind: pa.DataType, count: int, data: memoryview) -> pa.Array:
    """Return a column of numbers as an array without nulls, not copied."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def binary_array(column: BinaryColumn, count: int) -> pa.Array:
    """Return a column of byte strings as an array, not copied."""
    valid = None if column.valid is None else pa.py_buffer(column.valid)
    buffers = [valid, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, column.nulls)


def headers_array(batch: ColumnBatch) -> pa.Array:
    """Return the headers of type `HEADERS`; null for a message without headers."""
    if batch.headers is None:
        return pa.nulls(batch.count, HEADERS)
    found = [[{"key": key, "value": value} for key, value in one] or None for one in batch.headers]
    return pa.array(found, HEADERS)


def _times(batch: ColumnBatch, times_ms: memoryview | None) -> pa.Array:
    """Return times; null for a message without one."""
    if times_ms is None:
        return pa.nulls(batch.count, _TIME)
    from pyarrow import compute as pc

    found = number_array(pa.int64(), batch.count, times_ms)
    if (pc.min(found).as_py() or 0) < 0:
        found = pc.if_else(pc.less(found, 0), pa.scalar(None, pa.int64()), found)
    return found.cast(_TIME)


_COLUMNS: Final[dict[str, tuple[pa.DataType, Callable[[ColumnBatch], pa.Array]]]] = {
    "topic": (
        pa.string(),
        lambda batch: pa.repeat(pa.scalar(batch.topic, pa.string()), batch.count),
    ),
    "partition": (
        pa.int32(),
        lambda batch: pa.repeat(pa.scalar(batch.partition, pa.int32()), batch.count),
    ),
    "offset": (pa.int64(), lambda batch: number_array(pa.int64(), batch.count, batch.offsets)),
    "timestamp": (_TIME, lambda batch: _times(batch, batch.timestamps_ms)),
    "key": (pa.binary(), lambda batch: binary_array(batch.keys, batch.count)),
    "value": (pa.binary(), lambda batch: binary_array(batch.values, batch.count)),
    "headers": (HEADERS, headers_array),
    "append_time": (_TIME, lambda batch: _times(batch, batch.append_times_ms)),
}
"""Columns of a window by name: the type, and how the column is made."""

_CONTENT: Final[dict[str, Content]] = {"key": "keys", "value": "values", "headers": "headers"}


def window_schema(columns: Collection[str]) -> pa.Schema:
    """Return the schema with these columns. Raises TypeError, ValueError."""
    if isinstance(columns, str | bytes):
        raise TypeError(f"columns is a sequence of names, not {columns!r}")
    names = list(columns)
    for name in names:
        if name not in _COLUMNS:
            raise ValueError(f"columns: {name!r} is no column; there are {', '.join(_COLUMNS)}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"columns: name each column once, and at least one, not {names!r}")
    return pa.schema([(name, _COLUMNS[name][0]) for name in names])


@value_class
class AsTables:
    """Record batches with the columns of `schema`."""

    schema: pa.Schema
    options: FetchOptions
    bounds: TimeBounds

    def take(
        self, topic: str, result: FetchPartitionResult, offset: int, end: int | None
    ) -> Taken[pa.RecordBatch]:
        """See `WindowForm`."""
        content = frozenset(_CONTENT[name] for name in self.schema.names if name in _CONTENT)
        read = self.options.columns(topic, result, offset, content)
        kept = [self._inside(batch, end) for batch in read]
        behind = read[-1].next_offset if read else None
        return Taken([batch for batch in kept if batch.num_rows], behind, 0)

    def _inside(self, batch: ColumnBatch, end: int | None) -> pa.RecordBatch:
        from pyarrow import compute as pc

        arrays = [_COLUMNS[name][1](batch) for name in self.schema.names]
        found = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        column = batch.append_times_ms if self.bounds.by == APPEND else batch.timestamps_ms
        assert column is not None, "a window by append time asks for append times"
        times = number_array(pa.int64(), batch.count, column)
        first_ms = self.bounds.from_ms or 0
        last_ms = INT64_MAX if self.bounds.until_ms is None else self.bounds.until_ms - 1
        extent = pc.min_max(times)
        is_whole = extent["min"].as_py() >= first_ms and extent["max"].as_py() <= last_ms
        if end is None or batch.next_offset <= end:
            if is_whole:
                return found
            end = batch.next_offset
        wanted = pc.and_(pc.greater_equal(times, first_ms), pc.less_equal(times, last_ms))
        offsets = number_array(pa.int64(), batch.count, batch.offsets)
        return found.filter(pc.and_(wanted, pc.less(offsets, end)))
