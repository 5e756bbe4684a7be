"""librdkafka tells its program of the wait, and is held to its quota; so is our own client."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent

from horolog import Consumer as OurConsumer
from horolog import NewRecord
from horolog import Producer as OurProducer
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker

from .conftest import connection, set_quota

VALUES = [bytes(250_000), *[bytes(20_000)] * 5]
"""The first takes more than a client may at once, however slow the machine is: 2.5 seconds' worth,
of which it has to wait for 1.5."""
LIMIT = 100_000.0


def serving(path: Path) -> AbstractAsyncContextManager[Broker]:
    return running_broker(path, kafka_listen="127.0.0.1:0", http_listen="off", quota_window_num=2)


async def test_librdkafka(tmp_path: Path) -> None:
    """With two windows of a second what was not taken is counted over one."""

    def produce(address: str) -> list[float]:
        told: list[ThrottleEvent] = []
        producer = Producer(
            {
                "bootstrap.servers": address,
                "client.id": "held",
                "linger.ms": 0,
                "throttle_cb": told.append,
            }
        )
        for value in VALUES:
            producer.produce("t", value)
            assert producer.flush(30) == 0
        return [event.throttle_time for event in told]

    def consume(address: str) -> int:
        conf = {"bootstrap.servers": address, "client.id": "held", "group.id": "g"}
        consumer = Consumer({**conf, "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        count = 0
        try:
            while count < len(VALUES):
                count += len(consumer.consume(len(VALUES) - count, 1))
            return count
        finally:
            consumer.close()

    async with serving(tmp_path) as broker:
        async with connection(broker) as client:
            rates = {"producer_byte_rate": LIMIT, "consumer_byte_rate": LIMIT}
            await set_quota(client, {"client-id": "held"}, **rates)
        address = str(broker.addresses.kafka)
        told = await asyncio.to_thread(produce, address)
        assert max(told) > 0.05
        assert broker.figures.throttled_seconds["producer_byte_rate"] > 1.0
        assert await asyncio.to_thread(consume, address) == len(VALUES)
        assert broker.figures.throttled["consumer_byte_rate"] > 0


@pytest.mark.parametrize("scheme", ["", "kafka://"])
async def test_our_own_client(tmp_path: Path, scheme: str) -> None:
    async with serving(tmp_path) as broker:
        address = scheme + str(broker.addresses.kafka if scheme else broker.addresses.native)
        async with OurProducer(address) as producer:
            for value in VALUES:
                await producer.send_many("t", [NewRecord(value)])
        async with connection(broker) as client:
            await set_quota(client, {"user": None}, consumer_byte_rate=LIMIT)
        async with OurConsumer(address) as consumer, asyncio.timeout(60):
            consumer.assign("t")
            read = [(await anext(consumer)).offset for _ in VALUES]
        assert read == list(range(len(VALUES)))
        assert broker.figures.throttled["consumer_byte_rate"] > 0
