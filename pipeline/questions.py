"""What a source asks a broker before it reads: topics, offsets, offsets by time.

One connection for each process and broker, kept: Spark uses its Python processes again.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Final, TypeVar

from ..client.admin import Admin
from ..client.background import BackgroundLoop
from ..client.consumer import Consumer
from ..client.patience import PASSING, patiently
from ..client.results import Found
from ..protocol.api.list_offsets import EARLIEST, LATEST
from ..protocol.errors import HorologError, UnknownTopicOrPartition
from .options import Broker, Subscription
from .planning import Offsets, TopicPartition

T = TypeVar("T")

LOOP: Final = BackgroundLoop("horolog-pipeline")
"""Of this process: what has connections runs in it."""

_PEEK_WAIT_MS: Final = 100


class Questions:
    """Asks one broker; what fails for want of a connection is asked again."""

    def __init__(self, broker: Broker) -> None:
        LOOP.enter()
        self._broker = broker
        self._admin = LOOP.run(self._open())

    async def _open(self) -> Admin:
        return Admin(
            self._broker.address,
            client_id="horolog-spark",
            request_timeout_ms=self._broker.request_timeout_ms,
            check_units=False,
        )

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """The partitions that are subscribed to, in order.

        Raises UnknownTopicOrPartition for a topic or partition that was named and is not there.
        """
        counts = self._ask(self._admin.list_topics)
        if subscription.pattern is not None:
            fitting = re.compile(subscription.pattern)
            names = [name for name in counts if fitting.fullmatch(name)]
            return _all_of(names, counts)
        if subscription.names:
            for name in subscription.names:
                if name not in counts:
                    raise UnknownTopicOrPartition(_unknown(name, counts, self._broker.address))
            return _all_of(subscription.names, counts)
        for name, partitions in subscription.assigned.items():
            if name not in counts:
                raise UnknownTopicOrPartition(_unknown(name, counts, self._broker.address))
            if partitions[-1] >= counts[name]:
                raise UnknownTopicOrPartition(
                    f"assign names partition {partitions[-1]} of {name}, which has partitions 0 to "
                    f"{counts[name] - 1}"
                )
        return sorted((name, one) for name, ones in subscription.assigned.items() for one in ones)

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets stored."""
        return self._offsets(partitions, EARLIEST)

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that the next messages will get."""
        return self._offsets(partitions, LATEST)

    def at_time(
        self, partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int | None]:
        """The first offsets with this timestamp or a later one; None where there is none."""
        return self.at_times(dict.fromkeys(partitions, time_ms))

    def at_times(self, times_ms: Offsets) -> dict[TopicPartition, int | None]:
        """As `at_time`, with a time for each partition."""
        keys = list(times_ms)
        found = self._each(
            partial(self._admin.find_offset, *key, timestamp_ms=max(times_ms[key], 0))
            for key in keys
        )
        return {
            key: result.offset if isinstance(result, Found) else None
            for key, result in zip(keys, found, strict=True)
        }

    def next_times_ms(self, offsets: Offsets) -> dict[TopicPartition, int]:
        """Timestamps of the messages at these offsets; partitions where there is none are left
        out, and so are messages without a time."""
        return self._run(partial(self._peek, offsets))

    def wait_beyond(self, ends: Offsets, wait_ms: int) -> None:
        """Return when there is something behind one of these ends, or after `wait_ms`."""
        if wait_ms:
            with suppress(HorologError, *PASSING):  # who asks next is told what is wrong
                self._run(partial(self._wait_beyond, ends, wait_ms))

    def _offsets(
        self, partitions: Iterable[TopicPartition], target: int
    ) -> dict[TopicPartition, int]:
        keys = list(partitions)
        found = self._each(partial(self._admin.list_offsets, *key, [target]) for key in keys)
        return {key: answers[0].offset or 0 for key, answers in zip(keys, found, strict=True)}

    def _each(self, questions: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
        """The answers to all, asked at once."""
        asked = list(questions)

        async def ask() -> list[T]:
            return await asyncio.gather(*(question() for question in asked))

        return self._ask(ask)

    def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        return self._run(
            partial(
                patiently,
                question,
                timeout_ms=self._broker.retry_budget_ms,
                setting="retryBudgetMs",
                passing=PASSING,
            )
        )

    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def do() -> T:
            return await work()

        return LOOP.run(do())

    def _consumer(self, retry_timeout_ms: int) -> Consumer:
        return Consumer(
            self._broker.address,
            partition_max_bytes=1,
            client_id="horolog-spark",
            request_timeout_ms=self._broker.request_timeout_ms,
            retry_timeout_ms=retry_timeout_ms,
            check_units=False,
        )

    async def _peek(self, offsets: Offsets) -> dict[TopicPartition, int]:
        times: dict[TopicPartition, int] = {}
        async with self._consumer(self._broker.retry_budget_ms) as consumer:
            for key, offset in offsets.items():
                consumer.assign(*key, offset=offset)
            while consumer.assignment:
                found = await consumer.fetch_columns(max_wait_ms=_PEEK_WAIT_MS)
                if not found:
                    break
                for batch in found:
                    key = (batch.topic, batch.partition)
                    if key in consumer.assignment:
                        consumer.unassign(*key)
                        if batch.timestamps_ms[0] >= 0:
                            times[key] = int(batch.timestamps_ms[0])
        return times

    async def _wait_beyond(self, ends: Offsets, wait_ms: int) -> None:
        if not ends:
            await asyncio.sleep(wait_ms / 1000)
            return
        async with self._consumer(0) as consumer:
            for key, offset in ends.items():
                consumer.assign(*key, offset=offset)
            await consumer.fetch_columns(max_wait_ms=wait_ms)


_QUESTIONS: Final[dict[tuple[int, Broker], Questions]] = {}


def questions(broker: Broker) -> Questions:
    """The one of this process."""
    key = (os.getpid(), broker)
    found = _QUESTIONS.get(key)
    if found is None:
        found = _QUESTIONS[key] = Questions(broker)
    return found


def _all_of(names: Iterable[str], counts: dict[str, int]) -> list[TopicPartition]:
    return [(name, number) for name in sorted(names) for number in range(counts[name])]


def _unknown(name: str, counts: dict[str, int], address: str) -> str:
    close = get_close_matches(name, counts, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it has {len(counts)} others"
    return f"{address} has no topic {name!r}: {hint}"
