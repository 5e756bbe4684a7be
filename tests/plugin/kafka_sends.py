"""Sends of each of Kafka's clients for Python, and reads, as their users write them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.aio import AIOConsumer, AIOProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPlace

SECONDS: Final = 60

Send = Callable[[str, str, Sequence[bytes], bool], None]
"""Sends values to a topic, one after another: the bootstrap servers, the topic, the values, and
whether the producer is idempotent."""

Read = Callable[[str, str], tuple[int, int]]
"""Returns the first offset of a topic and the one behind its end, as a consumer is told them."""


def _confluent_settings(bootstrap: str, idempotent: bool) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": idempotent,
        "acks": "all",
        "retry.backoff.ms": 1,
        "reconnect.backoff.ms": 1,
        "linger.ms": 0,
        # Else librdkafka starts over from its bootstrap servers when it loses its last connection,
        # and may close the new one while a resent message is in flight: it sends a third copy.
        "metadata.recovery.strategy": "none",
    }


def confluent(bootstrap: str, topic: str, values: Sequence[bytes], idempotent: bool) -> None:
    producer = Producer(_confluent_settings(bootstrap, idempotent))
    for value in values:
        told: list[object] = []
        producer.produce(topic, value, on_delivery=lambda *found: told.append(found[0]))  # noqa: B023
        assert producer.flush(SECONDS) == 0
        assert told == [None]


def confluent_ends(bootstrap: str, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        found: tuple[int, int] | None = consumer.get_watermark_offsets(Place(topic, 0), SECONDS)
        if found is None:
            raise KafkaException("no answer")
        return found
    finally:
        consumer.close()


def confluent_asyncio(
    bootstrap: str, topic: str, values: Sequence[bytes], idempotent: bool
) -> None:
    async def send() -> None:
        producer = AIOProducer(_confluent_settings(bootstrap, idempotent), batch_size=1)
        try:
            for value in values:
                delivered = await producer.produce(topic, value)
                await producer.flush()
                assert (await delivered).error() is None
        finally:
            await producer.close()

    asyncio.run(send())


def confluent_asyncio_ends(bootstrap: str, topic: str) -> tuple[int, int]:
    async def ask() -> tuple[int, int]:
        consumer = AIOConsumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
        try:
            found: tuple[int, int] = await consumer.get_watermark_offsets(Place(topic, 0))
            return found
        finally:
            await consumer.close()

    return asyncio.run(ask())


def aiokafka(bootstrap: str, topic: str, values: Sequence[bytes], idempotent: bool) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=idempotent,
            retry_backoff_ms=1,
        ) as producer:
            for value in values:
                await producer.send_and_wait(topic, value)

    asyncio.run(send())


def aiokafka_ends(bootstrap: str, topic: str) -> tuple[int, int]:
    async def ask() -> tuple[int, int]:
        place = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            begins = await consumer.beginning_offsets([place])
            ends = await consumer.end_offsets([place])
            return begins[place], ends[place]

    return asyncio.run(ask())


def kafka_python(bootstrap: str, topic: str, values: Sequence[bytes], idempotent: bool) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=idempotent,
        retry_backoff_ms=1,
        reconnect_backoff_ms=1,
    )
    try:
        for value in values:
            producer.send(topic, value).get(SECONDS)
    finally:
        producer.close()


def kafka_python_ends(bootstrap: str, topic: str) -> tuple[int, int]:
    place = PythonPlace(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        begins, ends = consumer.beginning_offsets([place]), consumer.end_offsets([place])
        return begins[place], ends[place]
    finally:
        consumer.close()


CLIENTS: Final[dict[str, tuple[Send, Read]]] = {
    "confluent-kafka": (confluent, confluent_ends),
    "confluent-kafka asyncio": (confluent_asyncio, confluent_asyncio_ends),
    "aiokafka": (aiokafka, aiokafka_ends),
    "kafka-python": (kafka_python, kafka_python_ends),
}


LongLived = Callable[[str, str], AbstractContextManager[Callable[[bytes], None]]]
"""An idempotent producer that lives as long as the block: the bootstrap servers and the topic. It
sends a value when it is called, and raises what its client tells."""


@contextmanager
def _confluent_producer(bootstrap: str, topic: str) -> Iterator[Callable[[bytes], None]]:
    producer = Producer(_confluent_settings(bootstrap, idempotent=True))

    def send(value: bytes) -> None:
        told: list[object] = []
        producer.produce(topic, value, on_delivery=lambda *found: told.append(found[0]))
        assert producer.flush(SECONDS) == 0
        assert told == [None]

    yield send


@contextmanager
def _aiokafka_producer(bootstrap: str, topic: str) -> Iterator[Callable[[bytes], None]]:
    with asyncio.Runner() as runner:

        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap, enable_idempotence=True, retry_backoff_ms=1
            )
            await producer.start()
            return producer

        producer = runner.run(start())
        try:
            yield lambda value: runner.run(producer.send_and_wait(topic, value))
        finally:
            runner.run(producer.stop())


@contextmanager
def _kafka_python_producer(bootstrap: str, topic: str) -> Iterator[Callable[[bytes], None]]:
    """It is idempotent by default."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, retry_backoff_ms=1, reconnect_backoff_ms=1
    )
    try:
        yield lambda value: producer.send(topic, value).get(SECONDS)
    finally:
        producer.close()


LONG_LIVED: Final[dict[str, LongLived]] = {
    "confluent-kafka": _confluent_producer,
    "aiokafka": _aiokafka_producer,
    "kafka-python": _kafka_python_producer,
}
