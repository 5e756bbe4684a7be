"""What an earlier attempt of a task has stored, beside what this one sends.

A broker knows a batch again by its numbers, not by what is in it. Other rows under the numbers of
rows that are stored would be lost without a word, so they are compared.
"""

from typing import Final

from ..client.cluster import Cluster
from ..client.consumer import Consumer
from ..client.results import ConsumerRecord
from ..client.searching import offsets_at
from ..protocol.api.list_offsets import LATEST
from ..protocol.errors import DuplicateSequenceNumber, OffsetOutOfRange
from ..protocol.records.batch import batch_records
from ..protocol.records.layout import Buffer
from ..protocol.records.record import Record
from .options import Broker

ANY_SIZE: Final = 2**31 - 1
"""Of our own batches, uncompressed."""
_WAIT_MS: Final = 500


async def end_of(cluster: Cluster, topic: str, partition: int) -> int:
    """The offset that the partition's next message will get."""
    (end,) = await offsets_at(cluster, topic, partition, [LATEST])
    return end.offset or 0


async def check_stored(
    broker: Broker, topic: str, partition: int, base_offset: int, data: Buffer
) -> None:
    """Raise DuplicateSequenceNumber where the log has, from `base_offset` on, other messages than
    the batch `data`. Those that are not there any more are believed to have been the same."""
    sent = list(batch_records(data, max_decompressed_bytes=ANY_SIZE))
    async with Consumer(
        broker.address,
        client_id="horolog-spark",
        request_timeout_ms=broker.request_timeout_ms,
        retry_timeout_ms=broker.retry_budget_ms,
        check_units=False,
    ) as consumer:
        consumer.assign(topic, partition, offset=base_offset)
        while True:
            try:
                found = await consumer.fetch(max_wait_ms=_WAIT_MS)
            except OffsetOutOfRange:
                return
            for record in found:
                number = record.offset - base_offset
                if number >= len(sent):
                    return
                if not _same(record, sent[number]):
                    raise DuplicateSequenceNumber(
                        f"{topic}-{partition} has another message at offset {record.offset} than "
                        "the one that this task of this batch or job sends: an earlier attempt "
                        "wrote it. Where a stream began again with a checkpoint that is older "
                        "than what it wrote, begin with a new one, from the offsets that are not "
                        "written yet. Else a task that is run again must have the same rows in "
                        "the same order. idempotent=false writes them at least once"
                    )
            if not found or found[-1].offset - base_offset == len(sent) - 1:
                return


def _same(stored: ConsumerRecord, sent: Record) -> bool:
    # Not by their times: rows without one get that of the attempt.
    return (stored.key, stored.value, stored.headers) == (sent.key, sent.value, tuple(sent.headers))
