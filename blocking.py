"""Producer, consumer and admin without `await`, for programs that have no event loop.

The names and arguments are those of `horolog.Producer`, `horolog.Consumer` and `horolog.Admin`.
A call blocks the thread that makes it. One background thread runs the event loop of all blocking
clients. Ctrl-C ends a wait; the client stays usable.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from datetime import datetime
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from .client.administer.admin import Admin as _Admin
from .client.background import BackgroundLoop
from .client.consume.consumer import Consumer as _Consumer
from .client.consume.fetching import TopicPartition
from .client.consume.time_window import TimeWindow as _TimeWindow
from .client.errors import ClientClosed
from .client.produce.encoding import Headers
from .client.produce.failed_sends import FailedSends
from .client.produce.producer import Producer as _Producer
from .client.results import ColumnBatch, ConsumerRecord, SentRecord
from .protocol.api.log.describe_removals import DescribedRemoval
from .protocol.records.columns import CONTENT, Content, check_content

__all__ = ["Admin", "Consumer", "Producer", "TimeWindow"]

P = ParamSpec("P")
C = TypeVar("C")
T = TypeVar("T")
S = TypeVar("S", bound="_Blocking")

_LOOP: Final = BackgroundLoop("horolog-blocking")
"""Event loop in a background thread, shared by all blocking clients of the process."""


def _waits(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Wrap a coroutine method of a client: the call blocks until the coroutine is done."""

    @wraps(method)
    def call(self: "_Blocking", /, *args: P.args, **options: P.kwargs) -> T:
        return self._run(partial(method, self._client, *args, **options))

    return call


def _calls(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Wrap a plain method of a client: it is called in the event loop, where the client lives."""

    @wraps(method)
    def call(self: "_Blocking", /, *args: P.args, **options: P.kwargs) -> T:
        async def in_loop() -> T:
            return method(self._client, *args, **options)

        return self._run(in_loop)

    return call


def _makes(
    make: Callable[P, Any],
) -> Callable[[Callable[[S], None]], Callable[Concatenate[S, P], None]]:
    """Decorate a constructor: it takes the arguments of `make`, and stores the client made."""

    def taking(begin: Callable[[S], None]) -> Callable[Concatenate[S, P], None]:
        @wraps(make.__init__)
        def init(self: S, /, *args: P.args, **options: P.kwargs) -> None:
            self._client = make(*args, **options)
            begin(self)

        return init

    return taking


class _Blocking:
    """Base of the blocking clients: runs the coroutines of the wrapped client, and closes it."""

    _client: Any

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._process_id = os.getpid()
        _LOOP.enter()

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._process_id != os.getpid():
            raise RuntimeError(
                "a blocking client is for the process that made it: after os.fork, make clients in "
                "the child"
            )
        return _LOOP.run(work())

    def __enter__(self) -> Self:
        try:
            self._run(self._client.__aenter__)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(partial(self._client.__aexit__, exc_type, exc, traceback))

    def close(self) -> None:
        """Close the client; a producer flushes first."""
        self._end(self._client.close)

    def _end(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._process_id != os.getpid():
            return  # the client belongs to the parent process, which goes on using it
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            _LOOP.run(closing())
        finally:
            _LOOP.leave()


class Producer(_Blocking):
    """`horolog.Producer` with blocking calls."""

    @_makes(_Producer)
    def __init__(self) -> None:
        self._begin()

    send = _waits(_Producer.send)
    send_batch = _waits(_Producer.send_batch)
    send_many = _waits(_Producer.send_many)
    partition_for = _waits(_Producer.partition_for)
    set_bytes_for = _waits(_Producer.set_bytes_for)
    flush = _waits(_Producer.flush)

    def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> "concurrent.futures.Future[SentRecord]":
        """Add a message to the buffer as `send` does, and return without waiting for the answer.
        The future gets the message's position, or the error. It cannot be cancelled, because the
        message is not withdrawn."""
        client: _Producer = self._client
        result = _Sending()
        result.set_running_or_notify_cancel()

        async def enqueue() -> None:
            waiter = await client.enqueue(
                topic,
                value,
                key=key,
                timestamp_ms=timestamp_ms,
                timestamp=timestamp,
                partition=partition,
                headers=headers,
            )
            waiter.add_done_callback(partial(_settle, result, client._failed))

        self._run(enqueue)
        return result


class _Sending(concurrent.futures.Future[SentRecord]):
    """The result of a message, and whether the program has read it."""

    _log_traceback = True
    """Whether the program has not retrieved the result, as in futures of asyncio."""

    def result(self, timeout: float | None = None) -> SentRecord:
        try:
            return super().result(timeout)
        finally:
            self._log_traceback = not self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            return super().exception(timeout)
        finally:
            self._log_traceback = not self.done()


def _settle(result: _Sending, failed: FailedSends, waiter: "asyncio.Future[SentRecord]") -> None:
    error = waiter.exception()
    if error is not None:
        result.set_exception(error)
        if isinstance(error, Exception) and not isinstance(error, ClientClosed):
            failed.add((result,), error)
    else:
        result.set_result(waiter.result())


def _windows(
    method: Callable[Concatenate[C, P], _TimeWindow],
) -> "Callable[Concatenate[Consumer, P], TimeWindow]":
    """Wrap the method of a consumer that makes a window: it returns a blocking `TimeWindow`."""
    make = _calls(method)

    @wraps(method)
    def call(self: "Consumer", /, *args: P.args, **options: P.kwargs) -> "TimeWindow":
        return TimeWindow(self, make(self, *args, **options))

    return call


def _subscribes(
    method: Callable[Concatenate[C, P], None],
) -> "Callable[Concatenate[Consumer, P], None]":
    """Wrap the method that subscribes: the callbacks run in a thread of their own, where they may
    block, and may call the consumer."""
    subscribe = _calls(method)

    @wraps(method)
    def call(self: "Consumer", /, *args: P.args, **options: P.kwargs) -> None:
        for name in ("on_assigned", "on_revoked"):
            callback: Any = options.get(name)
            if callback is not None:
                options[name] = partial(asyncio.to_thread, callback)
        subscribe(self, *args, **options)

    return call


class Consumer(_Blocking):
    """`horolog.Consumer` with blocking calls. Only one thread at a time may read; other threads
    may query positions and seek."""

    @_makes(_Consumer)
    def __init__(self) -> None:
        self._begin()

    assign = _calls(_Consumer.assign)
    unassign = _calls(_Consumer.unassign)
    subscribe = _subscribes(_Consumer.subscribe)
    unsubscribe = _waits(_Consumer.unsubscribe)
    pause = _calls(_Consumer.pause)
    resume = _calls(_Consumer.resume)
    seek = _calls(_Consumer.seek)
    position = _calls(_Consumer.position)
    seek_to_beginning = _waits(_Consumer.seek_to_beginning)
    seek_to_end = _waits(_Consumer.seek_to_end)
    seek_to_time = _waits(_Consumer.seek_to_time)
    seek_to_committed = _waits(_Consumer.seek_to_committed)
    commit = _waits(_Consumer.commit)
    lag = _waits(_Consumer.lag)
    catch_up_s = _waits(_Consumer.catch_up_s)
    fetch = _waits(_Consumer.fetch)
    fetch_columns = _waits(_Consumer.fetch_columns)
    fill = _waits(_Consumer.fill)
    take = _calls(_Consumer.take)
    window = _windows(_Consumer.window)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that the consumer reads."""
        client: _Consumer = self._client
        return client.assignment

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next message; wait for it without limit."""
        client: _Consumer = self._client
        while True:
            if self._closed:
                raise ClientClosed("the client is closed")
            # Called directly: a switch to the background thread costs more than the message.
            record = client.take()
            if record is not None:
                return record
            self._run(client.fill)


class TimeWindow:
    """`horolog.TimeWindow` with blocking calls; `Consumer.window` makes it."""

    def __init__(self, consumer: Consumer, window: _TimeWindow) -> None:
        self._consumer = consumer
        self._window = window

    @property
    def messages(self) -> int:
        """Number of messages returned so far."""
        return self._window.messages

    @property
    def read_bytes(self) -> int:
        """Bytes of the log read so far."""
        return self._window.read_bytes

    @property
    def skipped_bytes(self) -> int:
        """Bytes of the log skipped so far, because they hold nothing of the window."""
        return self._window.skipped_bytes

    @property
    def log_bytes(self) -> int:
        """Bytes of the log that `read_bytes` and `skipped_bytes` count in."""
        return self._window.log_bytes

    @property
    def untimed(self) -> int:
        """Number of messages read that have no timestamp."""
        return self._window.untimed

    @property
    def complete_from_ms(self) -> int | None:
        """Time from which on no message has left the partitions of the window; 0 if none has left
        them, None before the first message is fetched and where unknown, as at a Kafka cluster."""
        return self._window.complete_from_ms

    @property
    def removed(self) -> tuple[DescribedRemoval, ...]:
        """What had left the partitions when reading began, and may have been in the window."""
        return self._window.removed

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next message of the window."""
        while (record := self._window.take()) is None:
            if not self._consumer._run(self._window.fill):
                raise StopIteration
        return record

    def columns(self, columns: Collection[Content] = CONTENT) -> Iterator[ColumnBatch]:
        """Iterate over the messages of the window, as batches in columns."""
        check_content(columns)
        return _WindowColumns(self._consumer, self._window, columns)

    def begin(self) -> None:
        """Find where the partitions begin and end, which the first fetch does otherwise. Messages
        that are deleted from now on are missed."""
        self._consumer._run(self._window.begin)

    def count_untimed(self) -> int | None:
        """Return how many messages of the partitions have no time, and so are in no window; None
        where unknown, as at a Kafka cluster, and before reading begins."""
        return self._consumer._run(self._window.count_untimed)

    def close(self) -> None:
        """Stop reading. Needed only for a window that is not read to its end."""
        self._consumer._run(self._window.close)


class _WindowColumns:
    """The messages of a window in columns."""

    def __init__(
        self, consumer: Consumer, window: _TimeWindow, columns: Collection[Content]
    ) -> None:
        self._consumer = consumer
        self._window = window
        self._columns = columns

    def __iter__(self) -> Iterator[ColumnBatch]:
        return self

    def __next__(self) -> ColumnBatch:
        fill = partial(self._window.fill_columns, self._columns)
        while (batch := self._window.take_columns(self._columns)) is None:
            if not self._consumer._run(fill):
                raise StopIteration
        return batch


class Admin(_Blocking):
    """`horolog.Admin` with blocking calls."""

    @_makes(_Admin)
    def __init__(self) -> None:
        self._begin()

    create_topic = _waits(_Admin.create_topic)
    list_topics = _waits(_Admin.list_topics)
    partition_count = _waits(_Admin.partition_count)
    describe_cluster = _waits(_Admin.describe_cluster)
    describe_topic = _waits(_Admin.describe_topic)
    find_window = _waits(_Admin.find_window)
    alter_topic = _waits(_Admin.alter_topic)
    broker_settings = _waits(_Admin.broker_settings)
    create_partitions = _waits(_Admin.create_partitions)
    delete_records = _waits(_Admin.delete_records)
    describe_log_dirs = _waits(_Admin.describe_log_dirs)
    delete_topic = _waits(_Admin.delete_topic)
    find_offset = _waits(_Admin.find_offset)
    count_by_time = _waits(_Admin.count_by_time)
    list_offsets = _waits(_Admin.list_offsets)
    describe_log = _waits(_Admin.describe_log)
    describe_removals = _waits(_Admin.describe_removals)
    describe_broker = _waits(_Admin.describe_broker)
    commit_position = _waits(_Admin.commit_position)
    position = _waits(_Admin.position)
    position_names = _waits(_Admin.position_names)
    lag = _waits(_Admin.lag)
    list_groups = _waits(_Admin.list_groups)
    describe_group = _waits(_Admin.describe_group)
    seek_group = _waits(_Admin.seek_group)
    move_group = _waits(_Admin.move_group)
    delete_group = _waits(_Admin.delete_group)
