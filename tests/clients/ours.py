"""Horolog's own client, in the form that clients of Kafka have in these tests."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from horolog import HorologError, Mechanism, Security
from horolog.blocking import Consumer, Producer

from .access import Access
from .client import PLAIN, POLL_SECONDS, Client, Member, Message, Refused, Sending, Stored, Writer
from .steps import Step


class Horolog(Client):
    """Over Kafka's protocol."""

    name = "horolog"
    scheme: ClassVar[str] = "kafka+tls"
    untried = frozenset(Step) - {Step.NONE, Step.GZIP, Step.MID_BATCH, Step.GROUP, Step.REBALANCE}

    def __init__(self, address: str, access: Access | None = None) -> None:
        super().__init__(address, access)
        assert access is not None
        self._security = Security(
            ca=str(access.ca),
            mechanism=None if access.mechanism is None else Mechanism(access.mechanism),
            user=access.user or None,
            password=access.password or None,
            token=access.token or None,
            certificate=None if access.certificate is None else str(access.certificate),
            key=None if access.key is None else str(access.key),
        )

    @property
    def _server(self) -> str:
        return f"{self.scheme}://{self.address}"

    def produce(self, topic: str, messages: Sequence[Message], sending: Sending = PLAIN) -> None:
        codec: Any = sending.codec
        producer = Producer(self._server, security=self._security, compression=codec)
        with _refusals(), producer:
            sent = [
                producer.enqueue(
                    topic,
                    message.value,
                    key=message.key,
                    partition=sending.partition,
                    timestamp_ms=message.timestamp_ms if message.timestamp_ms >= 0 else None,
                )
                for message in messages
            ]
            producer.flush()
            for one in sent:
                one.result()

    def consume(self, topic: str, count: int, offset: int = 0) -> list[Stored]:
        with _refusals(), Consumer(self._server, security=self._security) as consumer:
            consumer.assign(topic, 0)
            consumer.seek(topic, 0, offset)
            found: list[Stored] = []
            while len(found) < count:
                found += _stored(consumer.fetch())
        return found[:count]

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[Member]:
        consumer = Consumer(self._server, security=self._security)
        with _refusals(), consumer:
            consumer.subscribe(topic, group=group, heartbeat_interval_ms=100)
            yield _Member(consumer)

    def writer(self, topic: str) -> AbstractContextManager[Writer]:
        raise NotImplementedError


class HorologNative(Horolog):
    """Over Horolog's own protocol."""

    name = "horolog, its own protocol"
    scheme = "tls"


class _Member(Member):
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def poll(self) -> Sequence[Stored]:
        return _stored(self._consumer.fetch(max_wait_ms=int(POLL_SECONDS * 1000)))

    def assigned(self) -> set[int]:
        return {partition for _, partition in self._consumer.assignment}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except HorologError as error:
        raise Refused(type(error).__name__) from error


def _stored(fetched: Sequence[Any]) -> list[Stored]:
    return [
        Stored(one.partition, one.offset, Message(one.value, one.key, one.timestamp_ms))
        for one in fetched
    ]
