"""Requests for one topic and one partition, and the relevant parts of their answers, for tests."""

from collections.abc import Iterable
from typing import Any

from ..protocol.api.log.fetch import FetchPartition, FetchRequest, FetchTopic
from ..protocol.api.log.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ..protocol.api.log.produce import ProducePartition, ProduceRequest, ProduceTopic
from ..protocol.api.topics.create_topics import CreatableConfig, CreatableTopic, CreateTopicsRequest
from ..protocol.records.layout import Buffer, Codec
from .logs import timed_set


def message_set(
    *timestamps_ms: int, value: bytes = b"hello", magic: int = 1, codec: Codec = Codec.NONE
) -> bytes:
    """Return a record set as a producer sends it, with a message for each timestamp (-1: none)."""
    return bytes(timed_set(*timestamps_ms, value=value, magic=magic, codec=codec))


def create_topic(name: str, partitions: int = 1, **settings: object) -> CreateTopicsRequest:
    """Return a request that creates a topic. `settings` are the topic's, with underscores for
    dots."""
    configs = [
        CreatableConfig(name=setting.replace("_", "."), value=str(value))
        for setting, value in settings.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=partitions, configs=configs)
    return CreateTopicsRequest(topics=[topic])


def produce(
    topic: str,
    record_set: Buffer | None,
    *,
    partition: int = 0,
    acks: int = 1,
    timeout_ms: int = 30_000,
) -> ProduceRequest:
    return produce_to(topic, [(partition, record_set)], acks=acks, timeout_ms=timeout_ms)


def produce_to(
    topic: str,
    sets: Iterable[tuple[int, Buffer | None]],
    *,
    acks: int = 1,
    timeout_ms: int = 30_000,
) -> ProduceRequest:
    """Return a produce request with a record set for each of several partitions."""
    partitions = [ProducePartition(partition=number, records=data) for number, data in sets]
    topics = [ProduceTopic(name=topic, partitions=partitions)]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topics=topics)


def fetch(
    topic: str,
    *places: tuple[int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    partition_max_bytes: int = 1 << 20,
    max_bytes: int = 1 << 30,
    isolation_level: int = 0,
) -> FetchRequest:
    """Return a fetch request. `places` are (partition, offset)."""
    partitions = [
        FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        for number, offset in places
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[FetchTopic(name=topic, partitions=partitions)],
    )


def list_offsets(
    topic: str, *targets: tuple[int, int], max_num_offsets: int = 1, replica_id: int = -1
) -> ListOffsetsRequest:
    """Return a list-offsets request. `targets` are (partition, time in ms or sentinel)."""
    partitions = [
        ListOffsetsPartition(partition=number, timestamp=target, max_num_offsets=max_num_offsets)
        for number, target in targets
    ]
    topics = [ListOffsetsTopic(name=topic, partitions=partitions)]
    return ListOffsetsRequest(replica_id=replica_id, topics=topics)


def results(response: Any) -> list[Any]:
    """Return the results of all partitions, in order."""
    return [result for topic in response.topics for result in topic.partitions]


def result(response: Any) -> Any:
    """Return the result of the only partition."""
    (only,) = results(response)
    return only
