"""What scripted brokers answer to produce requests."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from horolog.protocol.api.log.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResult,
)
from horolog.protocol.api.native.frames import RequestHead
from horolog.protocol.api.topics.metadata import (
    METADATA,
    MetadataPartition,
    MetadataResponse,
    MetadataTopicResult,
)
from horolog.protocol.errors import CodedError
from horolog.protocol.records.messages.sets import records


@dataclass
class Log:
    """Partitions that take what they are sent, in memory."""

    partitions: int = 1
    stored: dict[int, list[bytes | None]] = field(default_factory=dict)
    """Values by partition."""
    sets: list[tuple[int, list[bytes | None]]] = field(default_factory=list)
    """Partition and values of every set that came, in order."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a set has come."""
    wanted: int = 1
    """How many sets there must be for that."""

    def metadata(self) -> MetadataResponse:
        partitions = [MetadataPartition(partition=number) for number in range(self.partitions)]
        return MetadataResponse(
            brokers=[], topics=[MetadataTopicResult(name="t", partitions=partitions)]
        )

    def saw(self, body: ProduceRequest) -> tuple[int, list[bytes | None]]:
        """Note a set without storing it."""
        ((sent,),) = [topic.partitions for topic in body.topics]
        found = records(sent.records or b"", max_decompressed_bytes=2**24)
        seen = (sent.partition, [record.value for record in found])
        self.sets.append(seen)
        if len(self.sets) >= self.wanted:
            self.arrived.set()
        return seen

    def append(self, body: ProduceRequest) -> ProduceResponse:
        """Store a set, and the answer to it."""
        partition, values = self.saw(body)
        stored = self.stored.setdefault(partition, [])
        base_offset = len(stored)
        stored += values
        return answer(partition, base_offset=base_offset)

    async def serve(self, head: RequestHead, body: Any, _: Any) -> Any:
        """A handler for a scripted broker that takes everything."""
        return self.metadata() if head.api_key == METADATA.key else self.append(body)


def answer(partition: int, **fields: Any) -> ProduceResponse:
    result = ProducePartitionResult(partition=partition, **fields)
    return ProduceResponse(topics=[ProduceTopicResult(name="t", partitions=[result])])


def refusal(partition: int, error: type[CodedError], text: str = "no") -> ProduceResponse:
    return answer(partition, error_code=error.code, error_message=text)
