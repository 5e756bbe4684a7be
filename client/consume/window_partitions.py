"""The partitions of a window: where each is read from, and up to where."""

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
    """A partition of a window."""

    topic: str
    partition: int
    end: int | None
    """Offset to stop at; None where it goes on without one."""
    position: int | None = None
    """Next offset to look at; None until it is known where the partition begins."""
    was_read: bool = False
    waits: bool = False
    """Nothing came last time: the next fetch waits at the broker."""
    stalled_since: float | None = None
    """When, on the loop's clock, it was found to end before `end`, and nothing came since."""

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def is_done(self) -> bool:
        """Whether it was read to its end."""
        return self.end is None or (self.position is not None and self.position >= self.end)


@value_class
class WindowRequests:
    """What is asked of a cluster about the partitions of a window; again while it is away."""

    cluster: ClusterConnections
    retry_timeout_ms: int

    async def places(
        self, topic: str, partitions: Sequence[int] | None, *, first: int = 0
    ) -> list[WindowPartition]:
        """The partitions of a topic, all from `first` on or these, up to where they can be read
        now."""
        if partitions is None:
            counts = await self.ask(partial(partition_counts, self.cluster, [topic]))
            partitions = range(first, counts[topic])
        places = [WindowPartition(topic, number, None) for number in partitions]
        await self.find_ends(places)
        return places

    async def find_ends(self, places: Sequence[WindowPartition]) -> None:
        """Have the places end where they can be read up to now."""
        ends = await asyncio.gather(*(self._offset(place, LATEST) for place in places))
        for place, end in zip(places, ends, strict=True):
            place.end = end

    async def find_beginning(self, place: WindowPartition, from_ms: int | None) -> None:
        """Where reading begins: at the first message stored, or with `from_ms` at the first of that
        time or later, before which nothing can be in the window."""
        try:
            offset = await self._offset(place, EARLIEST if from_ms is None else from_ms)
        except UnsupportedForMessageFormat:
            # New messages of the topic get no times. Those stored before may have some.
            offset = await self._offset(place, EARLIEST)
        place.position = (place.end or 0) if offset is None else offset

    async def log_bytes(self, place: WindowPartition) -> int:
        """Bytes of the partition on the disk of its leader; 0 where that is not answered."""
        asked = DescribableLogDirTopic(name=place.topic, partitions=[place.partition])
        ask = partial(
            self.cluster.request,
            DESCRIBE_LOG_DIRS,
            DescribeLogDirsRequest(topics=[asked]),
            to=PartitionLeader(*place.key),
        )
        try:
            response: DescribeLogDirsResponse = await self.ask(ask)
        except CodedError:  # it takes a right of its own
            return 0
        return sum(
            one.size_bytes
            for result in response.results
            for topic in result.topics
            for one in topic.partitions
            if (topic.name, one.partition) == place.key
        )

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question."""
        return await retry(question, timeout_ms=self.retry_timeout_ms, setting="retry_timeout_ms")

    async def _offset(self, place: WindowPartition, target: int) -> int | None:
        (found,) = await self.ask(partial(offsets_at, self.cluster, *place.key, [target]))
        return found.offset
