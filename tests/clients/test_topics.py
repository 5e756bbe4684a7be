"""Topics and their settings, as clients make and change them."""

import pytest

from .client import Client, Message, Refused
from .matrix import proves
from .steps import Step

LONG_AGO_MS = 1_500_000_000_000
LIMIT_NAMES = ["message.timestamp.difference.max.ms", "max.message.time.difference.ms"]


@proves(Step.TOPICS)
def test_topics(client: Client, topic: str) -> None:
    assert client.partitions(topic) == 0
    client.create_topic(topic, 3, {"segment.bytes": "1048576", "retention.ms": "86400000"})
    assert client.partitions(topic) == 3
    found = client.settings(topic)
    assert (found["segment.bytes"], found["retention.ms"]) == ("1048576", "86400000")
    client.alter_topic(topic, {"segment.bytes": "2097152"})
    assert client.settings(topic)["segment.bytes"] == "2097152"
    with pytest.raises(Refused):
        client.create_topic(topic, 1, {})
    client.delete_topic(topic)
    assert client.partitions(topic) == 0


@pytest.mark.parametrize("limit", LIMIT_NAMES)
@proves(Step.TIMESTAMP_SETTINGS)
def test_timestamp_settings(client: Client, other: Client, topic: str, limit: str) -> None:
    topic = f"{topic}.{limit}"
    old = [Message(b"old", timestamp_ms=LONG_AGO_MS)]
    client.create_topic(topic, 1, {"message.timestamp.type": "LogAppendTime"})
    assert client.settings(topic)["message.timestamp.type"] == "LogAppendTime"
    other.produce(topic, old)
    client.alter_topic(topic, {"message.timestamp.type": "CreateTime"})
    other.produce(topic, old)
    stamped, sent = (one.message.timestamp_ms for one in other.consume(topic, 2))
    assert stamped > LONG_AGO_MS
    assert sent == LONG_AGO_MS
    client.alter_topic(topic, {limit: "600000"})
    client.alter_topic(topic, {limit: "3600000"})
    found = client.settings(topic)
    assert {found[name] for name in LIMIT_NAMES} == {"3600000"}
    with pytest.raises(Refused, match="INVALID_TIMESTAMP"):
        other.produce(topic, old)
