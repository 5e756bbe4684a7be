"""The batches of a producer as sets, and on their way.

A batch of which the set would be too large for its topic is not sent: it has to be divided. When
the broker refuses one for its size, the limits were lowered, and are asked for again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ...protocol.records.layout import Codec
from .delivery import AppendedSet, Delivery
from .encoding import encode
from .identities import Identities
from .outbox import REFUSALS, TooManyMessages
from .outbox_batch import Batch
from .set_limits import TOO_LARGE, SetLimit, SetLimits


class BatchDelivery:
    """Encodes what an outbox holds, says who it is from, and has it delivered."""

    def __init__(
        self,
        delivery: Delivery,
        *,
        acks: int,
        codec: Codec,
        identities: Identities | None,
        limits: SetLimits,
        batches: bool,
    ) -> None:
        """`identities`: the producer is idempotent. With `batches` every set is a record batch,
        else only those are that could be nothing else."""
        self.batches = batches
        self.idempotent = identities is not None
        self._delivery = delivery
        self._acks = acks
        self._codec = codec
        self._identities = identities
        self._limits = limits

    def cut_bytes(self, topic: str, wanted_bytes: int) -> int:
        """How large a batch for `topic` may be, up to `wanted_bytes`, as far as is known."""
        limit = self._limits.known(topic)
        return wanted_bytes if limit is None else min(wanted_bytes, limit.cut_bytes)

    async def known_cut_bytes(self, topic: str, wanted_bytes: int) -> int:
        """The same, asked for if it is not known. Raises what the broker reports."""
        limit = self._limits.known(topic)
        if limit is None:
            limit = await self._limit(topic, asyncio.get_running_loop().time())
        return min(wanted_bytes, limit.cut_bytes)

    async def deliver(self, topic: str, partition: int, batch: Batch) -> AppendedSet:
        """As `Delivery.until_answered`. Raises TooManyMessages; nothing is sent then."""
        limit = self._limits.known(topic) or await self._limit(topic, batch.born)
        data = self._within(limit, batch)
        try:
            return await self._deliver(topic, partition, batch, data)
        except TOO_LARGE:
            if len(batch.values) > 1:
                await self._refused(topic, len(data), batch.born)
            raise

    def _within(self, limit: SetLimit, batch: Batch) -> bytearray:
        """The set of a batch, if that can be within the limit."""
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
            self._delivery.until_answered, topic, partition, acks=self._acks, since=batch.born
        )
        if self._identities is None:
            return await deliver(data)
        mark = partial(self._identities.mark, topic, partition, bytearray(data))
        marked = await self._delivery.retry(mark, since=batch.born)
        return await self._recognised(topic, partition, len(batch.values), partial(deliver, marked))

    async def once(
        self, topic: str, partition: int, batch: Batch, codec: Codec, acks: int
    ) -> AppendedSet:
        """As `Delivery.once`, without saying who it is from."""
        data = self.encoded(batch, codec)
        try:
            return await self._delivery.once(topic, partition, data, acks)
        except TOO_LARGE:
            await self._refused(topic, len(data), asyncio.get_running_loop().time())
            raise

    def encoded(self, batch: Batch, codec: Codec) -> bytearray:
        """The set of these messages."""
        return encode(
            batch.keys,
            batch.values,
            batch.times_ms,
            codec,
            headers=batch.headers,
            batches=self.batches,
        )

    async def _recognised(
        self, topic: str, partition: int, count: int, deliver: Callable[..., Awaitable[AppendedSet]]
    ) -> AppendedSet:
        assert self._identities is not None
        try:
            appended = await deliver(recognised=True)
        except REFUSALS:
            raise  # the next one has its number
        except BaseException:
            self._identities.lost(topic, partition)
            raise
        self._identities.appended(topic, partition, count)
        return appended
