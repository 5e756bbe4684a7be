"""Reads a task's span of a partition as Arrow record batches: with a consumer, or with fetches of a
window, for which the broker skips messages outside of the window."""

import asyncio
import logging
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from ..blocking import Consumer
from ..client.client import ReadFrom
from ..client.cluster.retry import retry
from ..client.cluster.route import Route
from ..client.consume.fetching import FetchOptions, next_offset
from ..client.responses import partition_result
from ..client.results import ColumnBatch
from ..protocol.api.log.fetch import (
    FETCH,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from ..protocol.errors import OffsetOutOfRange
from ..protocol.records.columns import Content
from .connecting import CLIENT_ID, cluster_of
from .logs import UNKNOWN
from .options import BrokerOptions, ReadOptions
from .planning import DataLoss, PlannedSpan, TopicPartition, Window
from .questions import LOOP, questions
from .row_batches import content_of, in_window, joined, record_batch, times_of

_log = logging.getLogger(__name__)

_Kind = tuple[int, BrokerOptions, bool, bool, ReadFrom]
"""Key of a reader: process id, broker, whether it reads append times, whether it is a
`WindowReader`, and from which broker it reads."""

_MIB: Final = 1024 * 1024
_FETCH_BYTES: Final = 4 * _MIB
_MAX_DECOMPRESSED_BYTES: Final = 64 * _MIB
_WAIT_MS: Final = 500


class FetchedSpan(NamedTuple):
    """Result of one fetch."""

    batches: list[ColumnBatch]
    position: int
    """Offset to fetch next; unchanged if there is nothing to read."""


class SpanReader(Protocol):
    """Reads one span at a time."""

    def begin(self, span: PlannedSpan, content: Collection[Content], window: Window | None) -> None:
        """Begin to read `span`; `content` says which parts of messages are needed. Messages outside
        of `window` may be left out."""
        ...

    def fetch(self, position: int) -> FetchedSpan:
        """Return the next messages from `position` on. Raises OffsetOutOfRange, CorruptMessage, and
        the client's errors."""
        ...

    def end(self) -> None:
        """End the reading of the span."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


_IDLE: Final[dict[_Kind, list[SpanReader]]] = {}
"""Idle readers, kept for the next task: to connect costs more than a small batch."""


def read_span(
    span: PlannedSpan,
    schema: pa.Schema,
    options: ReadOptions,
    window: Window | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of `span` in the columns of `schema`; with `window` only messages with a
    timestamp in the window.

    Raises DataLoss for messages that are gone, unless failOnDataLoss=false.
    """
    return joined(_fetched(span, schema, options, window))


def _fetched(
    span: PlannedSpan, schema: pa.Schema, options: ReadOptions, window: Window | None
) -> Iterator[pa.RecordBatch]:
    if not _as_planned(span, options):
        return
    passes_over = window is not None and reads_windows(options.broker)
    # With "any" too: WindowReader sends the span's end, which a follower that lags may not have.
    passes_over = passes_over or options.read_from == "any"
    append_times = "appendTime" in schema.names
    kind = (os.getpid(), options.broker, append_times, passes_over, options.read_from)
    reader = _take(kind)
    done = False
    try:
        reader.begin(span, content_of(schema), window)
        yield from _read(reader, span, schema, options, window)
        done = True
        # If the topic was deleted and made again meanwhile, its new messages have the same offsets.
        _as_planned(span, options)
    finally:
        # A reader that failed, or has a request in flight, cannot be used again.
        if done:
            reader.end()
            _IDLE.setdefault(kind, []).append(reader)
        else:
            with suppress(Exception):
                reader.close()


def _read(
    reader: SpanReader,
    span: PlannedSpan,
    schema: pa.Schema,
    options: ReadOptions,
    window: Window | None,
) -> Iterator[pa.RecordBatch]:
    position = span.start
    while position < span.end:
        try:
            found = reader.fetch(position)
        except OffsetOutOfRange as error:
            position = _go_on(span, position, options, error)
            continue
        for batch in found.batches:
            if batch.offsets[0] >= span.end:
                return
            rows = record_batch(batch, schema, end=span.end)
            if window is not None:
                rows = in_window(rows, times_of(batch).slice(0, rows.num_rows), window)
            yield rows
        if found.position <= position:
            found = found._replace(position=_behind_nothing(span, options))
        position = found.position


def _as_planned(span: PlannedSpan, options: ReadOptions) -> bool:
    """Whether the topic still has the log that the span was planned for. If not, raises DataLoss,
    or logs a warning with failOnDataLoss=false."""
    if span.log == UNKNOWN:
        return True
    why = span.log.changed(span.topic, questions(options.broker).log_of(span.topic))
    if why is None:
        return True
    text = (
        f"messages of {span.topic}-{span.partition} from offset {span.start} to {span.end} were to "
        f"be read: {why}. failOnDataLoss=false skips what is gone"
    )
    if options.fail_on_data_loss:
        raise DataLoss(text)
    _log.warning("%s", text)
    return False


def _go_on(span: PlannedSpan, position: int, options: ReadOptions, error: OffsetOutOfRange) -> int:
    """Return the offset to read on from when the messages at `position` are gone. Raises DataLoss
    unless failOnDataLoss=false."""
    if not _as_planned(span, options):
        return span.end
    key = (span.topic, span.partition)
    asked = questions(options.broker)
    first, end = asked.beginnings([key])[key], asked.ends([key])[key]
    text = (
        f"messages of {span.topic}-{span.partition} from offset {position} on were to be read, "
        f"and its log has offsets {first} to {end}: retention or a trim removed them, or the topic "
        "was made again. failOnDataLoss=false skips what is gone"
    )
    if options.fail_on_data_loss:
        raise DataLoss(text) from error
    _log.warning("%s", text)
    if not position < first < span.end:
        return span.end
    return first


def _behind_nothing(span: PlannedSpan, options: ReadOptions) -> int:
    """Return the offset to read on from when a fetch returned nothing. Raises DataLoss unless
    failOnDataLoss=false."""
    if not _as_planned(span, options):
        return span.end
    key = (span.topic, span.partition)
    end = questions(options.broker).ends([key])[key]
    if end >= span.end:
        return span.end  # only offsets without messages are left, as transactions leave them
    text = (
        f"messages of {span.topic}-{span.partition} up to offset {span.end} were to be read, and "
        f"its log ends at {end}. failOnDataLoss=false skips what is gone"
    )
    if options.fail_on_data_loss:
        raise DataLoss(text)
    _log.warning("%s", text)
    return span.end


def _take(kind: _Kind) -> SpanReader:
    idle = _IDLE.get(kind)
    if idle:
        return idle.pop()
    _, broker, append_times, passes_over, read_from = kind
    if passes_over:
        return WindowReader(broker, append_times=append_times, read_from=read_from)
    return ConsumerReader(broker, append_times=append_times)


class ConsumerReader:
    """Reads all messages of a span with a consumer, from Horolog or from Kafka."""

    def __init__(self, broker: BrokerOptions, *, append_times: bool) -> None:
        self._consumer = Consumer(
            broker.servers,
            max_wait_ms=_WAIT_MS,
            partition_max_bytes=_FETCH_BYTES,
            max_bytes=_FETCH_BYTES,
            client_id=CLIENT_ID,
            request_timeout_ms=broker.request_timeout_ms,
            retry_timeout_ms=broker.retry_budget_ms,
            check_units=False,
            append_times=append_times,
        )
        self._key: TopicPartition = ("", 0)
        self._content: Collection[Content] = ()

    def begin(self, span: PlannedSpan, content: Collection[Content], window: Window | None) -> None:
        """See `SpanReader`."""
        self._key, self._content = (span.topic, span.partition), content
        self._consumer.assign(*self._key, offset=span.start)

    def fetch(self, position: int) -> FetchedSpan:
        """See `SpanReader`."""
        if self._consumer.position(*self._key) != position:
            self._consumer.seek(*self._key, position)
        found = self._consumer.fetch_columns(columns=self._content)
        return FetchedSpan(found, self._consumer.position(*self._key) or 0)

    def end(self) -> None:
        """See `SpanReader`."""
        self._consumer.unassign(*self._key)

    def close(self) -> None:
        """See `SpanReader`."""
        self._consumer.close()


class _Question(NamedTuple):
    """Position that a fetch asks for."""

    topic: str
    partition: int
    offset: int


class WindowReader:
    """Reads the messages that can be in a window of time, or all messages, from Horolog's leader or
    from any broker that has the whole span. While the caller works on the messages of one fetch,
    the next fetch is in flight."""

    def __init__(
        self, broker: BrokerOptions, *, append_times: bool, read_from: ReadFrom = "leader"
    ) -> None:
        LOOP.enter()
        self._broker = broker
        self._options = FetchOptions(
            min_bytes=1,
            partition_max_bytes=_FETCH_BYTES,
            max_bytes=_FETCH_BYTES,
            max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES,
            append_times=append_times,
        )
        self._cluster = LOOP.run(_open(broker, read_from))
        self._span = PlannedSpan("", 0, 0, 0)
        self._content: Collection[Content] = ()
        self._window: Window | None = None
        self._ahead: tuple[_Question, asyncio.Task[FetchPartitionResult]] | None = None

    def begin(self, span: PlannedSpan, content: Collection[Content], window: Window | None) -> None:
        """See `SpanReader`."""
        self._span, self._content, self._window = span, content, window

    def fetch(self, position: int) -> FetchedSpan:
        """See `SpanReader`."""
        question = _Question(self._span.topic, self._span.partition, position)
        result = LOOP.run(self._take(question))
        found = self._options.columns(question.topic, result, position, self._content)
        read_to = found[-1].next_offset if found else position
        if found and read_to < next_offset(result, position):
            return FetchedSpan(found, read_to)  # an entry behind them is damaged or no message
        return FetchedSpan(found, _behind(result, position))

    def end(self) -> None:
        """See `SpanReader`."""
        LOOP.run(self._drop_ahead())

    def close(self) -> None:
        """See `SpanReader`."""
        self.end()
        LOOP.run(self._cluster.close())
        LOOP.leave()

    async def _take(self, question: _Question) -> FetchPartitionResult:
        """Return the answer to `question`, from the fetch in flight if it is the same, and send the
        fetch for the following offset."""
        ahead = self._ahead
        if ahead is not None and ahead[0] == question:
            self._ahead = None
            result = await ahead[1]
        else:
            await self._drop_ahead()
            result = await self._ask(question)
        behind = _behind(result, question.offset)
        if question.offset < behind < self._span.end:
            following = question._replace(offset=behind)
            self._ahead = (following, asyncio.create_task(self._ask(following)))
        return result

    async def _ask(self, question: _Question) -> FetchPartitionResult:
        async def attempt() -> FetchPartitionResult:
            request = window_request(
                question.topic, [(question.partition, question.offset)], self._window, _FETCH_BYTES
            )
            # A follower that lacks the end of the span would seem to have nothing more to read.
            request.topics[0].partitions[0].seen_offset = self._span.end
            request.include_append_times = self._options.append_times
            response: FetchResponse = await self._cluster.request_or_drop(FETCH, request)
            return partition_result(response.topics, question.topic, question.partition)

        return await retry(
            attempt, timeout_ms=self._broker.retry_budget_ms, setting="retryBudgetMs"
        )

    async def _drop_ahead(self) -> None:
        if self._ahead is not None:
            _, answer = self._ahead
            self._ahead = None
            answer.cancel()
            await asyncio.wait((answer,))
            if not answer.cancelled():
                answer.exception()  # retrieved, so that asyncio does not report it


def window_request(
    topic: str, places: Collection[tuple[int, int]], window: Window | None, partition_max_bytes: int
) -> FetchRequest:
    """Return a fetch request from these (partition, offset) pairs on, without waiting for new
    messages. With a window the broker skips messages that cannot be in it."""
    from_ms = -1 if window is None else window.from_ms
    until_ms = None if window is None else window.until_ms
    return FetchRequest(
        min_bytes=1,
        max_bytes=partition_max_bytes,
        topics=[
            FetchTopic(
                name=topic,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        window_from_ms=from_ms,
                        window_until_ms=-1 if until_ms is None else until_ms,
                    )
                    for partition, offset in places
                ],
            )
        ],
    )


def reads_windows(broker: BrokerOptions) -> bool:
    """Whether the broker can skip messages outside of a window; Kafka cannot."""
    return not broker.servers.kafka


def _behind(result: FetchPartitionResult, offset: int) -> int:
    """Return the offset to fetch after all messages of a result were read."""
    return max(next_offset(result, offset), result.next_offset)


async def _open(broker: BrokerOptions, read_from: ReadFrom) -> Route:
    return cluster_of(broker, read_from)
