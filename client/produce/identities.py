"""Who a producer is, so that the broker recognises what comes twice.

A set carries a producer id and the number of its first message in the producer's sequence for
the partition. A set that is sent again is the same byte for byte; the broker knows its number, and
answers where it is. When it is not known whether a set is in the log, neither is the next number
known: the partition goes on with a new id then.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from ...protocol.api.log.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ...protocol.records.batches.batch import set_producer
from ..cluster.cluster import ClusterConnections
from ..responses import check

SEQUENCES: Final = 2**31
"""After the largest number comes 0."""


@dataclass(slots=True)
class _Identity:
    producer_id: int
    epoch: int


@dataclass(slots=True)
class _Sequence:
    identity: _Identity
    next_number: int = 0


class Identities:
    """The sequences of one producer, a partition each."""

    def __init__(self, cluster: ClusterConnections) -> None:
        self._cluster = cluster
        self._identity: _Identity | None = None
        self._asking = asyncio.Lock()
        self._sequences: dict[tuple[str, int], _Sequence] = {}

    async def mark(self, topic: str, partition: int, batch: bytearray) -> bytes:
        """The record batch as the next one of its partition. Raises what the broker reports."""
        sequence = self._sequences.get((topic, partition))
        if sequence is None:
            sequence = _Sequence(await self._current())
            self._sequences[topic, partition] = sequence
        identity = sequence.identity
        set_producer(batch, 0, identity.producer_id, identity.epoch, sequence.next_number)
        return bytes(batch)

    def appended(self, topic: str, partition: int, count: int) -> None:
        """The batch marked last is in the log, with so many messages."""
        sequence = self._sequences[topic, partition]
        sequence.next_number = (sequence.next_number + count) % SEQUENCES

    def lost(self, topic: str, partition: int) -> None:
        """It is not known what the next number is."""
        sequence = self._sequences.pop((topic, partition), None)
        # Other partitions go on as they are; this one would begin again from 0 with the same id.
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
