"""Readers of a task's span: with a consumer, or with fetches of a window, for which the broker
skips messages outside of the window."""

import asyncio
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

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
from ..protocol.records.columns import Content
from .connecting import CLIENT_ID, cluster_of
from .options import BrokerOptions
from .planning import PlannedSpan, TopicPartition, Window
from .questions import LOOP

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
