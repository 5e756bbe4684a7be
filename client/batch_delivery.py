"""The batches of a producer as sets, and on their way."""

from collections.abc import Awaitable, Callable
from functools import partial

from ..protocol.records.layout import Codec
from .delivery import Appended, Delivery
from .encoding import encode
from .identities import Identities
from .outbox import REFUSALS
from .outbox_batch import Batch


class BatchDelivery:
    """Encodes what an outbox holds, says who it is from, and has it delivered."""

    def __init__(
        self,
        delivery: Delivery,
        *,
        acks: int,
        codec: Codec,
        identities: Identities | None,
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

    async def deliver(self, topic: str, partition: int, batch: Batch) -> Appended:
        """As `Delivery.until_answered`."""
        data = batch.encoded
        if data is None:
            data = self.encoded(batch, self._codec)
        deliver = partial(
            self._delivery.until_answered, topic, partition, acks=self._acks, since=batch.born
        )
        if self._identities is None:
            return await deliver(data)
        mark = partial(self._identities.mark, topic, partition, bytearray(data))
        marked = await self._delivery.patiently(mark)
        return await self._recognised(topic, partition, len(batch.values), partial(deliver, marked))

    async def once(
        self, topic: str, partition: int, batch: Batch, codec: Codec, acks: int
    ) -> Appended:
        """As `Delivery.once`, without saying who it is from."""
        data = self.encoded(batch, codec)
        return await self._delivery.once(topic, partition, data, acks)

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
        self, topic: str, partition: int, count: int, deliver: Callable[..., Awaitable[Appended]]
    ) -> Appended:
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
