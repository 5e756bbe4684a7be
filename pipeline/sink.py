"""Writes rows to topics: the batch writer and the stream writer of the data source. Also tunes the
worker processes of Spark."""

import asyncio
import logging
import os
import sys
import traceback
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from .. import memory
from ..clock import SystemClock
from ..protocol.records.binary import BinaryColumn
from ..protocol.records.layout import NO_PRODUCER_ID
from .option_values import OptionError, check_names
from .options import WriteOptions
from .sending import ColumnRows, RowTuple, Sending, producer_id

_USED_AGAIN: Final = "SPARK_REUSE_WORKER"
"""Environment variable that Spark sets in workers that run one task after the other."""

_DAEMON: Final = "pyspark.daemon"
"""Module of the program from which Spark forks workers."""

_LET_GO: Final = (BrokenPipeError, ConnectionResetError)

_settled: set[int] = set()
"""Ids of the processes in which `settle` has tuned memory."""

_ROW_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "timestamp")
_TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int", "bigint"),
    "timestamp": ("timestamp",),
}
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"

_INT32_BYTES: Final = 4
_INT64_BYTES: Final = 8

_log = logging.getLogger(__name__)


def settle() -> None:
    """Call `memory.settle` once in a worker process of Spark; do nothing in other processes.

    Such a worker collects garbage after each task. A collection over all modules takes longer than
    a short task, and finds nothing.
    """
    if _USED_AGAIN in os.environ and os.getpid() not in _settled:
        _settled.add(os.getpid())
        memory.settle()


def end_quietly() -> None:
    """In a worker process of Spark, print no traceback when Spark closes the connection.

    Spark closes a worker's connection as soon as it does not need it: it has its plan or its rows,
    the job is cancelled, or the session stops. The worker then cannot send its last answer, and
    its program would print the error with a traceback.
    """
    program: Any = sys.modules["__main__"]
    if getattr(getattr(program, "__spec__", None), "name", None) == _DAEMON:
        program.traceback = _Traceback()


class _Traceback:
    """Stands for the module `traceback` in the worker's program."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        """Print the current exception, unless it says that the connection was closed."""
        if not isinstance(sys.exception(), _LET_GO):
            traceback.print_exc()


@dataclass
class Written(WriterCommitMessage):
    """Result of a task: how many rows it has written."""

    rows: int


class _Writer:
    """Base of both writers; Spark pickles it for every task."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self._options = options
        self._columns = columns(schema, options)

    def _send(self, batches: Iterator[pa.RecordBatch], who: int, task: int) -> Written:
        now_ms = SystemClock().now_ms()
        chosen = self._columns, self._options.topic, now_ms
        rows = (_rows(batch, *chosen) for batch in batches if batch.num_rows)
        written = Written(asyncio.run(Sending(self._options, who, task).send(rows)))
        settle()
        return written


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Appends the rows of a DataFrame."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        _Writer.__init__(self, schema, options)
        # Made once and pickled for all tasks, so all attempts of a task have the same id.
        self._job = options.job_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append the rows of one task."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        who = producer_id(f"job/{self._job}", task) if self._options.idempotent else NO_PRODUCER_ID
        return self._send(iterator, who, task)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log how many rows stay: rows of finished tasks cannot be removed from a log."""
        _log.warning("%s", aborted(messages))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Appends the rows of micro-batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append the rows of one task of one batch."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        query = context and context.getLocalProperty(_QUERY)
        batch = context and context.getLocalProperty(_BATCH)
        who = NO_PRODUCER_ID
        if self._options.idempotent and query and batch:
            who = producer_id(f"query/{query}", task, int(batch))
        return self._send(iterator, who, task)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log how many rows stay. If the batch runs again, the broker recognises them."""
        _log.warning("batch %s: %s", batchId, aborted(messages))


def aborted(messages: list[WriterCommitMessage | None]) -> str:
    """Return the text about the rows that a failed write leaves in the log."""
    rows = sum(message.rows for message in messages if isinstance(message, Written))
    return f"the write failed after {rows} rows, which stay in the log"


def columns(schema: StructType, options: WriteOptions) -> dict[str, str]:
    """Return for each field of a message (key, value, ...) the name of its column in the rows.

    Raises OptionError for an unknown or missing column, or one with a wrong type.
    """
    # Names are compared without case, as Spark does.
    lower = [name.lower() for name in schema.names]
    names = dict(zip(lower, schema.names, strict=True))
    for name in names:
        if lower.count(name) > 1:
            raise OptionError(
                f"two columns are called {name!r}, in any case: {', '.join(schema.names)}. "
                "Rename one, or select it away"
            )
    if options.timestamp_column is not None:
        chosen = names.pop(options.timestamp_column.lower(), None)
        if chosen is None:
            raise OptionError(
                f"timestampColumn={options.timestamp_column!r}: there are {', '.join(schema.names)}"
            )
        names["timestamp"] = chosen
    check_names(names, _ROW_COLUMNS, "a column of a write (select others away)")
    if "value" not in names:
        raise OptionError("a write needs a column value, binary or string")
    if options.topic is None and "topic" not in names:
        raise OptionError("name the topic: by the option topic, or a column topic for each row")
    if not options.headers:
        names.pop("headers", None)
    for purpose, name in names.items():
        kind = schema[name].dataType.simpleString()
        if kind not in _TYPES[purpose]:
            raise OptionError(
                f"the column {name!r} is {kind}, and {purpose} is {' or '.join(_TYPES[purpose])}"
            )
    return names


def _rows(
    batch: pa.RecordBatch, columns: dict[str, str], topic: str | None, now_ms: int
) -> Iterator[RowTuple] | ColumnRows:
    count = batch.num_rows
    times_ms = _times_ms(batch, columns, now_ms)
    value = _strings(batch, columns["value"])
    key = _strings(batch, columns["key"]) if "key" in columns else None
    if topic is not None and not columns.keys() & {"partition", "headers"}:
        keys = None if key is None else _binary(key)
        return ColumnRows(topic, _binary(value), keys, _int64(times_ms))

    def column(purpose: str) -> list[Any]:
        found: list[Any] = batch.column(columns[purpose]).to_pylist()
        if purpose == "topic" and None in found:
            raise OptionError("the column topic has a null: every row needs a topic")
        return found

    topics: Iterable[str] = repeat(topic, count) if topic is not None else column("topic")
    headers = map(_headers, column("headers")) if "headers" in columns else repeat((), count)
    partitions = column("partition") if "partition" in columns else repeat(None, count)
    key_list = repeat(None, count) if key is None else _binary(key).contents()
    values = _binary(value).contents()
    return zip(topics, partitions, key_list, values, times_ms.to_pylist(), headers, strict=True)


def _strings(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column as byte strings; text is encoded as UTF-8."""
    array = batch.column(name)
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def _binary(array: pa.Array) -> BinaryColumn:
    valid, offsets, data = _whole(array).buffers()
    return BinaryColumn(
        memoryview(offsets)[: _INT32_BYTES * (len(array) + 1)],
        memoryview(b"" if data is None else data),
        memoryview(valid) if array.null_count else None,
        array.null_count,
    )


def _int64(array: pa.Array) -> memoryview:
    """Return the values of an int64 array without nulls."""
    _, data = _whole(array).buffers()
    return memoryview(data)[: _INT64_BYTES * len(array)].cast("B").cast("q")


def _whole(array: pa.Array) -> pa.Array:
    """Return the array, copied if it is a slice, so that its buffers begin with its first value."""
    return pa.concat_arrays([array.slice(0, 0), array]) if array.offset else array


def _times_ms(batch: pa.RecordBatch, columns: dict[str, str], now_ms: int) -> pa.Array:
    """Return the create times in ms, int64; rows without one get `now_ms`, the time of the write.
    Raises OptionError for a time before 1970."""
    if "timestamp" not in columns:
        return pa.repeat(pa.scalar(now_ms, pa.int64()), batch.num_rows)
    from pyarrow import compute as pc

    micros = batch.column(columns["timestamp"]).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    least = pc.min(micros).as_py()
    if least is not None and least < 0:
        raise OptionError(
            f"a row has the time {least // 1000} ms, before 1970, which a message cannot have: "
            "filter such rows, or give timestampColumn another column"
        )
    return pc.fill_null(pc.divide(micros, 1000), now_ms)


def _headers(found: Any) -> list[tuple[str, bytes | None]]:
    headers = found or ()
    if any(one is None or one["key"] is None for one in headers):
        raise OptionError(
            "the column headers has a header that is null, or has no key: filter such headers, or "
            "write without them by includeHeaders=false"
        )
    return [(one["key"], one["value"]) for one in headers]
