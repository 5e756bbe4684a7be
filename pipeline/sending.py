"""Rows on their way into topics.

The rows of each partition are cut into record batches by their sizes alone. So a task that is run
again with the same rows sends the same batches with the same numbers, and the broker knows those
that it has. The last one can be shorter than it would have been: when what makes the rows fails, a
task comes to its end behind some of them, without a word. Of that batch the next attempt sends the
rest.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from typing import Final, NamedTuple
from zlib import crc32

from ..client.client import cluster_at
from ..client.delivery import Delivery
from ..client.patience import PASSING, patiently
from ..protocol.errors import DuplicateSequenceNumber, OutOfOrderSequenceNumber
from ..protocol.partitioner import partition_of
from ..protocol.records.batch import batch_records, finish_batch, read_header
from ..protocol.records.binary import BinaryColumn
from ..protocol.records.layout import NO_PRODUCER_ID, SELF_CHOSEN, Buffer
from ..protocol.records.record_packing import MOST_OVERHEAD, Headers, RecordEncoder
from .stored_before import ANY_SIZE, StoredBefore, end_of
from .write_options import Partitioner, WriteOptions

_BATCH_BYTES: Final = 512 * 1024
"""Below the default of `max.message.bytes`, which a batch may not exceed."""
_BUFFERED_BYTES: Final = 32 * 1024 * 1024

NOBODY: Final = NO_PRODUCER_ID
"""For writes that may come twice."""


class Row(NamedTuple):
    """A message to be written."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


RowTuple = tuple[str, int | None, bytes | None, bytes | None, int, Headers]
"""A row that has not been made a `Row`, which takes as long as to encode it."""


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """Messages of one topic without partitions and headers of their own, as columns of one
    length."""

    topic: str
    values: BinaryColumn
    keys: BinaryColumn | None
    times_ms: memoryview
    """int64."""

    def __len__(self) -> int:
        return len(self.times_ms)

    def __iter__(self) -> Iterator[RowTuple]:
        keys = repeat(None, len(self)) if self.keys is None else self.keys.contents()
        for key, value, time_ms in zip(keys, self.values.contents(), self.times_ms, strict=True):
            yield self.topic, None, key, value, time_ms, ()


def producer_id(writer: str, task: int, batch: int = 0) -> int:
    """The same for every attempt of a task, and different from every other one's.

    `writer` is a query or a job. The broker recognises by it what an attempt has sent.
    """
    digest = hashlib.sha256(f"{writer}/{task}/{batch}".encode()).digest()
    return SELF_CHOSEN | int.from_bytes(digest[:8]) & (SELF_CHOSEN - 1)


@dataclass(slots=True)
class _Lane:
    """A partition that is written to; its batches go one at a time."""

    topic: str
    partition: int
    encoder: RecordEncoder
    sequence: int = 0
    end_before: int = 0
    """Where the log ended when this attempt came to it: what is said to be stored before that is
    an earlier attempt's."""
    stored: bool = False
    """Whether the broker took a batch, or knew it: it knows all that come before then."""
    refused: OutOfOrderSequenceNumber | None = None
    """How it answered the last one, if it may have that already."""
    last: "asyncio.Task[None] | None" = None


class Sending:
    """One task's writes. Use `send`, once."""

    def __init__(self, options: WriteOptions, producer: int, task: int) -> None:
        self._options = options
        self._producer = producer
        self._numbered = producer != NOBODY
        self._turn = task
        """The partition of rows without a key, and without one of their own; the next batch of
        them goes to the next one."""
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._counts: dict[str, int] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._buffered = 0

    async def send(self, batches: Iterable[Iterator[RowTuple] | ColumnRows]) -> int:
        """Send all rows, `Row`s or tuples like them; says how many. They are written on return.

        Raises what the broker reports, ConnectionFailed and RequestTimedOut.
        """
        broker = self._options.broker
        self._cluster = cluster_at(
            broker.address,
            client_id="horolog-spark",
            request_timeout_ms=broker.request_timeout_ms,
        )
        self._delivery = Delivery(
            self._cluster,
            ack_timeout_ms=broker.request_timeout_ms,
            delivery_timeout_ms=broker.retry_budget_ms,
        )
        self._before = StoredBefore(broker)
        rows = 0
        try:
            for batch in batches:
                rows += await self._add(batch)
                if self._cluster.kafka and self._numbered:
                    # Nobody can ask Kafka which part of a batch it has. Most early ends are where
                    # a batch of Spark's ends.
                    self._cut_all()
                await self._make_room(_BUFFERED_BYTES)
            self._cut_all()
            await self._make_room(0)
            for lane in self._lanes.values():
                if lane.refused is not None:
                    raise _other_rows(lane, lane.refused)
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)
            await self._before.close()
            await self._cluster.close()
        return rows

    async def _add(self, batch: Iterator[RowTuple] | ColumnRows) -> int:
        if isinstance(batch, ColumnRows) and await self._go_by_turns(batch):
            return await self._add_columns(batch)
        count = 0
        lane: _Lane | None = None
        # Looked up again only where it can be another one: most rows follow one of their own lane.
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
        # What is under way gets on while the next rows are made.
        await asyncio.sleep(0)
        return count

    async def _go_by_turns(self, rows: ColumnRows) -> bool:
        """Whether rows go to the partition whose turn it is, whatever their keys."""
        if rows.keys is None or self._options.partitioner is Partitioner.NONE:
            return True
        return (self._counts.get(rows.topic) or await self._partitions(rows.topic)) == 1

    async def _add_columns(self, rows: ColumnRows) -> int:
        """As `_add` for such rows, with the same cuts."""
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
        # What is under way gets on while the next rows are made.
        await asyncio.sleep(0)
        return len(rows)

    async def _lane(self, topic: str, partition: int | None, key: bytes | None) -> _Lane:
        """The one that a row goes to."""
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
            lane = self._lanes[topic, partition] = _Lane(topic, partition, RecordEncoder())
        return lane

    async def _partitions(self, topic: str) -> int:
        self._counts[topic] = count = await self._patiently(
            partial(self._cluster.partition_count, topic)
        )
        return count

    async def _patiently(self, question: Callable[[], Awaitable[int]]) -> int:
        return await patiently(
            question,
            timeout_ms=self._options.broker.retry_budget_ms,
            setting="retryBudgetMs",
            passing=PASSING,
        )

    def _cut_all(self) -> None:
        for lane in self._lanes.values():
            self._cut(lane)

    def _cut(self, lane: _Lane) -> None:
        """Send what the lane's encoder holds."""
        count = lane.encoder.count
        if not count:
            return
        data = self._finished(lane.encoder, lane.sequence)
        lane.sequence += count
        lane.last = asyncio.ensure_future(self._deliver(lane, data, lane.last))
        self._buffered += len(data)
        self._under_way.add(lane.last)

    def _finished(self, encoder: RecordEncoder, sequence: int) -> bytearray:
        return finish_batch(
            encoder,
            codec=self._options.codec,
            producer_id=self._producer,
            producer_epoch=0 if self._numbered else -1,
            base_sequence=sequence if self._numbered else -1,
        )

    async def _deliver(
        self, lane: _Lane, data: Buffer, before: "asyncio.Task[None] | None"
    ) -> None:
        if before is not None:
            await before
        elif self._numbered:
            lane.end_before = await self._patiently(
                partial(end_of, self._cluster, lane.topic, lane.partition)
            )
        refused = await self._refusal(lane, data)
        if refused is None:
            lane.stored = True
        elif not self._cluster.kafka:
            await self._send_rest(lane, data, refused)
        elif lane.stored:
            raise _other_rows(lane, refused) from refused
        # So Kafka answers a batch that it has, but for the last five, which it remembers: one that
        # it takes, or knows, has to follow.
        lane.refused = refused if self._cluster.kafka else None
        self._buffered -= len(data)

    async def _refusal(self, lane: _Lane, data: Buffer) -> OutOfOrderSequenceNumber | None:
        """Send a batch; None when the broker has all of it then."""
        since = asyncio.get_running_loop().time()
        try:
            appended = await self._delivery.until_answered(
                lane.topic, lane.partition, data, self._options.acks, since=since
            )
        except DuplicateSequenceNumber:
            return None  # an earlier attempt wrote it; where, the broker does not know any more
        except OutOfOrderSequenceNumber as error:
            return error
        if 0 <= appended.base_offset < lane.end_before:
            await self._before.check(lane.topic, lane.partition, appended.base_offset, data)
        return None

    async def _send_rest(
        self, lane: _Lane, data: Buffer, refused: OutOfOrderSequenceNumber
    ) -> None:
        """Send the rows of a batch that are behind those that the broker has of it."""
        sequence = read_header(data).base_sequence
        rows = list(batch_records(data, max_decompressed_bytes=ANY_SIZE))

        def packed(first: int, end: int) -> bytearray:
            encoder = RecordEncoder()
            for row in rows[first:end]:
                encoder.add(row.value, row.key, row.timestamp_ms, row.headers)
            return self._finished(encoder, sequence + first)

        known, unknown = 0, len(rows)
        while unknown - known > 1:
            middle = (known + unknown) // 2
            # It knows what ends before the number that is due, and takes nothing else of it.
            if await self._refusal(lane, packed(0, middle)) is None:
                known = middle
            else:
                unknown = middle
        rest = await self._refusal(lane, packed(known, len(rows))) if known else refused
        if rest is not None:
            raise _other_rows(lane, rest) from rest

    async def _make_room(self, most_bytes: int) -> None:
        """Wait until at most so much is under way. Raises what went wrong."""
        while self._under_way and (self._buffered > most_bytes or not most_bytes):
            done, self._under_way = await asyncio.wait(
                self._under_way, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        for task in [task for task in self._under_way if task.done()]:
            self._under_way.discard(task)
            task.result()


def _other_rows(lane: _Lane, error: OutOfOrderSequenceNumber) -> OutOfOrderSequenceNumber:
    return OutOfOrderSequenceNumber(
        f"{lane.topic}-{lane.partition} has rows of an earlier attempt of this task, which were "
        f"others, or at Kafka ended within a batch ({error.message}). A task that is run again "
        "must have the same rows in the same order: without a shuffle, with the same settings, and "
        "the same input for a jobId. idempotent=false writes them at least once"
    )


def _headers_bytes(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return sum(len(key) * 4 + len(value or b"") + 10 for key, value in headers)


@lru_cache(maxsize=100_000)
def _hashed(key: bytes, partitions: int) -> int:
    return partition_of(key, partitions)
