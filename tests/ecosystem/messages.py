"""What a test sends to a program of others, and what it reads of it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from horolog.testing.waiting import wait_until

WORDS: Final = ["a", "b", "a", "c", "a"]
COUNTS: Final = [
    *[("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3)],
    *[("a", 4), ("b", 2), ("a", 5), ("c", 2), ("a", 6)],
]
"""What a program that counts words makes of `WORDS` twice."""

_SECONDS: Final = 180.0
_NOW: Final = 0
"""As librdkafka has it."""
_START_MS: Final = 1_700_000_000_000
_MINUTE_MS: Final = 60_000


class Messages:
    """The messages of a broker."""

    def __init__(self, address: str) -> None:
        self._servers: dict[str, str | int | float | bool] = {"bootstrap.servers": address}

    def create(self, topic: str, settings: Mapping[str, str], *, partitions: int = 1) -> None:
        """Create a topic."""
        new = NewTopic(topic, partitions, 1, config=dict(settings))
        admin = AdminClient(self._servers)
        admin.create_topics([new])[topic].result(_SECONDS)

    def send(
        self,
        topic: str,
        values: Sequence[str],
        *,
        time_ms: int = _NOW,
        partition: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send values to a partition; each is its own key."""
        producer = Producer(self._servers)
        for value in values:
            producer.produce(
                topic,
                value.encode(),
                value.encode(),
                partition,
                timestamp=time_ms,
                headers=[*(headers or {}).items()],
            )
        assert producer.flush(_SECONDS) == 0

    def send_minutes(self, topic: str, *minutes: Sequence[str]) -> list[int]:
        """Send values with times a minute apart, which are given back."""
        times_ms = [_START_MS + number * _MINUTE_MS for number in range(len(minutes))]
        for time_ms, values in zip(times_ms, minutes, strict=True):
            self.send(topic, values, time_ms=time_ms)
        return times_ms

    def read(self, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of the first messages of partition 0."""
        settings = {**self._servers, "group.id": "reading", "enable.auto.commit": False}
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            return list(_first(consumer, count))

    def end(self, topic: str) -> int:
        """The offset after the last message of partition 0."""
        with closing(Consumer({**self._servers, "group.id": "reading"})) as consumer:
            offsets = consumer.get_watermark_offsets(TopicPartition(topic, 0), _SECONDS)
        assert offsets is not None, topic
        return offsets[1]

    def wait_committed(self, group: str, topic: str, offset: int) -> None:
        """Wait until a group committed an offset for partition 0."""
        partition = TopicPartition(topic, 0)
        with closing(Consumer({**self._servers, "group.id": group})) as consumer:
            wait_until(
                lambda: consumer.committed([partition], _SECONDS)[0].offset == offset,
                within_s=_SECONDS,
                state=lambda: str(consumer.committed([partition], _SECONDS)),
            )

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
