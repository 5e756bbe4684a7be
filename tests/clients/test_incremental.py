"""Changes of some of a topic's settings (IncrementalAlterConfigs, Kafka 2.3), by those of Kafka's
clients that have them."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType, KafkaAdminClient

from .apache_tools import ApacheTools
from .client import Client, Refused
from .conftest import Start
from .matrix import JAVA

Alters = Callable[[str, str, Mapping[str, str | None]], None]
"""At an address a topic's settings; `None` unsets."""


def by_librdkafka(address: str, topic: str, changes: Mapping[str, str | None]) -> None:
    entries = [
        ConfigEntry(
            name,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE
            if value is None
            else AlterConfigOpType.SET,
        )
        for name, value in changes.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": address})
    future: Future[None]
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(60)


def by_kafka_python(address: str, topic: str, changes: Mapping[str, str | None]) -> None:
    configs: dict[str, Any] = {
        name: ("DELETE", None) if value is None else ("SET", value)
        for name, value in changes.items()
    }
    resource = PythonResource(ConfigResourceType.TOPIC, topic, configs=configs)
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        answers = admin.alter_configs([resource])
    finally:
        admin.close()
    if answers["topic"][topic] != "OK":
        raise Refused(answers["topic"][topic])


@pytest.mark.parametrize("alters", [by_librdkafka, by_kafka_python])
def test_some_settings(address: str, other: Client, alters: Alters) -> None:
    topic = f"incremental-{alters.__name__}"
    other.create_topic(topic, 1, {"segment.bytes": "1048576", "retention.ms": "86400000"})
    before = other.settings(topic)
    alters(address, topic, {"segment.bytes": "2097152"})
    assert other.settings(topic) == {**before, "segment.bytes": "2097152"}
    with pytest.raises((KafkaException, Refused), match=r"segment\.bytes"):
        alters(address, topic, {"retention.ms": "5", "segment.bytes": "0"})
    assert other.settings(topic)["retention.ms"] == "86400000"
    alters(address, topic, {"retention.ms": None, "segment.bytes": "1048576"})
    found = other.settings(topic)
    assert (found["segment.bytes"], found["retention.ms"]) == ("1048576", "-1")


@JAVA
def test_kafka_configs(start: Start, other: Client) -> None:
    tools = start(ApacheTools)
    assert isinstance(tools, ApacheTools)
    other.create_topic("configs", 1, {"segment.bytes": "1048576", "retention.ms": "86400000"})
    tools.alter_topic("configs", {"segment.bytes": "2097152"})
    found = other.settings("configs")
    assert (found["segment.bytes"], found["retention.ms"]) == ("2097152", "86400000")
    with pytest.raises(Refused):
        tools.alter_topic("configs", {"segment.bytes": "0"})
