"""What an earlier attempt of a task has stored, beside what this one sends.

A broker knows a batch again by its numbers, not by what is in it. Other rows under the numbers of
rows that are stored would be lost without a word, so they are compared.
"""

import asyncio
from typing import Final

from ..client.administer.searching import offsets_at
from ..client.cluster.cluster import ClusterConnections
from ..client.consume.consumer import Consumer
from ..client.results import ConsumerRecord
from ..protocol.api.log.list_offsets import LATEST
from ..protocol.errors import DuplicateSequenceNumber, OffsetOutOfRange
from ..protocol.records.batches.batch import batch_records
from ..protocol.records.layout import Buffer
from ..protocol.records.record import Record
from .connecting import consumer_at
from .options import BrokerOptions

ANY_SIZE: Final = 2**31 - 1
"""Of our own batches, uncompressed."""
_WAIT_MS: Final = 500


async def end_of(cluster: ClusterConnections, topic: str, partition: int) -> int:
    """The offset that the partition's next message will get."""
    (end,) = await offsets_at(cluster, topic, partition, [LATEST])
    return end.offset or 0


class StoredBefore:
    """Reads back what is stored, through one connection, one batch at a time."""

    def __init__(self, broker: BrokerOptions) -> None:
        self._broker = broker
        self._consumer: Consumer | None = None
        self._reading = asyncio.Lock()

    async def check(self, topic: str, partition: int, base_offset: int, data: Buffer) -> None:
        """Raise DuplicateSequenceNumber where the log has, from `base_offset` on, other messages
        than the batch `data`. A batch of which the first is not there any more is believed to
        have been the same."""
        sent = list(batch_records(data, max_decompressed_bytes=ANY_SIZE))
        async with self._reading:
            if self._consumer is None:
                self._consumer = consumer_at(self._broker)
            self._consumer.assign(topic, partition, offset=base_offset)
            try:
                await _compare(self._consumer, base_offset, sent)
            except OffsetOutOfRange:
                pass  # not there any more
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
    # Not by their times: rows without one get that of the attempt.
    return (stored.key, stored.value, stored.headers) == (sent.key, sent.value, tuple(sent.headers))
