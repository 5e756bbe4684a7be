"""The requests and responses that the protocol reference shows byte by byte."""

from typing import Any, Final

from ...values import value_class
from ..records.messages.sets import NewRecord, build_set
from .log.fetch import (
    FETCH,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
)
from .log.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from .schema import Api


@value_class
class Example:
    """One exchange of a request and a response."""

    title: str
    text: str
    api: Api
    version: int
    correlation_id: int
    request: Any
    response: Any


_TIMESTAMP_MS: Final = 1_479_144_272_509
_SET: Final = bytes(build_set([NewRecord(b"hello", None, _TIMESTAMP_MS)]))
_STORED: Final = bytes(build_set([NewRecord(b"hello", None, _TIMESTAMP_MS)], base_offset=41))

EXAMPLES: Final = (
    Example(
        title="Produce one message",
        text=f"The value `hello`, without a key, with the timestamp {_TIMESTAMP_MS}, goes to "
        "partition 0 of `clicks`. The broker gives it the offset 41. The record set is one "
        "message in format v1: offset (8 bytes), size (4), CRC-32 (4), magic 1, attributes 0, "
        "timestamp (8), key length -1 (4), value length 5 (4), value.",
        api=PRODUCE,
        version=2,
        correlation_id=1,
        request=ProduceRequest(
            acks=-1,
            topics=[
                ProduceTopic(
                    name="clicks", partitions=[ProducePartition(partition=0, records=_SET)]
                )
            ],
        ),
        response=ProduceResponse(
            topics=[
                ProduceTopicResult(
                    name="clicks",
                    partitions=[ProducePartitionResult(partition=0, base_offset=41)],
                )
            ]
        ),
    ),
    Example(
        title="Fetch it",
        text="Everything from offset 41 on, waiting up to half a second for the first byte. The "
        "message comes back as it was sent, except for its offset.",
        api=FETCH,
        version=3,
        correlation_id=2,
        request=FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 24,
            topics=[
                FetchTopic(name="clicks", partitions=[FetchPartition(partition=0, fetch_offset=41)])
            ],
        ),
        response=FetchResponse(
            topics=[
                FetchTopicResult(
                    name="clicks",
                    partitions=[
                        FetchPartitionResult(partition=0, high_watermark=42, records=_STORED)
                    ],
                )
            ]
        ),
    ),
)
