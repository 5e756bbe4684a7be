"""The fetches for the partitions that a consumer reads, one after another."""

import asyncio
from contextlib import suppress
from functools import partial

from ...clock import Clock
from ...protocol.api.log.fetch import FetchPartitionResult
from ...protocol.records.kernel import Walk
from ..cluster.cluster import ClusterConnections
from .assigned import Assigned
from .assignment import Assignment
from .assignment_requests import AssignmentRequests
from .fetch_sources import fetches_of
from .fetches import Results
from .fetching import FetchOptions, entries_of, next_offset

Fetched = tuple[Assigned, int, FetchPartitionResult, Walk]
"""What a fetch brought of a partition: from which offset on, the result, and its entries."""


class AssignmentFetches:
    """Fetches each partition from its position on, and ahead of it where more is there."""

    def __init__(
        self,
        cluster: ClusterConnections,
        options: FetchOptions,
        assigned: Assignment,
        requests: AssignmentRequests,
        clock: Clock,
        *,
        metadata_max_age_ms: int,
    ) -> None:
        """Partitions that are added to whole topics are found within `metadata_max_age_ms`. Raises
        UnsupportedVersion for what Kafka has not."""
        self._assigned = assigned
        self._requests = requests
        self._clock = clock
        self._metadata_max_age_s = metadata_max_age_ms / 1000
        self._fetches = fetches_of(cluster, options, self._note_ends)
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """Wait for nothing any more."""
        self._fetches.stop()

    def look_again(self) -> None:
        """There may be more to read than before."""
        self._changed.set()

    async def fetch(self, max_wait_ms: int) -> list[Fetched]:
        """The answer to one fetch, for the partitions that are still where they were."""
        await self._requests.find_partitions(max_age_s=self._metadata_max_age_s)
        await self._requests.find_beginnings()
        self._changed.clear()
        asked = self._assigned.wanted()
        if not asked:
            await self._wait_for_a_change(max_wait_ms)
            return []
        results = await self._requests.ask(partial(self._fetches.fetch, asked, max_wait_ms))
        found = []
        for key, result in results.items():
            offset, assigned = asked[key], self._assigned.get(key)
            # What was moved or dropped meanwhile is read again from where it is now.
            if assigned is not None and assigned.position == offset and not assigned.paused:
                found.append((assigned, offset, result, entries_of(result)))
        self._assigned.take_turns()
        self._fetch_ahead(found)
        return found

    def _fetch_ahead(self, found: list[Fetched]) -> None:
        """Ask for what is behind these messages, if it is there already."""
        nexts, more = self._assigned.wanted(), False
        for assigned, offset, result, entries in found:
            behind = nexts[assigned.key] = next_offset(result, offset, entries)
            more = more or offset < behind < result.high_watermark
        if more:
            self._fetches.ahead(nexts)

    def _note_ends(self, results: Results) -> None:
        now = self._clock.monotonic()
        for key, result in results.items():
            assigned = self._assigned.get(key)
            if assigned is not None:
                assigned.note_end(now, result.high_watermark)

    async def _wait_for_a_change(self, max_wait_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max_wait_ms / 1000):
                await self._changed.wait()
