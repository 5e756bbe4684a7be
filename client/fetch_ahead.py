"""The next fetch, which is under way while an application works on the messages of the last one.

Only what is there already is asked for, so that it never keeps a later question waiting; and what
comes is only used by who would ask the same then. So it changes nothing but the time it takes.
"""

import asyncio
from collections.abc import Callable

from ..protocol.api.fetch import FETCH, FetchResponse
from ..protocol.errors import NO_ERROR
from .cluster import Cluster
from .fetching import FetchOptions, TopicPartition

Offsets = dict[TopicPartition, int]


class FetchAhead:
    """At most one fetch of a consumer, asked for before its time."""

    def __init__(
        self,
        cluster: Cluster,
        options: FetchOptions,
        arrived: Callable[[FetchResponse], None],
    ) -> None:
        """`arrived` is told of every answer when it comes, used or not."""
        self._cluster = cluster
        self._options = options
        self._arrived = arrived
        self._asked: Offsets = {}
        self._answer: asyncio.Future[FetchResponse] | None = None

    def ask(self, offsets: Offsets) -> None:
        """Fetch from these offsets on, if there is a connection that takes it now."""
        request = self._options.request(offsets, 0)
        self._asked = offsets
        self._answer = self._cluster.submit_if_ready(FETCH, request)
        if self._answer is not None:
            self._answer.add_done_callback(self._look)

    async def take(self, offsets: Offsets) -> FetchResponse | None:
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
            self._arrived(answer.result())

    def _is_enough(self, response: FetchResponse) -> bool:
        """Whether a fetch that waits would have ended with this too. Errors may be over by now."""
        results = [result for topic in response.topics for result in topic.partitions]
        size_bytes = sum(len(result.records or b"") for result in results)
        return size_bytes >= max(self._options.min_bytes, 1) and all(
            result.error_code == NO_ERROR for result in results
        )
