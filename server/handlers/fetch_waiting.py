"""How long a fetch waits: until there are enough bytes, an error, or nothing left to wait for."""

from collections.abc import Iterator

from ...protocol.api.log.fetch import READ_COMMITTED, FetchPartition, FetchRequest
from ...protocol.errors import HorologError, OffsetOutOfRange
from ..parking import Partition
from .base import Services
from .epochs import check_epoch


class Waiting:
    """How many of the bytes that a fetch waits for there are. Of its partitions only those that
    moved are looked at again."""

    def __init__(self, services: Services, request: FetchRequest) -> None:
        self._services = services
        self._min_bytes = request.min_bytes
        self._committed = request.isolation_level == READ_COMMITTED
        self._wanted: dict[Partition, FetchPartition] = {}
        self._available: dict[Partition, int] = {}
        self._total = 0
        for topic in request.topics:
            for partition in topic.partitions:
                self._wanted[topic.name, partition.partition] = partition
        self.over = not self._wanted
        """Whether to answer: there is enough, there is an error, or waiting cannot help."""
        for key in self._wanted:
            self.satisfied(key)
            if self.over:
                break

    def partitions(self) -> Iterator[Partition]:
        return iter(self._wanted)

    def satisfied(self, key: Partition) -> bool:
        """Look at one partition again; True when the fetch is to be answered."""
        wanted = self._wanted[key]
        try:
            check_epoch(self._services, wanted.current_leader_epoch)
            log = self._services.logs.find(*key)
            if log.follows and wanted.fetch_offset > log.log_end_offset:
                return self.over  # The offset may come from the leader.
            if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
                raise OffsetOutOfRange
            readable = log.reader.readable_bytes(wanted.fetch_offset, committed=self._committed)
        except (HorologError, OSError):
            self.over = True  # Reading raises the same, which becomes the partition's error.
            return True
        available = min(readable, max(wanted.partition_max_bytes, 0))
        self._total += available - self._available.get(key, 0)
        self._available[key] = available
        # A read never spans segments, so no append adds to a read of a closed one.
        closed = readable > 0 and wanted.fetch_offset < log.segments[-1].base_offset
        self.over = self.over or closed or self._total >= self._min_bytes
        return self.over
