"""kafka-python: a client in Python alone."""

import gc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import KafkaError

from .access import kafka_python
from .client import (
    PLAIN,
    WAIT_SECONDS,
    Client,
    Member,
    Message,
    Refused,
    Sending,
    Stored,
    Writer,
)

_POLL_MS = 500
"""What it begins in a poll, to find its coordinator for one, it gives up at the end of it."""


class KafkaPython(Client):
    name = "kafka-python"
    options: ClassVar[Mapping[str, Any]] = {}
    """More settings of every consumer and producer."""

    def produce(self, topic: str, messages: Sequence[Message], sending: Sending = PLAIN) -> None:
        producer = KafkaProducer(
            **self._settings,
            compression_type=None if sending.codec == "none" else sending.codec,
            linger_ms=20,
            enable_idempotence=sending.idempotent,
        )
        with closing(producer):
            sent = [
                producer.send(
                    topic,
                    message.value,
                    message.key,
                    headers=list(message.headers),
                    partition=sending.partition,
                    timestamp_ms=None if message.timestamp_ms == -1 else message.timestamp_ms,
                )
                for message in messages
            ]
            try:
                for future in sent:
                    future.get(WAIT_SECONDS)
            except KafkaError as error:
                raise Refused(_name(error)) from error

    def consume(self, topic: str, count: int, offset: int = 0) -> list[Stored]:
        place = TopicPartition(topic, 0)
        with closing(KafkaConsumer(**self._settings)) as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            found: list[Stored] = []
            while len(found) < count:
                found += _stored(consumer.poll(WAIT_SECONDS * 1000, count - len(found)))
        return found

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[Member]:
        consumer = KafkaConsumer(
            **self._settings,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
        )
        # When the topic comes to be known between a join and the next, and a poll ends while the
        # second is under way, kafka-python 3.0 forgets what the group answers. So it is known.
        consumer.partitions_for_topic(topic)
        consumer.subscribe([topic])
        member = _Member(consumer)
        try:
            yield member
        finally:
            member.close()

    @contextmanager
    def writer(self, topic: str) -> Iterator[Writer]:
        with closing(KafkaProducer(**self._settings, enable_idempotence=True)) as producer:
            yield _Writer(producer, topic)

    def close(self) -> None:
        # It forgets sockets whose connection was refused, which is no failure of a test.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def offsets_for_times(self, topic: str, times: Sequence[int]) -> list[int | None]:
        place = TopicPartition(topic, 0)
        with closing(KafkaConsumer(**self._settings)) as consumer:
            found = [consumer.offsets_for_times({place: time})[place] for time in times]
        return [None if one is None else one.offset for one in found]

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(settings))
        with self._admin() as admin, _refusals():
            admin.create_topics([new])

    def partitions(self, topic: str) -> int:
        with self._admin() as admin:
            if topic not in admin.list_topics():
                return 0
            (described,) = admin.describe_topics([topic])
        return len(described["partitions"])

    def settings(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with self._admin() as admin:
            ((found,),) = [
                kind.values()
                for kind in admin.describe_configs([resource], config_filter="all").values()
            ]
        return {name: entry["value"] for name, entry in found.items()}

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))
        with self._admin() as admin, _refusals():
            # As at Kafka 2.1. What it does by itself here is tried in `test_incremental`.
            admin.alter_configs([resource], incremental=False)

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin, _refusals():
            admin.delete_topics([topic])

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        with closing(KafkaAdminClient(**self._settings)) as admin:
            yield admin

    @property
    def _settings(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.address, **kafka_python(self.access), **self.options}


class KafkaPythonAs09(KafkaPython):
    """Told that the broker is a Kafka 0.9."""

    name = "kafka-python as of 0.9"
    options: ClassVar[Mapping[str, Any]] = {"api_version": (0, 9)}


class KafkaPythonAs010(KafkaPython):
    """Told that the broker is a Kafka 0.10.1: message format v1."""

    name = "kafka-python as of 0.10"
    options: ClassVar[Mapping[str, Any]] = {"api_version": (0, 10, 1)}


class _Writer(Writer):
    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._sent: list[Any] = []

    def write(self, value: bytes) -> None:
        self._sent.append(self._producer.send(self._topic, value, partition=0))

    def finish(self) -> None:
        for future in self._sent:
            future.get(WAIT_SECONDS)


class _Member(Member):
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._open = True

    def poll(self) -> Sequence[Stored]:
        return _stored(self._consumer.poll(_POLL_MS))

    def assigned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def commit(self) -> None:
        with _refusals():
            self._consumer.commit()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._consumer.close(autocommit=False)


def _stored(polled: Mapping[Any, Sequence[Any]]) -> list[Stored]:
    return [
        Stored(
            one.partition,
            one.offset,
            Message(
                one.value,
                one.key,
                -1 if one.timestamp is None else one.timestamp,
                tuple(tuple(header) for header in one.headers),
            ),
        )
        for some in polled.values()
        for one in some
    ]


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Refused(_name(error)) from error


def _name(error: KafkaError) -> str:
    """Kafka's name of an error: the class says it in camel case."""
    words = type(error).__name__.removesuffix("Error")
    return "".join(f"_{one}" if one.isupper() else one.upper() for one in words).lstrip("_")
