"""The producer: appends messages to topics."""

import asyncio
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Final, Literal, Self

from ...clock import Clock, SystemClock
from ...protocol.partitioner import partition_of
from ...protocol.records.layout import NO_TIMESTAMP, Codec
from ...protocol.records.messages.sets import NewRecord
from ..arguments import PARTITION_MAX, check_partition, check_place, check_topic, epoch_ms
from ..client import DEFAULT_ADDRESS, Client
from ..cluster.servers import Servers
from ..errors import ClientClosed
from ..results import SentBatch, SentRecord
from ..security.security import Security
from .batch_delivery import BatchDelivery, Identities
from .batching import (
    MessageColumns,
    Times,
    by_partition,
    checked_columns,
    largest_run_bytes,
    message_bytes,
)
from .delivery import Delivery
from .encoding import Headers, checked_headers
from .failed_sends import FailedSends
from .group_sending import send_in_turn, send_parts, sent_records, set_of
from .outbox import ByteBudget, Outbox
from .set_limits import SetLimits

Acks = Literal["all", -1, 0, 1]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_ACKS: Final[dict[str | int, int]] = {"all": -1, -1: -1, 0: 0, 1: 1}
_CODECS: Final = {codec.label: codec for codec in Codec}

ALL: Final = _ACKS["all"]

_MIB: Final = 1024 * 1024

_log: Final = logging.getLogger("horolog")


class Producer(Client):
    """Appends messages to topics.

    Messages wait in a buffer of bounded size and are sent in sets. A partition sends one set at a
    time, so the order is kept when a set must be sent again. A set without an answer is sent again
    until `delivery_timeout_ms` after its first message was added. If only the answer was lost, the
    set is then in the log twice, unless the producer is idempotent. An error other than
    ConnectionFailed, RequestTimedOut, NotEnoughReplicasAfterAppend and ClientClosed means that the
    message was not appended.
    """

    def __init__(
        self,
        address: str | Servers = DEFAULT_ADDRESS,
        *,
        acks: Acks = "all",
        compression: Compression = "none",
        linger_ms: float = 0,
        batch_bytes: int = _MIB,
        buffer_bytes: int = 32 * _MIB,
        delivery_timeout_ms: int = 120_000,
        idempotent: bool | None = None,
        client_id: str | None = "horolog",
        request_timeout_ms: int = 30_000,
        check_units: bool = True,
        security: Security | None = None,
        stamp_missing: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """`acks`: "all" waits until messages are as durable as the topic requires, 1 until they are
        in the leader's log. With 0 the broker does not answer, and an error goes unnoticed.

        A set holds up to `batch_bytes` before compression, and never more than the topic allows. A
        set waits `linger_ms` for more messages, and for the answer to the previous set; when many
        callers get results at once, it also waits for their next messages. `buffer_bytes` bounds
        the unanswered messages; when the buffer is full, `send`, `enqueue` and `send_batch` wait.
        A single message that is larger than the buffer is refused with ValueError.

        `delivery_timeout_ms` includes the search for the leader; `delivery_timeout_ms=0` sends
        every set only once. `stamp_missing=False` sends messages for which no time is given without
        a time. `idempotent` numbers the sets, so that the broker stores a set that is sent again
        only once. By default a producer with `acks="all"` is idempotent wherever the broker, the
        topic's format and the user's rights allow it; with True it fails elsewhere.
        """
        super().__init__(
            address,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            check_units=check_units,
            security=security,
        )
        _check_sizes(linger_ms, batch_bytes, buffer_bytes, delivery_timeout_ms)
        self._acks = acks_of(acks)
        self._codec = codec_of(compression)
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._known_count = self._cluster.known_partition_count
        self._missing_ms = (clock or SystemClock()).now_ms if stamp_missing else _no_time
        """Returns the time of a message for which none is given."""
        self._budget = ByteBudget(buffer_bytes)
        self._way = Delivery(
            self._cluster,
            ack_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
        )
        self._delivery = self._batch_delivery(idempotent)
        self._outboxes: dict[tuple[str, int], Outbox] = {}
        self._failed = FailedSends()
        self._turn = -1
        self._closing = False
        self._closed = False

    def _batch_delivery(self, idempotent: bool | None) -> BatchDelivery:
        if idempotent and self._acks != ALL:
            raise ValueError(
                f"idempotent=True needs acks='all', not acks={self._acks}: leave out one of them"
            )
        numbers = self._acks == ALL if idempotent is None else idempotent
        return BatchDelivery(
            self._way,
            acks=self._acks,
            codec=self._codec,
            identities=Identities(self._cluster) if numbers else None,
            required=bool(idempotent),
            limits=SetLimits(self._cluster),
            batches=self._cluster.kafka or numbers,
        )

    async def __aenter__(self) -> Self:
        await self._way.bounded(self._cluster.open)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A cancelled or interrupted caller does not want to wait.
        await self.close(flush=exc is None or isinstance(exc, Exception))
        failed = self._failed.error()
        if failed is not None:
            if exc is None:
                raise failed
            _log.warning("%r: %s", self, failed)  # the block's own error must stay

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        failed = self._failed.dropped() if hasattr(self, "_failed") else None
        if failed is not None:
            _log.warning("%r: %s", self, failed)
        unanswered = 0 if getattr(self, "_closed", True) else self._unanswered()
        if unanswered:
            text = f"{self!r} was never closed, with {_messages(unanswered)} unanswered"
            _warn(text, ResourceWarning, source=self)

    def __repr__(self) -> str:
        return f"<Producer at {self._cluster.address}>"

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> SentRecord:
        """Append one message and return its position. Without a time, the time of the call is used.

        Without a partition, the key chooses it; messages without a key take the partitions in turn.
        Concurrent sends share sets; a refused message fails alone. Cancelling the wait does not
        withdraw a message that is in the buffer; if it fails, it counts in `SendsFailed`.
        """
        if timestamp_ms is None and timestamp is None:
            time_ms = self._missing_ms()
        else:
            time_ms = self._given_ms(timestamp, timestamp_ms)
        if partition is None:
            partition = self._chosen(topic, key)
        elif type(partition) is not int or not 0 <= partition <= PARTITION_MAX:
            check_partition(partition)
        waiter = self._put(topic, value, key, time_ms, partition, headers)
        if waiter is None:
            waiter = await self._put_later(topic, value, key, time_ms, partition, headers)
        return await waiter

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> "asyncio.Future[SentRecord]":
        """Add a message to the buffer as `send` does, and return without waiting for the answer.
        The future gets the message's position, or the error. Cancelling it does not withdraw the
        message."""
        if timestamp_ms is None and timestamp is None:
            time_ms = self._missing_ms()
        else:
            time_ms = self._given_ms(timestamp, timestamp_ms)
        if partition is None:
            partition = self._chosen(topic, key)
        elif type(partition) is not int or not 0 <= partition <= PARTITION_MAX:
            check_partition(partition)
        waiter = self._put(topic, value, key, time_ms, partition, headers)
        if waiter is None:
            waiter = await self._put_later(topic, value, key, time_ms, partition, headers)
        return waiter

    async def send_batch(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        timestamps_ms: Times = None,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> SentBatch:
        """Append many messages, given as columns, with one result for all: the fastest way to send.

        `timestamps_ms` is one time per message, one time for all, or None for the time of the call.
        `headers` has one entry per message, None or empty for a message without headers. Without a
        partition, each message's key chooses it; a batch without keys goes to one partition.

        The sets are cut so that they fit into the buffer, and wait for room there. ValueError is
        for a single message that is larger than the buffer; nothing is sent then.

        When a message is refused or the delivery timeout is over, the messages after it in its
        partition are not sent. Other partitions go on; when they are answered, this raises that
        error if nothing was appended, else `PartlySent`.
        """
        columns = checked_columns(
            values,
            keys,
            timestamps_ms,
            headers,
            missing_ms=self._missing_ms(),
            check_units=self._check_units,
        )
        check_place(topic, partition)
        self._check_open()
        if not len(columns):
            return SentBatch(topic, ())
        self._budget.check(largest_run_bytes(columns, self._budget.limit_bytes))
        parts: dict[int, MessageColumns]
        if partition is None:
            unkeyed = await self.partition_for(topic, None)
            count = await self._partition_count(topic)
            parts = by_partition(columns, count, unkeyed)
        else:
            parts = {partition: columns}
        outboxes = {number: self._outbox(topic, number) for number in parts}
        return await send_parts(
            topic,
            [(outboxes[number], part) for number, part in parts.items()],
            budget=self._budget,
            batch_bytes=min(await self.set_bytes_for(topic), self._budget.limit_bytes),
            codec=self._codec,
            batches=self._delivery.batches,
        )

    async def send_many(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        partition: int = 0,
        compression: Compression | None = None,
        acks: Acks | None = None,
    ) -> list[SentRecord]:
        """Append messages to one partition as one set: all or none. Messages that take more than
        `set_bytes_for(topic)` may be refused for their size.

        The set does not pass through the buffer. It is sent at once and only once, so after
        ConnectionFailed or RequestTimedOut it is unknown whether it was appended. An idempotent
        producer (unless `acks` differs here) sends the set after the earlier sets of the partition,
        and repeats it until `delivery_timeout_ms` is over. A record without a timestamp gets the
        current time.
        """
        check_place(topic, partition)
        if not records:
            return []
        codec = self._codec if compression is None else codec_of(compression)
        acks_wanted = self._acks if acks is None else acks_of(acks)
        batch = set_of(records, missing_ms=self._missing_ms(), check_units=self._check_units)
        if self._delivery.idempotent and acks_wanted == self._acks:
            self._check_open()
            batch.encoded = self._delivery.encoded(batch, codec)
            born = asyncio.get_running_loop().time()
            appended = await send_in_turn(self._outbox(topic, partition), batch, born)
        else:
            appended = await self._delivery.once(topic, partition, batch, codec, acks_wanted)
        return sent_records(topic, partition, batch.times_ms, appended)

    async def partition_for(self, topic: str, key: bytes | None) -> int:
        """Return the partition that `send` would choose."""
        check_topic(topic)
        return self._choose(key, await self._partition_count(topic))

    async def _partition_count(self, topic: str) -> int:
        count = self._known_count(topic)
        if count is None:
            count = await self._way.retry(partial(self._cluster.partition_count, topic))
        return count

    async def set_bytes_for(self, topic: str) -> int:
        """Return the largest size of a set of several messages to `topic`, in bytes: `batch_bytes`,
        or the limit from the topic's settings (`max.message.bytes`, `segment.bytes`) if that is
        less.

        A message counts with its key, its value, its headers and 34 bytes.
        """
        return await self._delivery.known_cut_bytes(topic, self._batch_bytes)

    async def flush(self) -> None:
        """Send the buffered messages without lingering, and wait until all are answered.

        Raises nothing: each message's future has its result.
        """
        while sending := [task for outbox in self._outboxes.values() if (task := outbox.hurry())]:
            await asyncio.wait(sending)

    async def close(self, *, flush: bool = True) -> None:
        """Flush and close. With `flush=False`, or when the call is cancelled, unanswered messages
        fail with ClientClosed, and a warning tells their number."""
        self._closing = True
        self._budget.end(self._closed_error())
        try:
            if flush:
                await self.flush()
        finally:
            for outbox in self._outboxes.values():
                outbox.end(self._closed_error())
            self._warn_of_unanswered()
            await super().close()

    def _unanswered(self) -> int:
        return sum(outbox.unanswered for outbox in self._outboxes.values())

    def _warn_of_unanswered(self) -> None:
        unanswered, self._closed = 0 if self._closed else self._unanswered(), True
        if unanswered:
            text = f"{self!r} was closed with {_messages(unanswered)} unanswered"
            _log.warning("%s: they may be lost", text)
            # An error in its place would hide why the producer was closed.
            with suppress(ResourceWarning):
                warnings.warn(text, ResourceWarning, source=self, stacklevel=3)

    def _check_open(self) -> None:
        if self._closing:
            raise self._closed_error()

    def _closed_error(self) -> ClientClosed:
        return ClientClosed(f"the client of {self._cluster.address} is closed")

    def _put(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        time_ms: int,
        partition: int | None,
        headers: Headers,
    ) -> "asyncio.Future[SentRecord] | None":
        """Add a message to the open set; None if there is none, or if the message needs
        `_put_later`.

        It calls no other Python function, because for small messages this call is most of the cost
        of a send. While the producer is closing, no set is open.
        """
        if headers or partition is None:
            return None
        outbox = self._outboxes.get((topic, partition))
        if outbox is None or (batch := outbox.open) is None:
            return None
        waiter: asyncio.Future[SentRecord] | None = batch.add(
            value, key, time_ms, outbox.batch_bytes, self._budget, outbox.new_waiter
        )
        return waiter

    async def _put_later(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        time_ms: int,
        partition: int | None,
        headers: Headers,
    ) -> "asyncio.Future[SentRecord]":
        """Check a message, choose its partition, wait for room in the buffer, and add the
        message."""
        check_topic(topic)
        headers = checked_headers(headers)
        size_bytes = message_bytes(value, key, headers)
        self._check_open()
        if partition is None:
            partition = await self.partition_for(topic, key)
            self._check_open()
        if not self._budget.take(size_bytes):
            await self._budget.wait(size_bytes)
            if self._closing:
                self._budget.give(size_bytes)
                raise self._closed_error()
        return self._outbox(topic, partition).add(value, key, time_ms, headers, size_bytes)

    def _chosen(self, topic: str, key: bytes | None) -> int | None:
        """Return the partition for a key; None if the number of partitions is unknown or the key is
        invalid."""
        count = self._known_count(topic)
        if count == 1:
            return 0
        if count is None or not (key is None or type(key) is bytes):
            return None
        return self._choose(key, count)

    def _choose(self, key: bytes | None, count: int) -> int:
        if key is not None:
            return partition_of(key, count) if count > 1 else 0
        self._turn += 1
        return self._turn % count

    def _given_ms(self, timestamp: datetime | None, timestamp_ms: int | None) -> int:
        given_ms = epoch_ms(timestamp, timestamp_ms, check_units=self._check_units)
        return self._missing_ms() if given_ms is None else given_ms

    def _outbox(self, topic: str, partition: int) -> Outbox:
        outbox = self._outboxes.get((topic, partition))
        if outbox is None:
            outbox = self._outboxes[topic, partition] = Outbox(
                topic,
                partition,
                self._budget,
                self._delivery.deliver,
                cut_bytes=partial(self._delivery.cut_bytes, topic, self._batch_bytes),
                linger_s=self._linger_s,
                failed=self._failed,
            )
        return outbox


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _no_time() -> int:
    return NO_TIMESTAMP


def acks_of(acks: Acks) -> int:
    if acks not in _ACKS:
        raise ValueError(f"acks is 'all', 0 or 1, not {acks!r}")
    return _ACKS[acks]


def codec_of(compression: str) -> Codec:
    if compression not in _CODECS:
        raise ValueError(f"compression is one of {', '.join(_CODECS)}, not {compression!r}")
    return _CODECS[compression]


def _check_sizes(
    linger_ms: float, batch_bytes: int, buffer_bytes: int, delivery_timeout_ms: int
) -> None:
    if linger_ms < 0 or batch_bytes < 1 or buffer_bytes < 1 or delivery_timeout_ms < 0:
        raise ValueError(
            "linger_ms and delivery_timeout_ms are from 0 on, batch_bytes and buffer_bytes "
            f"from 1 on, not {linger_ms}, {delivery_timeout_ms}, {batch_bytes}, {buffer_bytes}"
        )
