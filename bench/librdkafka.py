"""confluent-kafka as the client of a measurement: the same work for every broker."""

import time
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from .raw_client import RefusedRequest

_AT_ONCE: Final = 1_000
_WAIT_SECONDS: Final = 60


def produced(address: str, topic: str, value_bytes: int, count: int) -> float:
    """Seconds until so many messages are acknowledged by all; connecting is not counted."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.list_topics(topic, _WAIT_SECONDS)
    value = b"v" * value_bytes
    began = time.perf_counter()
    for number in range(count):
        producer.produce(topic, value, partition=0)
        if number % _AT_ONCE == 0:
            producer.poll(0)
    if producer.flush(_WAIT_SECONDS):
        raise RefusedRequest(f"{topic}: not everything was acknowledged")
    return time.perf_counter() - began


def consumed(address: str, topic: str, value_bytes: int, count: int) -> float:
    """Seconds from the first message to the last of so many.

    A client that has `queued.min.messages` waiting asks for no more during a second
    (`fetch.queue.backoff.ms`): with the defaults, the longest of these waits are what is measured,
    and a broker that is quick to fill the queue meets more of them.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read, size_bytes, began = 0, 0, 0.0
    while read < count:
        some = consumer.consume(_AT_ONCE, _WAIT_SECONDS)
        began = began or time.perf_counter()
        if not some:
            raise RefusedRequest(f"{topic}: {read} of {count} messages came")
        for message in some:
            value = message.value()
            if value is None:
                raise RefusedRequest(f"{topic}: {message.error()}")
            size_bytes += len(value)
        read += len(some)
    seconds = time.perf_counter() - began
    consumer.close()
    if size_bytes != count * value_bytes:
        raise RefusedRequest(f"{topic}: {size_bytes} bytes came")
    return seconds
