"""What a test sends to a program of others, and what it reads of it."""

from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

WORDS: Final = ["a", "b", "a", "c", "a"]
COUNTS: Final = [
    *[("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3)],
    *[("a", 4), ("b", 2), ("a", 5), ("c", 2), ("a", 6)],
]
"""What a program that counts words makes of `WORDS` twice."""

_SECONDS: Final = 60.0


class Messages:
    """The messages of a broker."""

    def __init__(self, address: str) -> None:
        self._servers: dict[str, str | int | float | bool] = {"bootstrap.servers": address}

    def send(self, topic: str, values: Sequence[str]) -> None:
        """Send values to partition 0; each is its own key."""
        producer = Producer(self._servers)
        for value in values:
            producer.produce(topic, value.encode(), value.encode(), 0)
        assert producer.flush(_SECONDS) == 0

    def read(self, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of the first messages of partition 0."""
        settings = {**self._servers, "group.id": "reading", "enable.auto.commit": False}
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            return list(_first(consumer, count))
        finally:
            consumer.close()

    def compacted(self) -> set[str]:
        """The topics that are compacted."""
        admin = AdminClient(self._servers)
        names = admin.list_topics(timeout=_SECONDS).topics
        asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        found = admin.describe_configs(asked) if asked else {}
        policies = {
            resource.name: future.result(_SECONDS)["cleanup.policy"].value
            for resource, future in found.items()
        }
        return {name for name, policy in policies.items() if "compact" in policy}


def _first(consumer: Consumer, count: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    for number in range(count):
        message = consumer.poll(_SECONDS)
        assert message is not None, f"{number} of {count} messages came"
        assert message.error() is None, message.error()
        yield message.key(), message.value()
