"""How much a topic has stored: messages, bytes, and the times of the first and the last message."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ...client.administer.admin import Admin
from ...client.cluster.servers import Servers
from ...client.consume.consumer import Consumer
from ...protocol.api.log.list_offsets import EARLIEST, LARGEST, LATEST
from ...protocol.errors import HorologError, UnknownTopicOrPartition
from ...times import INT64_MAX
from ...values import value_class
from ..output import plural, shown_size, shown_time

_TOPICS_AT_ONCE: Final = 16
"""How many topics are measured at the same time, so that a broker with thousands of them is not
flooded with requests."""

_FETCH_WAIT_MS: Final = 1_000

T = TypeVar("T")


@value_class
class PartitionExtent:
    """What a partition has stored. A time is None if no message has one, or if it is not known."""

    partition: int
    start: int
    end: int
    """Offset of the next message."""
    first_ms: int | None
    """Time of the first message, in offset order, that has one."""
    last_ms: int | None
    """Largest time of its messages."""

    @property
    def messages(self) -> int:
        return max(self.end - self.start, 0)


@value_class
class TopicExtent:
    """What a topic has stored; a field is None where the server does not tell, or the user may not
    know."""

    partitions: Sequence[PartitionExtent] | None = None
    size_bytes: int | None = None
    first_ms: int | None = None
    """Smallest time of its messages. In a Kafka cluster, which does not search for it, the smallest
    time of a partition's first message."""

    @property
    def messages(self) -> int | None:
        return None if self.partitions is None else sum(one.messages for one in self.partitions)

    @property
    def last_ms(self) -> int | None:
        return max(_known(one.last_ms for one in self.partitions or ()), default=None)


def _known(times: Iterable[int | None]) -> list[int]:
    return [time for time in times if time is not None and time >= 0]


async def topic_extents(
    admin: Admin, partitions: Mapping[str, int], *, kafka: bool
) -> dict[str, TopicExtent]:
    """Measure topics, given the number of partitions of each. What the user may not know, and what
    is gone meanwhile, is None. `admin` does not check units. `kafka` says whether the server is a
    Kafka cluster."""
    sizes = await _or_none(lambda: _sizes(admin, partitions)) or {}
    found = await for_each(
        lambda name: _partitions(admin, name, range(partitions[name])), partitions
    )
    firsts = await for_each(lambda name: _first_ms(admin, name, found[name], kafka), partitions)
    return {name: TopicExtent(found[name], sizes.get(name), firsts[name]) for name in partitions}


async def _first_ms(
    admin: Admin, name: str, partitions: Sequence[PartitionExtent] | None, kafka: bool
) -> int | None:
    """Return the smallest time of the topic's messages, as `TopicExtent.first_ms`."""
    if partitions is None or not any(one.messages for one in partitions):
        return None
    if kafka:
        return min(_known(one.first_ms for one in partitions), default=None)
    return (await admin.count_by_time(name, 0, INT64_MAX)).first_ms


async def for_each(
    question: Callable[[str], Awaitable[T]], topics: Iterable[str]
) -> dict[str, T | None]:
    """Ask about each topic, several at a time. None for what is refused: the user may not know it,
    or the topic is gone."""
    few = asyncio.Semaphore(_TOPICS_AT_ONCE)

    async def one(name: str) -> tuple[str, T | None]:
        async with few:
            return name, await _or_none(lambda: question(name))

    return dict(await asyncio.gather(*map(one, topics)))


async def partition_extent(admin: Admin, topic: str, partition: int) -> PartitionExtent:
    """Measure a partition. Its times are None if a search is refused, as in a damaged log."""
    first, last = await admin.list_offsets(topic, partition, [EARLIEST, LATEST])
    times: list[int | None] = [None, None]
    if first.offset != last.offset:
        found = await _or_none(lambda: admin.list_offsets(topic, partition, [0, LARGEST]))
        if found is None:  # a Kafka cluster does not search for the largest time
            found = await _or_none(lambda: admin.list_offsets(topic, partition, [0])) or []
        times = [*(one.timestamp_ms for one in found), None, None]
    return PartitionExtent(
        partition, first.offset or 0, last.offset or 0, first_ms=times[0], last_ms=times[1]
    )


async def time_of_offset(server: Servers, topic: str, partition: int, offset: int) -> int | None:
    """Return the time of the message with this offset; None if it has none or cannot be read."""
    try:
        async with Consumer(server, check_units=False, retry_timeout_ms=0) as consumer:
            consumer.assign(topic, partition, offset=offset)
            found = await consumer.fetch(max_wait_ms=_FETCH_WAIT_MS)
    except (HorologError, OSError):
        return None
    return found[0].timestamp_ms if found else None


def messages_of_times(messages: int | None, first_ms: int | None, last_ms: int | None) -> str:
    """Return `1,234 messages of TIME to TIME`."""
    if messages is None:
        return "an unknown number of messages"
    text = f"{messages:,} {plural(messages, 'message')}"
    if messages and first_ms is not None and last_ms is not None:
        text += f" of {shown_time(first_ms)} to {shown_time(last_ms)}"
    return text


def whole_topic(name: str, extent: TopicExtent) -> str:
    """Return what a topic has stored, as part of a sentence."""
    text = messages_of_times(extent.messages, extent.first_ms, extent.last_ms)
    size = "" if extent.size_bytes is None else f", {shown_size(extent.size_bytes)}"
    return f"{name}: {text}{size}"


async def _partitions(admin: Admin, name: str, numbers: Iterable[int]) -> Sequence[PartitionExtent]:
    return [await partition_extent(admin, name, number) for number in numbers]


async def _sizes(admin: Admin, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes of each topic: of several copies of a partition, the largest."""
    asked = {name: list(range(count)) for name, count in partitions.items()}
    largest: dict[tuple[str, int], int] = {}
    for directory in await admin.describe_log_dirs(asked):
        for one in directory.partitions:
            key = (one.topic, one.partition)
            largest[key] = max(largest.get(key, 0), one.size_bytes)
    found: dict[str, int] = {}
    for (topic, _), size_bytes in largest.items():
        found[topic] = found.get(topic, 0) + size_bytes
    return found


async def _or_none(question: Callable[[], Awaitable[T]]) -> T | None:
    """Return the answer to a question; None if it is refused."""
    try:
        return await question()
    except HorologError:
        return None


async def extent_of(admin: Admin, name: str, *, kafka: bool) -> TopicExtent:
    """Measure one topic, as `topic_extents` does. Raises UnknownTopicOrPartition."""
    try:
        count = await admin.partition_count(name)
    except UnknownTopicOrPartition:
        raise
    except HorologError:
        return TopicExtent()
    return (await topic_extents(admin, {name: count}, kafka=kafka))[name]
