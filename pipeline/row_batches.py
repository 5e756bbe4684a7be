"""Converts batches of the client, in columns, to Arrow record batches.

The client's columns have Arrow's layout already, so most are only wrapped. `pyarrow.compute` is
imported where it is used: the import takes a tenth of a second, and planning does not need it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

from ..client.consume import arrow
from ..client.consume.arrow import binary_array, headers_array, number_array
from ..client.results import ColumnBatch
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
    return number_array(pa.int64(), batch.count, batch.timestamps_ms)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches for Spark: small ones joined, and large ones cut."""
    return arrow.joined(batches, SPARK_ROWS, SPARK_BYTES)


def _timestamps(batch: ColumnBatch, times_ms: memoryview | None) -> pa.Array:
    if times_ms is None:
        return pa.nulls(batch.count, pa.timestamp("us", tz="UTC"))
    from pyarrow import compute as pc

    known = number_array(pa.int64(), batch.count, times_ms)
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

    found = number_array(pa.int8(), batch.count, batch.timestamp_types).cast(pa.int32())
    times_ms = times_of(batch)
    if (pc.min(times_ms).as_py() or 0) < 0:
        found = pc.if_else(pc.less(times_ms, 0), pa.scalar(-1, pa.int32()), found)
    return found


_CONTENT: Final[dict[str, Content]] = {"key": "keys", "value": "values", "headers": "headers"}

_COLUMNS: Final[dict[str, Callable[[ColumnBatch], pa.Array]]] = {
    "key": lambda batch: binary_array(batch.keys, batch.count),
    "value": lambda batch: binary_array(batch.values, batch.count),
    "topic": lambda batch: pa.repeat(pa.scalar(batch.topic, pa.string()), batch.count),
    "partition": lambda batch: pa.repeat(pa.scalar(batch.partition, pa.int32()), batch.count),
    "offset": lambda batch: number_array(pa.int64(), batch.count, batch.offsets),
    "timestamp": lambda batch: _timestamps(batch, batch.timestamps_ms),
    "timestampType": _timestamp_types,
    "headers": headers_array,
    "appendTime": lambda batch: _timestamps(batch, batch.append_times_ms),
}
