"""Sends the rows of a Spark task to topics, and stores them once even if the task runs again.

The rows of each partition are cut into record batches by their sizes alone. The limits of a topic
can change, so they only decide in how many parts a batch is sent. A task that runs again with the
same rows therefore sends the same batches with the same sequence numbers, and the broker recognises
the batches that it has, however an earlier attempt divided them. Only the last batch of an attempt
can be shorter: if the code that makes the rows fails, Spark ends the rows of the task early,
without an error. The next attempt then sends the rest of that batch.

A broker recognises a batch by its sequence numbers, not by its content. If an attempt sent other
rows under numbers that an earlier attempt used, they would be lost silently; so batches that the
broker has already are read back and compared.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

from ..client.administer.searching import offsets_at
from ..client.cluster.retry import RETRIABLE, retry
from ..client.cluster.route import Route
from ..client.consume.consumer import Consumer
from ..client.produce.delivery import Delivery
from ..client.produce.set_limits import TOO_LARGE, SetLimits
from ..client.results import ConsumerRecord
from ..protocol.api.log.list_offsets import LATEST
from ..protocol.errors import DuplicateSequenceNumber, OffsetOutOfRange, OutOfOrderSequenceNumber
from ..protocol.partitioner import partition_of
from ..protocol.records.batch import Record, batch_records, finish_batch, read_header
from ..protocol.records.binary import BinaryColumn
from ..protocol.records.kernel import RecordEncoder
from ..protocol.records.kernel.terms import MOST_OVERHEAD, Headers
from ..protocol.records.layout import NO_PRODUCER_ID, SELF_CHOSEN, Buffer
from .connecting import cluster_of, consumer_at
from .options import BrokerOptions, Partitioner, WriteOptions

ANY_SIZE: Final = 2**31 - 1
"""Decompression limit, in bytes, for batches made here: no limit."""
_WAIT_MS: Final = 500

T = TypeVar("T")

_BATCH_BYTES: Final = 512 * 1024
"""Size limit of a batch; below the default of `max.message.bytes`, so that most topics accept a
batch in one part."""
_BUFFERED_BYTES: Final = 32 * 1024 * 1024


async def end_of(cluster: Route, topic: str, partition: int) -> int:
    """Return the log end: the offset that the partition's next message will get."""
    (end,) = await offsets_at(cluster, topic, partition, [LATEST])
    return end.offset or 0


class StoredBefore:
    """Reads stored batches back and compares them, one at a time, over one connection."""

    def __init__(self, broker: BrokerOptions) -> None:
        self._broker = broker
        self._consumer: Consumer | None = None
        self._reading = asyncio.Lock()

    async def check(self, topic: str, partition: int, base_offset: int, data: Buffer) -> None:
        """Raise DuplicateSequenceNumber if the log has other messages from `base_offset` on than
        the batch `data`. If the first message is no longer in the log, nothing is compared and the
        batch counts as equal."""
        sent = list(batch_records(data, max_decompressed_bytes=ANY_SIZE))
        async with self._reading:
            if self._consumer is None:
                self._consumer = consumer_at(self._broker)
            self._consumer.assign(topic, partition, offset=base_offset)
            try:
                await _compare(self._consumer, base_offset, sent)
            except OffsetOutOfRange:
                pass  # retention or a trim has removed the messages
            finally:
                self._consumer.unassign(topic, partition)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._consumer is not None:
            await self._consumer.close()


async def _compare(consumer: Consumer, base_offset: int, sent: list[Record]) -> None:
    while True:
        found = await consumer.fetch(max_wait_ms=_WAIT_MS)
        for record in found:
            number = record.offset - base_offset
            if number >= len(sent):
                return
            if not _same(record, sent[number]):
                raise DuplicateSequenceNumber(
                    f"{record.topic}-{record.partition} has another message at offset "
                    f"{record.offset} than the one that this task of this batch or job sends: an "
                    "earlier attempt wrote it. Where a stream began again with a checkpoint that "
                    "is older than what it wrote, begin with a new one, from the offsets that are "
                    "not written yet. Else a task that is run again must have the same rows in "
                    "the same order. idempotent=false writes them at least once"
                )
        if not found or found[-1].offset - base_offset == len(sent) - 1:
            return


def _same(stored: ConsumerRecord, sent: Record) -> bool:
    # Timestamps are not compared: rows without one get the time of the attempt.
    return (stored.key, stored.value, stored.headers) == (sent.key, sent.value, tuple(sent.headers))


@dataclass(slots=True)
class PartitionLane:
    """A partition that is written to; its batches are sent one after the other."""

    topic: str
    partition: int
    encoder: RecordEncoder
    sequence: int = 0
    end_before: int = 0
    """Log end before this attempt's first batch. A batch that the broker reports at a lower offset
    is of an earlier attempt."""
    stored: bool = False
    """Whether the broker has stored or recognised a batch of this attempt; then it has all batches
    before it."""
    refused: OutOfOrderSequenceNumber | None = None
    """Kafka's refusal of the last batch, if Kafka may have that batch already."""
    last: "asyncio.Task[None] | None" = None


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A record batch, ready to be sent."""

    data: bytearray
    plain_bytes: int
    """Size without compression."""
    rows: list[Record] | None = None
    """The rows of `data`, if they are known without decoding it."""

    @property
    def largest_bytes(self) -> int:
        """The larger of its sizes with and without compression: the topic may store either."""
        return max(self.plain_bytes, len(self.data))


class Storing:
    """Sends the batches of one task to the brokers."""

    def __init__(self, cluster: Route, options: WriteOptions, producer: int) -> None:
        self._cluster = cluster
        self._options = options
        self._producer = producer
        self._numbered = producer != NO_PRODUCER_ID
        self._delivery = Delivery(
            cluster,
            ack_timeout_ms=options.broker.request_timeout_ms,
            delivery_timeout_ms=options.broker.retry_budget_ms,
        )
        self._limits = SetLimits(cluster)
        self._before = StoredBefore(options.broker)

    async def close(self) -> None:
        """Close the connection that reads batches back, if there is one."""
        await self._before.close()

    async def retry(self, question: Callable[[], Awaitable[T]]) -> T:
        """Await `question`, and retry it after retriable errors, up to the retry budget."""
        return await retry(
            question,
            timeout_ms=self._options.broker.retry_budget_ms,
            setting="retryBudgetMs",
            retriable=RETRIABLE,
        )

    def packed(
        self, encoder: RecordEncoder, sequence: int, rows: list[Record] | None = None
    ) -> PackedBatch:
        """Return the encoder's rows as a batch; `sequence` is the number of the first row."""
        plain_bytes = encoder.size_bytes
        data = finish_batch(
            encoder,
            codec=self._options.codec,
            producer_id=self._producer,
            producer_epoch=0 if self._numbered else -1,
            base_sequence=sequence if self._numbered else -1,
        )
        return PackedBatch(data, plain_bytes, rows)

    async def store(self, lane: PartitionLane, batch: PackedBatch, *, first: bool) -> None:
        """Store a batch, or raise the error. `first` says that it is the first of its lane."""
        if first and self._numbered:
            lane.end_before = await self.retry(
                partial(end_of, self._cluster, lane.topic, lane.partition)
            )
        limit = self._limits.known(lane.topic)
        if limit is None:
            limit = await self.retry(partial(self._limits.of, lane.topic))
        header = read_header(batch.data)
        alone = header.record_count == 1
        if alone or batch.largest_bytes <= limit.set_bytes:
            try:
                await self._store_set(lane, batch.data)
            except TOO_LARGE:
                if alone:
                    raise
                refused = partial(self._limits.refused, lane.topic, len(batch.data))
                await self.retry(refused)
            else:
                return
        # Cut into halves, so that the parts are the same whether the limit was known or the broker
        # refused the batch.
        rows = batch.rows or _rows(batch.data)
        middle = len(rows) // 2
        for start, part in ((0, rows[:middle]), (middle, rows[middle:])):
            half = self._packed_rows(part, header.base_sequence + start)
            await self.store(lane, half, first=False)

    def _packed_rows(self, rows: list[Record], sequence: int) -> PackedBatch:
        encoder = RecordEncoder()
        for row in rows:
            encoder.add(row.value, row.key, row.timestamp_ms, row.headers)
        return self.packed(encoder, sequence, rows)

    async def _store_set(self, lane: PartitionLane, data: Buffer) -> None:
        refused = await self._refusal(lane, data)
        if refused is None:
            lane.stored = True
        elif not self._cluster.kafka:
            await self._send_rest(lane, data, refused)
        elif lane.stored:
            raise other_rows(lane, refused) from refused
        # Kafka remembers only its last five batches. It refuses an older one that it has with this
        # error too, so a later batch must be stored or recognised.
        lane.refused = refused if self._cluster.kafka else None

    async def _refusal(self, lane: PartitionLane, data: Buffer) -> OutOfOrderSequenceNumber | None:
        """Send a batch. Return None if the broker now has all of it, else its refusal."""
        since = asyncio.get_running_loop().time()
        try:
            appended = await self._delivery.until_answered(
                lane.topic, lane.partition, data, self._options.acks, since=since
            )
        except DuplicateSequenceNumber:
            return None  # an earlier attempt wrote it; the broker no longer knows at which offset
        except OutOfOrderSequenceNumber as error:
            return error
        if 0 <= appended.base_offset < lane.end_before:
            await self._before.check(lane.topic, lane.partition, appended.base_offset, data)
        return None

    async def _send_rest(
        self, lane: PartitionLane, data: Buffer, refused: OutOfOrderSequenceNumber
    ) -> None:
        """Send the rest of a batch of which the broker has the first rows. Probes by bisection find
        how many it has."""
        sequence = read_header(data).base_sequence
        rows = _rows(data)

        def packed(first: int, end: int) -> bytearray:
            return self._packed_rows(rows[first:end], sequence + first).data

        known, unknown = 0, len(rows)
        while unknown - known > 1:
            middle = (known + unknown) // 2
            # The broker recognises rows that end before the next expected number, and refuses
            # anything beyond that.
            if await self._refusal(lane, packed(0, middle)) is None:
                known = middle
            else:
                unknown = middle
        rest = await self._refusal(lane, packed(known, len(rows))) if known else refused
        if rest is not None:
            raise other_rows(lane, rest) from rest


def other_rows(lane: PartitionLane, error: OutOfOrderSequenceNumber) -> OutOfOrderSequenceNumber:
    """Return the error for a task that runs again with other rows."""
    return OutOfOrderSequenceNumber(
        f"{lane.topic}-{lane.partition} has rows of an earlier attempt of this task, which were "
        f"others, or at Kafka ended within a batch ({error.message}). A task that is run again "
        "must have the same rows in the same order: without a shuffle, with the same settings, and "
        "the same input for a jobId. idempotent=false writes them at least once"
    )


def _rows(data: Buffer) -> list[Record]:
    return list(batch_records(data, max_decompressed_bytes=ANY_SIZE))


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
