"""Queries to a broker that plan a read: topics, offsets, offsets by time.

Each process keeps one connection per broker, because Spark reuses its Python processes.
"""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Final, NamedTuple, TypeVar

from ..client.administer.admin import Admin
from ..client.background import BackgroundLoop
from ..client.cluster.retry import RETRIABLE, retry
from ..client.results import ClusterDescription, FindResult, Found
from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from ..protocol.errors import HorologError, UnknownTopicOrPartition
from ..protocol.window_topics import SEPARATOR, WindowName, base_of, parse_window_name
from ..times import format_time
from .connecting import CLIENT_ID, consumer_at
from .logs import LogId, TopicLogs, logs_of
from .options import BrokerOptions, Subscription
from .planning import Offsets, PlannedSpan, TopicPartition

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

LOOP: Final = BackgroundLoop("horolog-pipeline")
"""Event loop of this process, in a thread; all connections of the pipeline belong to it."""

_PEEK_WAIT_MS: Final = 100


class _Effort(NamedTuple):
    """Limits of a scan for a message by its timestamp."""

    messages: int
    """Number of messages of a partition after which the scan ends, once the batch is complete."""
    fetch_bytes: int


_PEEK: Final = _Effort(100_000, 16 * 1024)
"""Limits of a scan for the next timestamp: nearly always the first message has it."""
_LOOK_THROUGH: Final = _Effort(1_000_000, 1024 * 1024)
"""Limits of a scan for the end of a time slice: the scanned messages are read afterwards anyway."""


class Topics(NamedTuple):
    """Topics of a broker."""

    subscribed: list[TopicPartition]
    """The partitions that are subscribed to, in order."""
    counts: Mapping[str, int]
    """The number of partitions of every topic, subscribed to or not, and of the windows that are
    subscribed to by their names."""
    logs: TopicLogs
    windows: frozenset[str] = frozenset()
    """The names in `counts` that mean windows of time."""

    def has(self, key: TopicPartition) -> bool:
        """Whether the partition exists; that of a window exists if that of its base does."""
        return key[1] < self.counts.get(base_of(self.counts, key[0]), 0)


def warn_of_gone(topic: str, partition: int, time_ms: int, complete_from_ms: int | None) -> None:
    """Log a warning if messages of `time_ms` or later may have left a partition that is read from
    that time on. The time 0 stands for all messages that there are."""
    if complete_from_ms is not None and 0 < time_ms < complete_from_ms:
        _log.warning(
            "%s-%s is read from %s on, but is complete only from %s on; "
            "`horolog explain gone %s` shows what went",
            topic,
            partition,
            format_time(time_ms),
            format_time(complete_from_ms),
            topic,
        )


class Questions:
    """Sends queries to one broker; requests that fail with a retriable error are retried."""

    def __init__(self, broker: BrokerOptions) -> None:
        LOOP.enter()
        self._broker = broker
        self._admin = LOOP.run(self._open())

    async def _open(self) -> Admin:
        return Admin(
            self._broker.servers,
            client_id=CLIENT_ID,
            request_timeout_ms=self._broker.request_timeout_ms,
            check_units=False,
        )

    def topics(self, subscription: Subscription, *, all_named: bool = True) -> Topics:
        """Return all topics, and the partitions that are subscribed to.

        Raises UnknownTopicOrPartition for a named topic or partition that does not exist, unless
        `all_named` is false.
        """
        described = self._ask(self._admin.describe_cluster)
        windows = self._windows(subscription, described)
        described = ClusterDescription(described.cluster_id, {**described.topics, **windows.topics})
        counts = {name: topic.partitions for name, topic in described.topics.items()}
        partitions = self._subscribed(subscription, counts, all_named)
        return Topics(partitions, counts, logs_of(described), frozenset(windows.topics))

    def _windows(
        self, subscription: Subscription, described: ClusterDescription
    ) -> ClusterDescription:
        """Describe the windows that are subscribed to by their names: no list of topics has
        them."""
        named = subscription.names or tuple(subscription.assigned)
        windows = [
            name for name in named if name not in described.topics and parse_window_name(name)
        ]
        if not windows:
            return ClusterDescription(described.cluster_id, {})
        found = self._ask(partial(self._admin.describe_cluster, windows))
        readable = {name: topic for name, topic in found.topics.items() if topic.partitions}
        return ClusterDescription(found.cluster_id, readable)

    def log_of(self, topic: str) -> LogId:
        """Return the ids of a topic's logs; the topic id is empty if the topic does not exist."""
        described = self._ask(partial(self._admin.describe_cluster, [topic]))
        return logs_of(described).of(topic)

    def _subscribed(
        self, subscription: Subscription, counts: dict[str, int], all_named: bool
    ) -> list[TopicPartition]:
        if subscription.pattern is not None:
            fitting = re.compile(subscription.pattern)
            names = [name for name in counts if fitting.fullmatch(name)]
            return _all_of(names, counts)
        named = subscription.names or tuple(subscription.assigned)
        if all_named:
            self._check(named, subscription.assigned, counts)
        names = [name for name in named if name in counts]
        if subscription.names:
            return _all_of(names, counts)
        return sorted(
            (name, one)
            for name in names
            for one in subscription.assigned[name]
            if one < counts[name]
        )

    def _check(
        self,
        named: Iterable[str],
        assigned: Mapping[str, tuple[int, ...]],
        counts: dict[str, int],
    ) -> None:
        for name in named:
            if name not in counts:
                raise UnknownTopicOrPartition(_unknown(name, counts, self._broker.address))
        for name, partitions in assigned.items():
            if partitions[-1] >= counts[name]:
                raise UnknownTopicOrPartition(
                    f"assign names partition {partitions[-1]} of {name}, which has partitions 0 to "
                    f"{counts[name] - 1}"
                )

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log starts."""
        return self._offsets(partitions, EARLIEST)

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log ends: the offsets that the next messages will get."""
        return self._offsets(partitions, LATEST)

    def at_times(self, times_ms: Offsets) -> dict[TopicPartition, int | None]:
        """Return the first offset of each partition with the given timestamp or a later one; None
        if it has no such message. Logs a warning if messages of that time or later have left the
        topic."""
        found = self._found(times_ms)
        for key, result in found.items():
            warn_of_gone(*key, times_ms[key], result.complete_from_ms)
        return {
            key: result.offset if isinstance(result, Found) else None
            for key, result in found.items()
        }

    def warn_of_gone(self, partitions: Iterable[TopicPartition], from_ms: int) -> None:
        """Log a warning for each partition that messages of `from_ms` or later may have left."""
        keys = list(partitions)
        found = self._each(partial(self._admin.list_offsets, *key, [LATEST]) for key in keys)
        for key, answers in zip(keys, found, strict=True):
            warn_of_gone(*key, from_ms, answers[0].complete_from_ms)

    def next_times_ms(
        self, spans: Sequence[PlannedSpan], before_ms: int
    ) -> dict[TopicPartition, int]:
        """Return for each span the timestamp of its first message below `before_ms`; -1 if that
        message has no timestamp. Spans without such a message are left out."""
        seen = self._run(partial(self._first_in, spans, -1, before_ms, _PEEK))
        return {key: time_ms for key, (_, time_ms) in seen.items() if time_ms is not None}

    def stops_at(
        self, spans: Sequence[PlannedSpan], time_ms: int, before_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each span with a timestamp in [time_ms, before_ms); spans
        without one are left out. If a search by time does not give the answer, messages are
        scanned; if the scan reaches its limit, the result is the first offset not scanned."""
        found = self._found({(span.topic, span.partition): time_ms for span in spans})
        stops, unclear = {}, []
        for span in spans:
            key = (span.topic, span.partition)
            at = found[key]
            if not isinstance(at, Found):
                continue
            if at.offset >= span.start and at.timestamp_ms < before_ms:
                stops[key] = at.offset
                continue
            # The search begins at the log start and found a message before the span, or one with
            # a timestamp from `before_ms` on. No message before that one is at or after `time_ms`.
            begin = max(at.offset, span.start)
            if begin < span.end:
                unclear.append(PlannedSpan(*key, begin, span.end))
        seen = self._run(partial(self._first_in, unclear, time_ms, before_ms, _LOOK_THROUGH))
        return stops | {key: offset for key, (offset, _) in seen.items()}

    def wait_beyond(self, ends: Offsets, wait_ms: int) -> None:
        """Wait until a partition has messages from its offset in `ends` on, at most `wait_ms`."""
        if wait_ms:
            with suppress(HorologError):  # the next query raises the error
                self._run(partial(self._wait_beyond, ends, wait_ms))

    def _found(self, times_ms: Offsets) -> dict[TopicPartition, FindResult]:
        found = self._each(
            partial(self._admin.find_offset, *key, timestamp_ms=max(time_ms, 0))
            for key, time_ms in times_ms.items()
        )
        return dict(zip(times_ms, found, strict=True))

    def _offsets(
        self, partitions: Iterable[TopicPartition], target: int
    ) -> dict[TopicPartition, int]:
        keys = list(partitions)
        found = self._each(partial(self._admin.list_offsets, *key, [target]) for key in keys)
        return {key: answers[0].offset or 0 for key, answers in zip(keys, found, strict=True)}

    def _each(self, questions: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
        """Send all queries at once and return the answers in order."""
        asked = list(questions)

        async def ask() -> list[T]:
            return await asyncio.gather(*(question() for question in asked))

        return self._ask(ask)

    def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        return self._run(
            partial(
                retry,
                question,
                timeout_ms=self._broker.retry_budget_ms,
                setting="retryBudgetMs",
                retriable=RETRIABLE,
            )
        )

    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def do() -> T:
            return await work()

        return LOOP.run(do())

    async def _first_in(
        self, spans: Sequence[PlannedSpan], from_ms: int, before_ms: int, effort: _Effort
    ) -> dict[TopicPartition, tuple[int, int | None]]:
        """Scan each span for its first message with a timestamp in [from_ms, before_ms); return
        offset and timestamp. Spans without one are left out. If the scan reaches its limit, the
        timestamp is None and the offset is the first one not scanned."""
        seen: dict[TopicPartition, tuple[int, int | None]] = {}
        if not spans:
            return seen
        open_spans = {(span.topic, span.partition): span for span in spans}
        async with consumer_at(self._broker, partition_max_bytes=effort.fetch_bytes) as consumer:
            for key, span in open_spans.items():
                consumer.assign(*key, offset=span.start)
            while consumer.assignment:
                found = await consumer.fetch_columns(max_wait_ms=_PEEK_WAIT_MS, columns=())
                if not found:
                    break
                for batch in found:
                    key = (batch.topic, batch.partition)
                    if key not in consumer.assignment:
                        continue
                    span = open_spans[key]
                    number = _first_number(batch.timestamps_ms, from_ms, before_ms)
                    stop = batch.next_offset if number is None else batch.offsets[number]
                    enough = stop - span.start >= effort.messages
                    if number is not None or enough or stop >= span.end:
                        consumer.unassign(*key)
                    if stop < span.end and (number is not None or enough):
                        time_ms = None if number is None else batch.timestamps_ms[number]
                        seen[key] = (stop, time_ms)
        return seen

    async def _wait_beyond(self, ends: Offsets, wait_ms: int) -> None:
        if not ends:
            await asyncio.sleep(wait_ms / 1000)
            return
        async with consumer_at(self._broker, retry_timeout_ms=0, partition_max_bytes=1) as consumer:
            for key, offset in ends.items():
                consumer.assign(*key, offset=offset)
            await consumer.fetch_columns(max_wait_ms=wait_ms)


_QUESTIONS: Final[dict[tuple[int, BrokerOptions], Questions]] = {}


def questions(broker: BrokerOptions) -> Questions:
    """Return this process's `Questions` for a broker."""
    key = (os.getpid(), broker)
    found = _QUESTIONS.get(key)
    if found is None:
        found = _QUESTIONS[key] = Questions(broker)
    return found


def _all_of(names: Iterable[str], counts: dict[str, int]) -> list[TopicPartition]:
    return [(name, number) for name in sorted(names) for number in range(counts[name])]


def _first_number(times_ms: memoryview, from_ms: int, before_ms: int) -> int | None:
    return next(
        (number for number, time_ms in enumerate(times_ms) if from_ms <= time_ms < before_ms), None
    )


def _unknown(name: str, counts: dict[str, int], address: str) -> str:
    window = parse_window_name(name)
    if window is not None and (window.is_empty or window.base in counts):
        return f"{name} cannot be read at {address}: {_no_window(window)}"
    base = name.partition(SEPARATOR)[0]
    if window is None and base in counts:
        return (
            f"{address} has no topic {name!r}, and it is not the name of a window of {base}, such "
            f"as {base}..20161114T14Z..1h"
        )
    wanted = name if window is None else window.base
    close = get_close_matches(wanted, counts, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it has {len(counts)} others"
    of = "" if window is None else f", of which {name} is a window"
    return f"{address} has no topic {wanted!r}{of}: {hint}"


def _no_window(window: WindowName) -> str:
    """Why a cluster that has the base of a window does not have the window."""
    if window.is_empty:
        return "no time is in a window that ends at or before its start"
    said = f"only Horolog serves a window of {window.base} as a topic"
    if window.by_append:
        return f"{said}, and only Horolog has append times"
    end = "" if window.until_ms is None else f" and endingTimestamp={window.until_ms}"
    return (
        f"{said}. subscribe={window.base} with startingTimestamp={window.from_ms}{end} reads the "
        "window in a batch; a stream needs timeRange=exact too"
    )
