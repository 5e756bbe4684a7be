"""Sends the rows of a Spark task to topics.

The rows of each partition are cut into record batches by their sizes alone. The limits of a topic
can change, so they only decide in how many parts a batch is sent. A task that runs again with the
same rows therefore sends the same batches with the same sequence numbers, and the broker recognises
the batches that it has. Only the last batch of an attempt can be shorter: if the code that makes
the rows fails, Spark ends the rows of the task early, without an error. The next attempt then sends
the rest of that batch.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from typing import Final, NamedTuple
from zlib import crc32

from ..protocol.partitioner import partition_of
from ..protocol.records.binary import BinaryColumn
from ..protocol.records.kernel import RecordEncoder
from ..protocol.records.kernel.terms import MOST_OVERHEAD, Headers
from ..protocol.records.layout import NO_PRODUCER_ID, SELF_CHOSEN
from .connecting import cluster_of
from .options import Partitioner, WriteOptions
from .storing import PackedBatch, PartitionLane, Storing, other_rows

_BATCH_BYTES: Final = 512 * 1024
"""Size limit of a batch; below the default of `max.message.bytes`, so that most topics accept a
batch in one part."""
_BUFFERED_BYTES: Final = 32 * 1024 * 1024


class Row(NamedTuple):
    """A message to write."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


RowTuple = tuple[str, int | None, bytes | None, bytes | None, int, Headers]
"""The fields of a `Row` as a plain tuple: to make a `Row` takes as long as to encode it."""


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """Messages of one topic as columns of equal length; they have no partitions and no headers."""

    topic: str
    values: BinaryColumn
    keys: BinaryColumn | None
    times_ms: memoryview
    """Create times in epoch milliseconds, int64."""

    def __len__(self) -> int:
        return len(self.times_ms)

    def __iter__(self) -> Iterator[RowTuple]:
        keys = repeat(None, len(self)) if self.keys is None else self.keys.contents()
        for key, value, time_ms in zip(keys, self.values.contents(), self.times_ms, strict=True):
            yield self.topic, None, key, value, time_ms, ()


def producer_id(writer: str, task: int, batch: int = 0) -> int:
    """Return a producer id that is the same for every attempt of a task, and different for every
    other task.

    `writer` names a query or a job. By this id the broker recognises the batches of an earlier
    attempt.
    """
    digest = hashlib.sha256(f"{writer}/{task}/{batch}".encode()).digest()
    return SELF_CHOSEN | int.from_bytes(digest[:8]) & (SELF_CHOSEN - 1)


class Sending:
    """Writes the rows of one task. Call `send` once."""

    def __init__(self, options: WriteOptions, producer: int, task: int) -> None:
        self._options = options
        self._producer = producer
        self._numbered = producer != NO_PRODUCER_ID
        self._turn = task
        """Number of the partition, modulo their count, for rows with neither a key nor a given
        partition. It grows after each batch, so that partitions get such batches in turn."""
        self._lanes: dict[tuple[str, int], PartitionLane] = {}
        self._counts: dict[str, int] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._buffered = 0

    async def send(self, batches: Iterable[Iterator[RowTuple] | ColumnRows]) -> int:
        """Send all rows and return their number. On return all rows are written.

        Raises the broker's errors, ConnectionFailed and RequestTimedOut.
        """
        self._cluster = cluster_of(self._options.broker)
        self._storing = Storing(self._cluster, self._options, self._producer)
        rows = 0
        try:
            for batch in batches:
                rows += await self._add(batch)
                if self._cluster.kafka and self._numbered:
                    # Kafka does not tell which part of a batch it has. Rows that end early mostly
                    # end with one of Spark's batches, so ours end there too.
                    self._cut_all()
                await self._make_room(_BUFFERED_BYTES)
            self._cut_all()
            await self._make_room(0)
            for lane in self._lanes.values():
                if lane.refused is not None:
                    raise other_rows(lane, lane.refused)
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)
            await self._storing.close()
            await self._cluster.close()
        return rows

    async def _add(self, batch: Iterator[RowTuple] | ColumnRows) -> int:
        if isinstance(batch, ColumnRows) and await self._go_by_turns(batch):
            return await self._add_columns(batch)
        count = 0
        lane: PartitionLane | None = None
        # The lane is looked up again only if it can differ: most rows go to that of the last row.
        lane_topic, lane_turn = "", -1
        by_key = self._options.partitioner is not Partitioner.NONE
        for topic, partition, key, value, time_ms, headers in batch:
            by_turn = partition is None and (key is None or not by_key)
            if lane is None or not by_turn or lane_turn != self._turn or lane_topic != topic:
                lane = await self._lane(topic, partition, key)
                lane_topic, lane_turn = topic, self._turn if by_turn else -1
                encoder = lane.encoder
            size = MOST_OVERHEAD + (len(value) if value else 0) + (len(key) if key else 0)
            if headers:
                size += _headers_bytes(headers)
            while encoder.size_bytes + size > _BATCH_BYTES and encoder.count:
                self._cut(lane)
                await self._make_room(_BUFFERED_BYTES)
                if by_turn:
                    self._turn += 1
                    lane, lane_turn = await self._lane(topic, partition, key), self._turn
                    encoder = lane.encoder
            encoder.add(value, key, time_ms, headers)
            count += 1
        # Lets requests in flight go on while Spark makes the next rows.
        await asyncio.sleep(0)
        return count

    async def _go_by_turns(self, rows: ColumnRows) -> bool:
        """Whether keys do not matter for these rows, so that partitions get them in turn."""
        if rows.keys is None or self._options.partitioner is Partitioner.NONE:
            return True
        return (self._counts.get(rows.topic) or await self._partitions(rows.topic)) == 1

    async def _add_columns(self, rows: ColumnRows) -> int:
        """Like `_add`, for columns of rows whose keys do not matter; batches are cut alike."""
        start = 0
        while start < len(rows):
            lane = await self._lane(rows.topic, None, None)
            start = lane.encoder.add_binary(
                rows.values, rows.keys, rows.times_ms, start=start, limit_bytes=_BATCH_BYTES
            )
            if start < len(rows):
                self._cut(lane)
                self._turn += 1
                await self._make_room(_BUFFERED_BYTES)
        # Lets requests in flight go on while Spark makes the next rows.
        await asyncio.sleep(0)
        return len(rows)

    async def _lane(self, topic: str, partition: int | None, key: bytes | None) -> PartitionLane:
        """Return the sending lane (one per partition) for a row."""
        partitions = self._counts.get(topic) or await self._partitions(topic)
        if partition is None:
            chosen = self._options.partitioner
            if key is None or chosen is Partitioner.NONE:
                partition = self._turn % partitions
            elif chosen is Partitioner.CRC32:
                partition = crc32(key) % partitions
            else:
                partition = _hashed(key, partitions)
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = PartitionLane(topic, partition, RecordEncoder())
        return lane

    async def _partitions(self, topic: str) -> int:
        self._counts[topic] = count = await self._storing.retry(
            partial(self._cluster.partition_count, topic)
        )
        return count

    def _cut_all(self) -> None:
        for lane in self._lanes.values():
            self._cut(lane)

    def _cut(self, lane: PartitionLane) -> None:
        """Begin to send the rows in the lane's encoder as a batch; do nothing if it is empty."""
        count = lane.encoder.count
        if not count:
            return
        batch = self._storing.packed(lane.encoder, lane.sequence)
        lane.sequence += count
        lane.last = asyncio.ensure_future(self._store(lane, batch, lane.last))
        self._buffered += len(batch.data)
        self._under_way.add(lane.last)

    async def _store(
        self, lane: PartitionLane, batch: PackedBatch, before: "asyncio.Task[None] | None"
    ) -> None:
        if before is not None:
            await before
        await self._storing.store(lane, batch, first=before is None)
        self._buffered -= len(batch.data)

    async def _make_room(self, most_bytes: int) -> None:
        """Wait until at most `most_bytes` of batches are in flight. Raises errors of sending."""
        while self._under_way and (self._buffered > most_bytes or not most_bytes):
            done, self._under_way = await asyncio.wait(
                self._under_way, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        for task in [task for task in self._under_way if task.done()]:
            self._under_way.discard(task)
            task.result()


def _headers_bytes(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return sum(len(key) * 4 + len(value or b"") + 10 for key, value in headers)


@lru_cache(maxsize=100_000)
def _hashed(key: bytes, partitions: int) -> int:
    return partition_of(key, partitions)
