"""Kafka's own clients through SASL_SSL, unmodified."""

import asyncio
import json
import shutil
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer
from kafka import KafkaConsumer, KafkaProducer

from horolog.server.broker import Broker

from .conftest import PASSWORD, Authority, Guarded

MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
MESSAGES = [b"message %d" % number for number in range(100)]


def librdkafka(
    broker: Broker, authority: Authority, mechanism: str, password: str = PASSWORD
) -> dict[str, Any]:
    return {
        "bootstrap.servers": str(broker.addresses.kafka),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.cert),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_librdkafka(guarded: Guarded, authority: Authority, mechanism: str) -> None:
    def there_and_back(conf: dict[str, Any]) -> list[bytes | None]:
        producer = Producer(conf)
        for message in MESSAGES:
            producer.produce("clicks", message)
        assert producer.flush(30) == 0
        consumer = Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["clicks"])
        try:
            received: list[Message] = []
            while len(received) < len(MESSAGES):
                received += consumer.consume(1, 30)
            return [message.value() for message in received]
        finally:
            consumer.close()

    async with guarded() as broker:
        conf = librdkafka(broker, authority, mechanism)
        assert await asyncio.to_thread(there_and_back, conf) == MESSAGES


async def test_librdkafka_with_a_wrong_password(guarded: Guarded, authority: Authority) -> None:
    def ask(conf: dict[str, Any]) -> list[str]:
        seen: list[str] = []
        producer = Producer({**conf, "error_cb": lambda error: seen.append(error.name())})
        waited = 0
        while "_AUTHENTICATION" not in seen and waited < 300:
            producer.poll(0.2)
            waited += 1
        return seen

    async with guarded() as broker:
        conf = librdkafka(broker, authority, "SCRAM-SHA-512", "wrong")
        assert "_AUTHENTICATION" in await asyncio.to_thread(ask, conf)
        assert broker.figures.logins["SCRAM-SHA-512", "failed"] >= 1
        assert ("SCRAM-SHA-512", "done") not in broker.figures.logins


def kafka_python(
    broker: Broker, authority: Authority, mechanism: str, password: str = PASSWORD
) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.addresses.kafka,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(authority.cert),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_kafka_python(guarded: Guarded, authority: Authority, mechanism: str) -> None:
    def there_and_back(conf: dict[str, Any]) -> list[bytes]:
        producer = KafkaProducer(**conf)
        for message in MESSAGES:
            producer.send("clicks", message)
        producer.flush(30)
        producer.close()
        consumer = KafkaConsumer(
            "clicks", group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **conf
        )
        try:
            return [next(consumer).value for _ in MESSAGES]
        finally:
            consumer.close()

    async with guarded() as broker:
        conf = kafka_python(broker, authority, mechanism)
        assert await asyncio.to_thread(there_and_back, conf) == MESSAGES


_WRONG = """
import json, sys
from kafka import KafkaProducer
from kafka.errors import KafkaError
try:
    KafkaProducer(**json.loads(sys.argv[1]), bootstrap_timeout_ms=int(sys.argv[2]))
except KafkaError:
    sys.exit(77)
"""


async def test_kafka_python_with_a_wrong_password(guarded: Guarded, authority: Authority) -> None:
    """In a process of its own: a producer that could not be made leaves sockets behind."""

    def ask(conf: dict[str, Any], within_ms: int) -> int:
        command = [sys.executable, "-c", _WRONG, json.dumps(conf), str(within_ms)]
        return subprocess.run(command, capture_output=True, timeout=60).returncode

    async with guarded() as broker:
        conf = kafka_python(broker, authority, "PLAIN", "wrong")
        # It tries until its time is over, which a slow machine may need for the first login.
        for within_ms in (3000, 30_000):
            assert await asyncio.to_thread(ask, conf, within_ms) == 77
            if broker.figures.logins:
                break
        assert broker.figures.logins["PLAIN", "failed"] >= 1
        assert ("PLAIN", "done") not in broker.figures.logins


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_kcat(guarded: Guarded, authority: Authority, mechanism: str) -> None:
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("kcat is not installed")

    def there_and_back(conf: dict[str, Any]) -> bytes:
        options = [word for name, value in conf.items() for word in ("-X", f"{name}={value}")]
        produce = [str(program), *options, "-P", "-t", "clicks"]
        subprocess.run(produce, input=b"\n".join(MESSAGES), check=True, timeout=60)
        consume = [str(program), *options, "-C", "-t", "clicks", "-e", "-q"]
        return subprocess.run(consume, check=True, capture_output=True, timeout=60).stdout

    async with guarded() as broker:
        conf = librdkafka(broker, authority, mechanism)
        assert (await asyncio.to_thread(there_and_back, conf)).splitlines() == MESSAGES
