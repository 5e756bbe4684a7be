"""aiokafka: a client for asyncio, on an event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from .access import Access, aio_kafka
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

T = TypeVar("T")


class AioKafka(Client):
    name = "aiokafka"

    def __init__(self, address: str, access: Access | None = None) -> None:
        super().__init__(address, access)
        self._settings = {"bootstrap_servers": address, **aio_kafka(access)}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def produce(self, topic: str, messages: Sequence[Message], sending: Sending = PLAIN) -> None:
        self.run(self._produce(topic, messages, sending))

    async def _produce(self, topic: str, messages: Sequence[Message], sending: Sending) -> None:
        producer = AIOKafkaProducer(
            **self._settings,
            compression_type=None if sending.codec == "none" else sending.codec,
            enable_idempotence=sending.idempotent,
            acks="all",
            linger_ms=20,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    message.value,
                    message.key,
                    partition=sending.partition,
                    timestamp_ms=None if message.timestamp_ms == -1 else message.timestamp_ms,
                    headers=list(message.headers),
                )
                for message in messages
            ]
            await asyncio.gather(*sent)
        except KafkaError as error:
            raise Refused(_name(error)) from error
        finally:
            await producer.stop()

    def consume(self, topic: str, count: int, offset: int = 0) -> list[Stored]:
        return self.run(self._consume(topic, count, offset))

    async def _consume(self, topic: str, count: int, offset: int) -> list[Stored]:
        consumer = AIOKafkaConsumer(**self._settings)
        await consumer.start()
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, offset)
        found: list[Stored] = []
        while len(found) < count:
            found += _stored(
                await consumer.getmany(
                    timeout_ms=WAIT_SECONDS * 1000, max_records=count - len(found)
                )
            )
        await consumer.stop()
        return found

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[Member]:
        member = _Member(self.run, self.run(self._joined(group, topic)))
        try:
            yield member
        finally:
            member.close()

    async def _joined(self, group: str, topic: str) -> Any:
        consumer = AIOKafkaConsumer(
            topic,
            **self._settings,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
        )
        await consumer.start()
        return consumer

    @contextmanager
    def writer(self, topic: str) -> Iterator[Writer]:
        async def started() -> Any:
            producer = AIOKafkaProducer(
                **self._settings, enable_idempotence=True, retry_backoff_ms=50
            )
            await producer.start()
            return producer

        producer = self.run(started())
        try:
            yield _Writer(self.run, producer, topic)
        finally:
            self.run(producer.stop())

    def offsets_for_times(self, topic: str, times: Sequence[int]) -> list[int | None]:
        async def search() -> list[int | None]:
            consumer = AIOKafkaConsumer(**self._settings)
            await consumer.start()
            place = TopicPartition(topic, 0)
            found = [(await consumer.offsets_for_times({place: time}))[place] for time in times]
            await consumer.stop()
            return [None if one is None else one.offset for one in found]

        return self.run(search())

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(settings))
        response = self._administer(lambda admin: admin.create_topics([new]))
        _check(response.topic_errors[0][1])

    def partitions(self, topic: str) -> int:
        if topic not in self._administer(lambda admin: admin.list_topics()):
            return 0
        (found,) = self._administer(lambda admin: admin.describe_topics([topic]))
        return len(found["partitions"])

    def settings(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = self._administer(lambda admin: admin.describe_configs([resource]))
        (found,) = response.resources
        return {entry[0]: entry[1] for entry in found[4]}

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))
        (response,) = self._administer(lambda admin: admin.alter_configs([resource]))
        _check(response.resources[0][0])

    def delete_topic(self, topic: str) -> None:
        response = self._administer(lambda admin: admin.delete_topics([topic]))
        _check(response.topic_error_codes[0][1])

    def _administer(self, ask: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        async def asked() -> Any:
            admin = AIOKafkaAdminClient(**self._settings)
            await admin.start()
            try:
                return await ask(admin)
            finally:
                await admin.close()

        return self.run(asked())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the loop do it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * WAIT_SECONDS)


class _Writer(Writer):
    def __init__(
        self, run: Callable[[Coroutine[Any, Any, Any]], Any], producer: Any, topic: str
    ) -> None:
        self._run = run
        self._producer = producer
        self._topic = topic
        self._sent: list[Any] = []

    def write(self, value: bytes) -> None:
        self._sent.append(self._run(self._producer.send(self._topic, value, partition=0)))

    def finish(self) -> None:
        async def acknowledged() -> None:
            await asyncio.gather(*self._sent)

        self._run(acknowledged())


class _Member(Member):
    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], consumer: Any) -> None:
        self._run = run
        self._consumer = consumer
        self._open = True

    def poll(self) -> Sequence[Stored]:
        return _stored(self._run(self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))))

    def assigned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def commit(self) -> None:
        try:
            self._run(self._consumer.commit())
        except KafkaError as error:
            raise Refused(_name(error)) from error

    def close(self) -> None:
        if self._open:
            self._open = False
            self._run(self._consumer.stop())


def _stored(polled: Mapping[Any, Sequence[Any]]) -> list[Stored]:
    return [
        Stored(
            one.partition,
            one.offset,
            Message(
                one.value,
                one.key,
                -1 if one.timestamp is None else one.timestamp,
                tuple(one.headers),
            ),
        )
        for some in polled.values()
        for one in some
    ]


def _check(code: int) -> None:
    if code:
        raise Refused(f"error {code}")


def _name(error: KafkaError) -> str:
    """Kafka's name of an error: the class says it in camel case."""
    words = type(error).__name__.removesuffix("Error")
    return "".join(f"_{one}" if one.isupper() else one.upper() for one in words).lstrip("_")
