"""Converts batches of the client, in columns, to Arrow record batches.

The client's columns have Arrow's layout already, so most are only wrapped. `pyarrow.compute` is
imported where it is used: the import takes a tenth of a second, and planning does not need it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

from ..client.results import ColumnBatch
from ..protocol.records.binary import BinaryColumn
from ..protocol.records.columns import Content
from ..times import INT64_MAX
from .option_values import OptionError
from .planning import Window

SPARK_ROWS: Final = 32_768
"""Rows up to which small batches are joined: each batch costs Spark about a millisecond."""

SPARK_BYTES: Final = 8 * 1024 * 1024
"""Bytes up to which small batches are joined, as Arrow counts them: Spark holds a batch, and copies
of it, in memory."""


def record_batch(
    batch: ColumnBatch, schema: pa.Schema, *, start: int = 0, end: int = INT64_MAX
) -> pa.RecordBatch:
    """Return the messages with offsets in [start, end), in the columns of `schema`."""
    arrays = [_COLUMNS[name](batch) for name in schema.names]
    found = pa.RecordBatch.from_arrays(arrays, schema=schema)
    offsets = batch.offsets
    first = bisect_left(offsets, start) if batch.count and offsets[0] < start else 0
    behind = batch.count if batch.next_offset <= end else bisect_left(offsets, end)
    return found if behind - first == batch.count else found.slice(first, max(behind - first, 0))


def content_of(schema: pa.Schema) -> frozenset[Content]:
    """Return which parts of messages (keys, values, headers) the columns of `schema` need."""
    return frozenset(_CONTENT[name] for name in schema.names if name in _CONTENT)


def in_window(batch: pa.RecordBatch, times_ms: pa.Array, window: Window) -> pa.RecordBatch:
    """Return the rows whose time is in the window. `times_ms` (int64) has one time per row."""
    from pyarrow import compute as pc

    wanted = pc.greater_equal(times_ms, window.from_ms)
    if window.until_ms is not None:
        wanted = pc.and_(wanted, pc.less(times_ms, window.until_ms))
    kept = pc.sum(wanted).as_py() or 0
    return batch if kept == batch.num_rows else batch.filter(wanted)


def times_of(batch: ColumnBatch) -> pa.Array:
    """Return the messages' timestamps as int64, -1 for a message without one."""
    return _wrapped(pa.int64(), batch.count, batch.timestamps_ms)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows with small batches joined and large ones cut; empty batches are dropped.
    A row larger than `SPARK_BYTES` gets its own batch."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(batch):
            # Too large a number for a slice, but forty times faster than `nbytes`, which is exact.
            piece_bytes = piece.get_total_buffer_size()
            if rows and (rows + piece.num_rows > SPARK_ROWS or size + piece_bytes > SPARK_BYTES):
                yield _join(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows += piece.num_rows
            size += piece_bytes
    if waiting:
        yield _join(waiting)


def _pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Cut a batch into batches of up to `SPARK_BYTES`, without copying."""
    rows = batch.num_rows
    if not rows:
        return []
    if rows == 1 or batch.get_total_buffer_size() <= SPARK_BYTES or batch.nbytes <= SPARK_BYTES:
        return [batch]
    return _pieces(batch.slice(0, rows // 2)) + _pieces(batch.slice(rows // 2))


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def _wrapped(kind: pa.DataType, count: int, data: memoryview) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _binary(column: BinaryColumn, count: int) -> pa.Array:
    valid = None if column.valid is None else pa.py_buffer(column.valid)
    buffers = [valid, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, column.nulls)


def _timestamps(batch: ColumnBatch, times_ms: memoryview | None) -> pa.Array:
    if times_ms is None:
        return pa.nulls(batch.count, pa.timestamp("us", tz="UTC"))
    from pyarrow import compute as pc

    known = _wrapped(pa.int64(), batch.count, times_ms)
    if (pc.min(known).as_py() or 0) < 0:
        known = pc.if_else(pc.less(known, 0), pa.scalar(None, pa.int64()), known)
    try:
        micros = pc.multiply_checked(known, 1000)
    except pa.ArrowInvalid:
        raise OptionError(
            f"{batch.topic}-{batch.partition} has a timestamp behind the year 294247 between "
            f"offsets {batch.offsets[0]} and {batch.offsets[-1]}, which Spark cannot hold: its "
            "producer wrote another unit. Read without the column timestamp, by .schema(...)"
        ) from None
    return micros.cast(pa.timestamp("us", tz="UTC"))


def _timestamp_types(batch: ColumnBatch) -> pa.Array:
    """Return the column `timestampType`: -1 for every message without a timestamp, also in a format
    that has a timestamp type."""
    from pyarrow import compute as pc

    found = _wrapped(pa.int8(), batch.count, batch.timestamp_types).cast(pa.int32())
    times_ms = times_of(batch)
    if (pc.min(times_ms).as_py() or 0) < 0:
        found = pc.if_else(pc.less(times_ms, 0), pa.scalar(-1, pa.int32()), found)
    return found


def _headers(batch: ColumnBatch) -> pa.Array:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    if batch.headers is None:
        return pa.nulls(batch.count, kind)
    found = [[{"key": key, "value": value} for key, value in one] or None for one in batch.headers]
    return pa.array(found, kind)


_CONTENT: Final[dict[str, Content]] = {"key": "keys", "value": "values", "headers": "headers"}

_COLUMNS: Final[dict[str, Callable[[ColumnBatch], pa.Array]]] = {
    "key": lambda batch: _binary(batch.keys, batch.count),
    "value": lambda batch: _binary(batch.values, batch.count),
    "topic": lambda batch: pa.repeat(pa.scalar(batch.topic, pa.string()), batch.count),
    "partition": lambda batch: pa.repeat(pa.scalar(batch.partition, pa.int32()), batch.count),
    "offset": lambda batch: _wrapped(pa.int64(), batch.count, batch.offsets),
    "timestamp": lambda batch: _timestamps(batch, batch.timestamps_ms),
    "timestampType": _timestamp_types,
    "headers": _headers,
    "appendTime": lambda batch: _timestamps(batch, batch.append_times_ms),
}
