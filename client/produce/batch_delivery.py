"""The batches of a producer as sets, and on their way, numbered so that the broker recognises what
comes twice.

A set carries a producer id and the number of its first message in the producer's sequence for the
partition. A set that is sent again is the same byte for byte; the broker knows its number, and
answers where it is. When it is not known whether a set is in the log, neither is the next number
known: the partition goes on with a new id then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...protocol.api.log.init_producer_id import (
    INIT_PRODUCER_ID,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ...protocol.errors import (
    ClusterAuthorizationFailed,
    CodedError,
    OutOfOrderSequenceNumber,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from ...protocol.records.batch import set_producer
from ...protocol.records.layout import Codec
from ..cluster.route import Route
from ..responses import check
from .delivery import AppendedSet, Delivery
from .encoding import encode
from .outbox import REFUSALS, Batch, TooManyMessages
from .set_limits import TOO_LARGE, SetLimit, SetLimits

_NO_NUMBERS: Final = (ClusterAuthorizationFailed, UnsupportedForMessageFormat, UnsupportedVersion)
"""Errors of brokers, users and topics that have no sequence numbers. Nothing was appended."""

_log: Final = logging.getLogger("horolog.client")

SEQUENCES: Final = 2**31
"""Number of sequence numbers: after the largest one the sequence wraps to 0."""


@dataclass(slots=True)
class _Identity:
    producer_id: int
    epoch: int


@dataclass(slots=True)
class _Sequence:
    identity: _Identity
    next_number: int = 0


class Identities:
    """Producer ids and sequences of one producer, one sequence per partition."""

    def __init__(self, cluster: Route) -> None:
        self._cluster = cluster
        self._identity: _Identity | None = None
        self._asking = asyncio.Lock()
        self._sequences: dict[tuple[str, int], _Sequence] = {}

    async def mark(self, topic: str, partition: int, batch: bytearray) -> None:
        """Write the producer id, epoch and sequence number into the record batch. Raises the errors
        that the broker reports."""
        sequence = self._sequences.get((topic, partition))
        if sequence is None:
            sequence = _Sequence(await self._current())
            self._sequences[topic, partition] = sequence
        identity = sequence.identity
        set_producer(batch, 0, identity.producer_id, identity.epoch, sequence.next_number)

    def appended(self, topic: str, partition: int, count: int) -> None:
        """Record that the last marked batch was appended, with `count` messages."""
        sequence = self._sequences[topic, partition]
        sequence.next_number = (sequence.next_number + count) % SEQUENCES

    def lost(self, topic: str, partition: int) -> None:
        """Drop the sequence of a partition whose next number is unknown."""
        sequence = self._sequences.pop((topic, partition), None)
        # Other partitions keep their producer id. With the same id this one would start again from
        # 0.
        if sequence is not None and sequence.identity is self._identity:
            self._identity = None

    async def _current(self) -> _Identity:
        async with self._asking:
            if self._identity is None:
                response: InitProducerIdResponse = await self._cluster.request_or_drop(
                    INIT_PRODUCER_ID, InitProducerIdRequest()
                )
                check(response)
                self._identity = _Identity(response.producer_id, response.producer_epoch)
            return self._identity


class BatchDelivery:
    """Encodes the batches of an outbox, adds the producer's identity, and delivers the sets."""

    def __init__(
        self,
        delivery: Delivery,
        *,
        acks: int,
        codec: Codec,
        identities: Identities | None,
        required: bool,
        limits: SetLimits,
        batches: bool,
    ) -> None:
        """With `identities` the producer is idempotent. Unless this is `required`, it sends without
        sequence numbers where there are none. With `batches` every set is a record batch (format
        v2); otherwise only sets that need that format are."""
        self.batches = batches
        self.idempotent = identities is not None
        self._required = required
        self._without_numbers: set[str] = set()
        """Topics that store an older format, which has no sequence numbers."""
        self._delivery = delivery
        self._acks = acks
        self._codec = codec
        self._identities = identities
        self._limits = limits

    def cut_bytes(self, topic: str, wanted_bytes: int) -> int:
        """Return the largest batch for `topic`, in bytes: `wanted_bytes`, or the topic's limit if
        that is known and smaller."""
        limit = self._limits.known(topic)
        return wanted_bytes if limit is None else min(wanted_bytes, limit.cut_bytes)

    async def known_cut_bytes(self, topic: str, wanted_bytes: int) -> int:
        """Return the largest batch for `topic`, in bytes, and request the topic's limit if it is
        unknown. Raises the errors that the broker reports."""
        limit = self._limits.known(topic)
        if limit is None:
            limit = await self._limit(topic, asyncio.get_running_loop().time())
        return min(wanted_bytes, limit.cut_bytes)

    async def deliver(self, topic: str, partition: int, batch: Batch) -> AppendedSet:
        """Deliver a batch as `Delivery.until_answered` does. Raises TooManyMessages, without
        sending anything, for a divisible batch above the topic's limit."""
        limit = self._limits.known(topic) or await self._limit(topic, batch.born)
        data = self._within(limit, batch)
        try:
            return await self._deliver(topic, partition, batch, data)
        except TOO_LARGE:
            if len(batch.values) > 1:
                await self._refused(topic, len(data), batch.born)
            raise

    def _within(self, limit: SetLimit, batch: Batch) -> bytearray:
        """Return the encoded set of a batch. Raises TooManyMessages if the batch is divisible and
        the set exceeds the limit."""
        data = batch.encoded
        if data is None:
            if batch.divisible and batch.size_bytes > limit.cut_bytes:
                raise TooManyMessages
            data = self.encoded(batch, self._codec)
        if batch.divisible and len(data) > limit.set_bytes:
            raise TooManyMessages
        return data

    async def _limit(self, topic: str, since: float) -> SetLimit:
        return await self._delivery.retry(partial(self._limits.of, topic), since=since)

    async def _refused(self, topic: str, set_bytes: int, since: float) -> None:
        await self._delivery.retry(partial(self._limits.refused, topic, set_bytes), since=since)

    async def _deliver(
        self, topic: str, partition: int, batch: Batch, data: bytearray
    ) -> AppendedSet:
        deliver = partial(
            self._delivery.until_answered, topic, partition, data, self._acks, since=batch.born
        )
        identities = self._identities if self._has_numbers(topic) else None
        if identities is None:
            return await deliver()
        self._delivery.check_time(batch.born)
        send = partial(self._send_numbered, identities, topic, partition, batch, data)
        try:
            return await send(deliver)
        except _NO_NUMBERS as error:
            if self._required:
                raise
            self._stop_numbering(topic, error)
        except OutOfOrderSequenceNumber as error:
            if self._required:
                raise
            # The log lost messages that it had acknowledged. This set is not among them.
            _log.warning("%s-%s lost messages of this producer: %s", topic, partition, error)
            return await send(deliver)
        set_producer(data, 0, NO_PRODUCER_ID, -1, -1)
        return await deliver()

    async def _send_numbered(
        self,
        identities: Identities,
        topic: str,
        partition: int,
        batch: Batch,
        data: bytearray,
        deliver: Callable[..., Awaitable[AppendedSet]],
    ) -> AppendedSet:
        mark = partial(identities.mark, topic, partition, data)
        await self._delivery.retry(mark, since=batch.born)
        return await _recognised(identities, topic, partition, len(batch.values), deliver)

    def _has_numbers(self, topic: str) -> bool:
        limit = self._limits.known(topic)
        if limit is not None and not limit.has_numbers and not self._required:
            self._note_format(topic, "message.format.version is older than 0.11")
        return topic not in self._without_numbers

    def _note_format(self, topic: str, why: object) -> None:
        if self.idempotent and topic not in self._without_numbers:
            self._without_numbers.add(topic)
            _log.warning("sending to %s without idempotence: %s", topic, why)

    def _stop_numbering(self, topic: str, error: CodedError) -> None:
        if isinstance(error, UnsupportedForMessageFormat):
            self._note_format(topic, error)
        elif self._identities is not None:
            self._identities = None
            _log.warning("sending without idempotence: %s", error)

    async def once(
        self, topic: str, partition: int, batch: Batch, codec: Codec, acks: int
    ) -> AppendedSet:
        """Deliver a batch as `Delivery.once` does, without the producer's identity."""
        data = self.encoded(batch, codec)
        try:
            return await self._delivery.once(topic, partition, data, acks)
        except TOO_LARGE:
            await self._refused(topic, len(data), asyncio.get_running_loop().time())
            raise

    def encoded(self, batch: Batch, codec: Codec) -> bytearray:
        """Return the encoded set of a batch."""
        return encode(
            batch.keys,
            batch.values,
            batch.times_ms,
            codec,
            headers=batch.headers,
            batches=self.batches,
        )


async def _recognised(
    identities: Identities,
    topic: str,
    partition: int,
    count: int,
    deliver: Callable[..., Awaitable[AppendedSet]],
) -> AppendedSet:
    """Deliver a marked batch of `count` messages, and keep account of its sequence."""
    try:
        appended = await deliver(recognised=True)
    except (*REFUSALS, *_NO_NUMBERS):
        raise  # nothing was appended, so the next set gets this sequence number
    except BaseException:
        identities.lost(topic, partition)
        raise
    identities.appended(topic, partition, count)
    return appended
