"""Partitions of a window, and the offsets between which each is read."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ...protocol.api.log.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ...protocol.errors import CodedError, UnsupportedForMessageFormat
from ...values import value_class
from ..administer.searching import offsets_at
from ..cluster.cluster import ClusterConnections
from ..cluster.kafka_cluster import partition_counts
from ..cluster.retry import retry
from ..cluster.targets import PartitionLeader
from .fetching import TopicPartition

T = TypeVar("T")


@dataclass(slots=True)
class WindowPartition:
    """State of one partition of a window."""

    topic: str
    partition: int
    end: int | None
    """Offset to stop at; None while the window follows the partition without an end."""
    position: int | None = None
    """Next offset to read; None until the start of the partition is known."""
    was_read: bool = False
    waits: bool = False
    """The last fetch brought nothing, so the next one waits at the broker."""
    stalled_since: float | None = None
    """Time on the event loop's clock at which the partition was found to end before `end`; None if
    it does not, or messages came since."""

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def is_done(self) -> bool:
        """Whether the partition is read to its end."""
        return self.end is None or (self.position is not None and self.position >= self.end)


@value_class
class WindowRequests:
    """Requests about the partitions of a window, repeated while the cluster is unavailable."""

    cluster: ClusterConnections
    retry_timeout_ms: int

    async def places(
        self, topic: str, partitions: Sequence[int] | None, *, first: int = 0
    ) -> list[WindowPartition]:
        """Return the given partitions of a topic, or all from `first` on, ending at the last
        readable offset."""
        if partitions is None:
            counts = await self.ask(partial(partition_counts, self.cluster, [topic]))
            partitions = range(first, counts[topic])
        places = [WindowPartition(topic, number, None) for number in partitions]
        await self.find_ends(places)
        return places

    async def find_ends(self, places: Sequence[WindowPartition]) -> None:
        """Set the end of each partition to its current end of readable messages."""
        ends = await asyncio.gather(*(self._offset(place, LATEST) for place in places))
        for place, end in zip(places, ends, strict=True):
            place.end = end

    async def find_beginning(self, place: WindowPartition, from_ms: int | None) -> None:
        """Set the position to the first message stored or, with `from_ms`, to the first message of
        that time or later. No earlier message can be in the window."""
        try:
            offset = await self._offset(place, EARLIEST if from_ms is None else from_ms)
        except UnsupportedForMessageFormat:
            # New messages of this topic get no timestamps, but messages stored before may have
            # some.
            offset = await self._offset(place, EARLIEST)
        place.position = (place.end or 0) if offset is None else offset

    async def log_bytes(self, place: WindowPartition) -> int:
        """Return the size of the partition on its leader's disk in bytes; 0 if the broker does not
        tell."""
        asked = DescribableLogDirTopic(name=place.topic, partitions=[place.partition])
        ask = partial(
            self.cluster.request,
            DESCRIBE_LOG_DIRS,
            DescribeLogDirsRequest(topics=[asked]),
            to=PartitionLeader(*place.key),
        )
        try:
            response: DescribeLogDirsResponse = await self.ask(ask)
        except CodedError:  # the request needs a right of its own
            return 0
        return sum(
            one.size_bytes
            for result in response.results
            for topic in result.topics
            for one in topic.partitions
            if (topic.name, one.partition) == place.key
        )

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a request, which is repeated for up to `retry_timeout_ms`."""
        return await retry(question, timeout_ms=self.retry_timeout_ms, setting="retry_timeout_ms")

    async def _offset(self, place: WindowPartition, target: int) -> int | None:
        (found,) = await self.ask(partial(offsets_at, self.cluster, *place.key, [target]))
        return found.offset
