"""A producer with a transactional id ends at once, and says that this is not supported."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer

from .apache_tools import ApacheTools
from .client import Client, Message, Refused, Sending
from .conftest import Start
from .matrix import JAVA

FOR_EVER_SECONDS = 3600
"""How long clients go on with what may yet become good: longer than a test may take."""


def librdkafka(address: str) -> str:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "mine", "log_level": 0})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(FOR_EVER_SECONDS)
    error = refused.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError._UNSUPPORTED_FEATURE, True)
    return str(error.str())


def kafka_python(address: str) -> str:
    producer = KafkaProducer(
        bootstrap_servers=address,
        transactional_id="mine",
        max_block_ms=FOR_EVER_SECONDS * 1000,
    )
    with pytest.raises(Exception, match="Unsupported") as refused:
        producer.init_transactions()
    producer.close(timeout=0)
    return str(refused.value)


def aiokafka(address: str) -> str:
    async def start() -> str:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="mine")
        with pytest.raises(Exception, match="IncompatibleBrokerVersion") as refused:
            await producer.start()
        await producer.stop()
        return str(refused.value)

    return asyncio.run(start())


@pytest.mark.parametrize("begin", [librdkafka, kafka_python, aiokafka])
def test_it_is_not_a_matter_of_rights_or_of_time(address: str, begin: Callable[[str], str]) -> None:
    said = begin(address).lower()
    assert "authoriz" not in said
    assert "timed out" not in said


@JAVA
def test_java_says_that_the_version_is_not_supported(start: Start) -> None:
    tools = start(ApacheTools)
    assert isinstance(tools, ApacheTools)
    with pytest.raises(Refused, match="UnsupportedVersionException") as refused:
        tools.begin_transactions("transactions")
    assert "Authorization" not in str(refused.value)


def test_others_go_on(start: Start, other: Client) -> None:
    """Batches are numbered, and groups find their coordinator."""
    other.produce("others", [Message(b"a")], Sending(idempotent=True))
    with other.member("readers-of-others", "others") as member:
        while not (found := member.poll()):
            pass
        member.commit()
    assert [one.message.value for one in found] == [b"a"]
