"""What a consumer asks for messages."""

from collections.abc import Callable
from typing import Protocol

from ...protocol.api.log.fetch import FetchPartitionResult
from .fetching import TopicPartition

Offsets = dict[TopicPartition, int]
"""Where to read on."""

Results = dict[TopicPartition, FetchPartitionResult]

Arrived = Callable[[Results], None]
"""Called with every answer when it comes, used or not."""


class Fetches(Protocol):
    """The broker or brokers, as far as fetches go."""

    async def fetch(self, offsets: Offsets, max_wait_ms: int) -> Results:
        """What there is from these offsets on, of some of the partitions or all. Raises what a
        broker reports of a partition."""
        ...

    def ahead(self, offsets: Offsets) -> None:
        """Begin to fetch from these offsets on, where there is more."""
        ...

    def stop(self) -> None:
        """Wait for nothing any more."""
        ...
