"""What is asked of a cluster about the partitions that a consumer reads, beside its fetches."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ...clock import Clock
from ...protocol.api.framing import ProtocolError
from ...protocol.api.log.list_offsets import EARLIEST
from ...protocol.lag import Lag
from ..administer.lagging import lags_at
from ..administer.searching import By, find_offset, offsets_at
from ..cluster.cluster import ClusterConnections
from ..cluster.retry import retry
from ..cluster.topic_metadata import partition_counts
from ..results import FindResult
from .assignment import Assignment
from .fetching import TopicPartition

T = TypeVar("T")


class AssignmentRequests:
    """The questions, which are asked again while the cluster is away."""

    def __init__(
        self,
        cluster: ClusterConnections,
        assigned: Assignment,
        clock: Clock,
        *,
        retry_timeout_ms: int,
    ) -> None:
        # A broker answers in order, so a question must not stand behind a fetch that waits.
        self.cluster = cluster.beside()
        self._assigned = assigned
        self._clock = clock
        self._retry_timeout_ms = retry_timeout_ms
        self._metadata_asked: float | None = None
        """When the partitions of whole topics were last asked for, on the monotonic clock."""

    async def close(self) -> None:
        """Close the connections."""
        await self.cluster.close()

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question."""
        return await retry(question, timeout_ms=self._retry_timeout_ms, setting="retry_timeout_ms")

    async def find_partitions(self, *, max_age_s: float = 0.0) -> None:
        """Ask which partitions whole topics have, unless that was done so lately."""
        topics = self._assigned.whole_topics
        asked, now = self._metadata_asked, self._clock.monotonic()
        lately = asked is not None and now - asked < max_age_s
        if not topics or (lately and self._assigned.complete):
            return
        counts = await self.ask(partial(partition_counts, self.cluster, topics))
        self._metadata_asked = now
        for topic in self._assigned.note_counts(counts):
            self.cluster.forget(topic)  # also which broker of a cluster leads which partition

    async def find_beginnings(self) -> None:
        """Have each partition that has no position begin at its first message stored."""
        for assigned in self._assigned.all():
            if assigned.position is None:
                offset = await self._offset(assigned.key, EARLIEST)
                if assigned.position is None:
                    assigned.position = offset

    async def offsets(self, sentinel: int) -> dict[TopicPartition, int]:
        """Where each partition begins or ends, as the sentinel says."""
        await self.find_partitions()
        return {
            assigned.key: await self._offset(assigned.key, sentinel)
            for assigned in self._assigned.all()
        }

    async def search(self, target_ms: int, by: By) -> dict[TopicPartition, FindResult]:
        """What is found in each partition of that time or later."""
        await self.find_partitions()
        return {
            assigned.key: await self.ask(
                partial(find_offset, self.cluster, *assigned.key, target_ms, by=by)
            )
            for assigned in self._assigned.all()
        }

    async def lags(self) -> dict[TopicPartition, Lag]:
        """How far each position is behind the end of its partition. Raises what the broker reports
        of a partition."""
        await self.find_partitions()
        await self.find_beginnings()
        offsets = {assigned.key: assigned.position or 0 for assigned in self._assigned}
        lags: dict[TopicPartition, Lag] = {}
        ask = partial(lags_at, self.cluster, offsets, now_ms=self._clock.now_ms())
        for found in await self.ask(ask):
            if found.error is not None or found.lag is None:
                raise found.error or ProtocolError(f"no lag of {found.topic}-{found.partition}")
            key = (found.topic, found.partition)
            assigned = self._assigned.get(key)
            if assigned is not None:
                catch_up = assigned.catch_up_seconds(self._clock.monotonic(), found.lag.messages)
                lags[key] = replace(found.lag, catch_up_seconds=catch_up)
        return lags

    async def _offset(self, key: TopicPartition, sentinel: int) -> int:
        found = await self.ask(partial(offsets_at, self.cluster, *key, [sentinel]))
        return found[0].offset or 0
