"""The messages of a window of time as a table."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from msgspec import json

from ..arguments import check_topic
from ..background import BackgroundLoop
from ..client import ReadFrom
from ..cluster.servers import Servers
from ..errors import ClientClosed
from ..security.security import Security
from .consumer import Consumer
from .fetching import FetchOptions
from .time_bounds import CREATE, TimeBounds, WindowBy
from .time_window import TimeWindow

if TYPE_CHECKING:
    import pyarrow as pa

    from .arrow import AsTables

_MIB: Final = 1024 * 1024
_FETCH_BYTES: Final = 4 * _MIB

_ROWS: Final = 32_768
"""Rows up to which small batches are joined."""

_BYTES: Final = 16 * _MIB
"""Bytes up to which small batches are joined, and above which a batch is cut."""

_LOOP: Final = BackgroundLoop("horolog-tables")
"""Event loop in a background thread, shared by all tables of the process."""

TABLE_COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers")
"""Columns of a table unless the program names others."""

COMPLETE_FROM_KEY: Final = b"horolog.complete_from_ms"
REMOVED_KEY: Final = b"horolog.removed"
UNTIMED_KEY: Final = b"horolog.untimed"
"""Keys of a schema's metadata."""


def read_window(
    address: str | Servers,
    topic: str,
    start: datetime | int | None = None,
    end: datetime | int | None = None,
    *,
    columns: Sequence[str] = TABLE_COLUMNS,
    partitions: Sequence[int] | None = None,
    by: WindowBy = CREATE,
    read_committed: bool = False,
    read_from: ReadFrom = "leader",
    security: Security | None = None,
    check_units: bool = True,
    request_timeout_ms: int = 30_000,
    retry_timeout_ms: int = 120_000,
) -> "pa.RecordBatchReader":
    """Return the messages of a window of time as a `pyarrow.RecordBatchReader`, which Polars,
    DuckDB and pandas read. Batches are fetched while the program reads them.

    The window holds the messages of `topic` at or after `start` and before `end`; both are aware
    datetimes or epoch milliseconds, and None is an open side. The other arguments are those of
    `Consumer` and `Consumer.window`. `columns` are some of topic, partition, offset, timestamp,
    key, value, headers and append_time. Times are in milliseconds, in UTC; keys and values are
    binary.

    The metadata of the schema say what may be missing, at Horolog brokers: from the time
    `horolog.complete_from_ms` on, no message has left the partitions (0: none has left them; absent
    where unknown), and `horolog.removed` is a JSON list of what left them and may have been in the
    window, if that time is later than `start`. `horolog.untimed` is the number of messages in the
    partitions that have no time, and so are in no window; absent if there are none.

    The call blocks until the first messages are there. Raises ImportError without pyarrow, which
    the extra `arrow` installs, and the errors of `Consumer.window`; the reader raises later errors.
    The connections close when the reader is read to its end, or is collected.
    """
    try:
        import pyarrow as pa

        from .arrow import AsTables, joined, window_schema
    except ImportError as error:
        raise ImportError(
            "horolog.read_window needs pyarrow, which the extra `arrow` installs: "
            f"pip install 'horolog[arrow]' ({error})"
        ) from error
    check_topic(topic)
    schema = window_schema(columns)

    async def open_window() -> tuple[Consumer, TimeWindow]:
        consumer = Consumer(
            address,
            partition_max_bytes=_FETCH_BYTES,
            max_bytes=_FETCH_BYTES,
            append_times="append_time" in schema.names,
            read_committed=read_committed,
            read_from=read_from,
            security=security,
            check_units=check_units,
            request_timeout_ms=request_timeout_ms,
            retry_timeout_ms=retry_timeout_ms,
        )
        try:
            window = consumer.window(topic, start, end, partitions=partitions, by=by)
            return await consumer.__aenter__(), window
        except BaseException:
            await consumer.close()
            raise

    reading = WindowReading(open_window, partial(AsTables, schema))
    batches = joined(reading.batches(), _ROWS, _BYTES)
    first = next(batches, None)
    if first is not None:
        batches = chain((first,), batches)
    found = schema.with_metadata(reading.metadata())
    return pa.RecordBatchReader.from_batches(found, _UnbrokenBatches(batches))


class _UnbrokenBatches:
    """Batches that end where the window does. After an error each call raises, because a generator
    would then look as if it had ended."""

    def __init__(self, batches: "Iterator[pa.RecordBatch]") -> None:
        self._batches = batches
        self._failure: str | None = None

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        return self

    def __next__(self) -> "pa.RecordBatch":
        if self._failure is not None:
            raise ClientClosed(f"the window was read only up to an error: {self._failure}")
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise


class WindowReading:
    """Reads a window from a thread without an event loop. While the program works on the messages
    of one fetch, the next ones are decoded."""

    def __init__(
        self,
        open_window: Callable[[], Coroutine[Any, Any, tuple[Consumer, TimeWindow]]],
        form: "Callable[[FetchOptions, TimeBounds], AsTables]",
    ) -> None:
        self._open_window = open_window
        self._form = form
        self._ahead: asyncio.Task[list[pa.RecordBatch] | None] | None = None
        self._window: TimeWindow | None = None
        self._untimed: int | None = None

    def metadata(self) -> dict[bytes, bytes]:
        """Return what the window may miss, as metadata of a schema; after the first batch."""
        window = self._window
        untimed = {UNTIMED_KEY: str(self._untimed).encode()} if self._untimed else {}
        if window is None or window.complete_from_ms is None:
            return untimed
        found = {COMPLETE_FROM_KEY: str(window.complete_from_ms).encode(), **untimed}
        if window.removed:
            found[REMOVED_KEY] = json.encode(window.removed)
        return found

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the messages of the window."""
        _LOOP.enter()
        consumer: Consumer | None = None
        process_id = os.getpid()
        try:
            consumer, window = _LOOP.run(self._open_window())
            self._window = window
            found = _LOOP.run(self._next(window))
            self._untimed = _LOOP.run(window.count_untimed())
            while found is not None:
                yield from found
                if os.getpid() != process_id:
                    raise RuntimeError(
                        "the window belongs to the process that asked for it: after os.fork, call "
                        "read_window in the child"
                    )
                found = _LOOP.run(self._next(window))
        finally:
            # At the end of the interpreter the loop no longer runs, and the system closes sockets.
            if os.getpid() != process_id or sys.is_finalizing():
                pass
            elif _LOOP.is_current:
                # The collector may close this in the loop's own thread, which cannot wait for
                # itself.
                threading.Thread(target=self._close, args=(consumer,)).start()
            else:
                self._close(consumer)

    async def _next(self, window: TimeWindow) -> "list[pa.RecordBatch] | None":
        ahead = self._ahead or asyncio.create_task(window.next_taken(self._form))
        self._ahead = None
        found = await ahead
        if found is not None:
            self._ahead = asyncio.create_task(window.next_taken(self._form))
        return found

    def _close(self, consumer: Consumer | None) -> None:
        try:
            _LOOP.run(self._end(consumer))
        finally:
            _LOOP.leave()

    async def _end(self, consumer: Consumer | None) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.wait((self._ahead,))
            if not self._ahead.cancelled():
                self._ahead.exception()  # retrieved, so that asyncio does not report it
        if consumer is not None:
            await consumer.close()
