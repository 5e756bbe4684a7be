"""confluent-kafka: librdkafka with its Python binding."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from .access import Access, librdkafka
from .client import (
    PLAIN,
    POLL_SECONDS,
    WAIT_SECONDS,
    Client,
    Member,
    Message,
    Refused,
    Sending,
    Stored,
    Writer,
)

_TIMESTAMP_NOT_AVAILABLE = 0


class ConfluentKafka(Client):
    name = "confluent-kafka"
    options: ClassVar[Mapping[str, str | bool]] = {}
    """More settings of every consumer and producer."""

    def __init__(self, address: str, access: Access | None = None) -> None:
        super().__init__(address, access)
        self._admin = AdminClient(self._settings({}))

    def produce(self, topic: str, messages: Sequence[Message], sending: Sending = PLAIN) -> None:
        producer = Producer(
            self._settings(
                {
                    "compression.type": sending.codec,
                    "enable.idempotence": sending.idempotent,
                    "linger.ms": 20,
                    "message.timeout.ms": WAIT_SECONDS * 1000,
                }
            )
        )
        errors: list[KafkaError] = []
        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                partition=sending.partition,
                on_delivery=lambda error, _: errors.append(error) if error else None,
                headers=list(message.headers),
                timestamp=max(message.timestamp_ms, 0),  # 0: now
            )
        if producer.flush(WAIT_SECONDS):
            raise TimeoutError(f"{topic}: no acknowledgement")
        if errors:
            raise Refused(errors[0].name())

    def consume(self, topic: str, count: int, offset: int = 0) -> list[Stored]:
        consumer = Consumer(self._settings({"group.id": "nobody", "enable.auto.commit": False}))
        consumer.assign([TopicPartition(topic, 0, offset)])
        found: list[Stored] = []
        while len(found) < count:
            found += _stored(consumer.consume(count - len(found), WAIT_SECONDS))
        consumer.close()
        return found

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[Member]:
        member = _Member(
            self._settings(
                {
                    "group.id": group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "heartbeat.interval.ms": 100,
                    "queued.max.messages.kbytes": 1024,
                }
            ),
            topic,
        )
        try:
            yield member
        finally:
            member.close()

    @contextmanager
    def writer(self, topic: str) -> Iterator[Writer]:
        yield _Writer(Producer(self._settings({"enable.idempotence": True})), topic)

    def offsets_for_times(self, topic: str, times: Sequence[int]) -> list[int | None]:
        consumer = Consumer(self._settings({"group.id": "nobody"}))
        (end,) = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS)[1:]
        found = []
        for time in times:
            (place,) = consumer.offsets_for_times([TopicPartition(topic, 0, time)], WAIT_SECONDS)
            found.append(None if place.offset in (-1, end) else place.offset)
        consumer.close()
        return found

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(settings))
        _result(self._admin.create_topics([new])[topic])

    def partitions(self, topic: str) -> int:
        topics = self._admin.list_topics(timeout=WAIT_SECONDS).topics
        return len(topics[topic].partitions) if topic in topics else 0

    def settings(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (future,) = self._admin.describe_configs([resource]).values()
        return {name: entry.value for name, entry in _result(future).items()}

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config=dict(settings))
        with warnings.catch_warnings():
            # Its other way is tried in `test_incremental`; this one is what Kafka 2.1 has.
            warnings.simplefilter("ignore", DeprecationWarning)
            (future,) = self._admin.alter_configs([resource]).values()
        _result(future)

    def delete_topic(self, topic: str) -> None:
        _result(self._admin.delete_topics([topic])[topic])

    def _settings(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "broker.address.family": "v4",
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            **librdkafka(self.access),
            **self.options,
            **more,
        }


class ConfluentKafkaAs09(ConfluentKafka):
    """Told that the broker is a Kafka 0.9: message format v0 and requests of that time."""

    name = "confluent-kafka as of 0.9"
    options: ClassVar[Mapping[str, str | bool]] = {
        "api.version.request": False,
        "broker.version.fallback": "0.9.0",
    }


class _Writer(Writer):
    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._errors: list[KafkaError] = []

    def write(self, value: bytes) -> None:
        self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._errors.append(error)

    def finish(self) -> None:
        if self._producer.flush(WAIT_SECONDS) or self._errors:
            raise TimeoutError(f"not acknowledged: {self._errors}")


class _Member(Member):
    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])
        self._open = True

    def poll(self) -> Sequence[Stored]:
        return _stored(self._consumer.consume(1000, POLL_SECONDS))

    def assigned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            raise Refused(error.args[0].name()) from error

    def close(self) -> None:
        if self._open:
            self._open = False
            self._consumer.close()


def _stored(polled: Sequence[Any]) -> list[Stored]:
    found = []
    for one in polled:
        error = one.error()
        if error is not None and not error.retriable() and error.code() >= 0:
            raise KafkaException(error)
        if error is not None:
            continue
        kind, timestamp = one.timestamp()
        message = Message(
            one.value(),
            one.key(),
            -1 if kind == _TIMESTAMP_NOT_AVAILABLE else timestamp,
            tuple(one.headers() or ()),
        )
        found.append(Stored(one.partition(), one.offset(), message))
    return found


def _result(future: Any) -> Any:
    try:
        return future.result(WAIT_SECONDS)
    except KafkaException as error:
        raise Refused(error.args[0].name()) from error
