"""Fetches from a Horolog broker. The next one is under way while an application works on the
messages of the last one.

Only what is there already is asked for ahead, so that it never keeps a later question waiting; and
what comes is only used by who would ask the same then. So it changes nothing but the time it takes.
"""

import asyncio

from ...protocol.api.log.fetch import FETCH, FetchResponse
from ...protocol.errors import NO_ERROR
from ..cluster.one_broker import OneBroker
from ..responses import partition_result
from .fetches import Arrived, Offsets, Results
from .fetching import FetchOptions


class OneBrokerFetches:
    """The fetches of a consumer, one at a time, and at most one more asked for before its time."""

    def __init__(
        self,
        cluster: OneBroker,
        options: FetchOptions,
        arrived: Arrived,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._arrived = arrived
        self._asked: Offsets = {}
        self._answer: asyncio.Future[FetchResponse] | None = None

    async def fetch(self, offsets: Offsets, max_wait_ms: int) -> Results:
        """What there is from these offsets on. Raises what the broker reports of a partition."""
        response = await self._take(offsets)
        if response is None:
            request = self._options.request(offsets, max_wait_ms)
            response = await self._cluster.request_or_drop(FETCH, request, wait_ms=max_wait_ms)
            self._arrived(_results(response))
        return {key: partition_result(response.topics, *key) for key in offsets}

    def ahead(self, offsets: Offsets) -> None:
        """Fetch from these offsets on, if there is a connection that takes it now."""
        request = self._options.request(offsets, 0)
        self._asked = offsets
        self._answer = self._cluster.submit_if_ready(FETCH, request)
        if self._answer is not None:
            self._answer.add_done_callback(self._look)

    def stop(self) -> None:
        """Nothing to do: what is under way ends with the connection."""

    async def _take(self, offsets: Offsets) -> FetchResponse | None:
        """The answer, if this is what was asked for. None: it is to be asked for now."""
        answer = self._answer
        if answer is not None and self._asked == offsets:
            await asyncio.wait((answer,))
        self._answer = None
        if answer is None or self._asked != offsets or answer.exception() is not None:
            return None
        response = answer.result()
        return response if self._is_enough(response) else None

    def _look(self, answer: "asyncio.Future[FetchResponse]") -> None:
        if answer.exception() is None:
            self._arrived(_results(answer.result()))

    def _is_enough(self, response: FetchResponse) -> bool:
        """Whether a fetch that waits would have ended with this too. Errors may be over by now."""
        results = [result for topic in response.topics for result in topic.partitions]
        if any(result.error_code != NO_ERROR for result in results):
            return False
        if self._options.window is not None:
            passed = (
                result.next_offset > self._asked.get((topic.name, result.partition), 0)
                for topic in response.topics
                for result in topic.partitions
            )
            if any(passed):
                return True  # what holds nothing of the window was passed over
        size_bytes = sum(len(result.records or b"") for result in results)
        return size_bytes >= max(self._options.min_bytes, 1)


def _results(response: FetchResponse) -> Results:
    return {
        (topic.name, result.partition): result
        for topic in response.topics
        for result in topic.partitions
    }
