"""Filling the brokers of these tests."""

from collections.abc import Iterable, Mapping

from horolog import blocking
from horolog.protocol.records.messages.sets import NewRecord
from horolog.testing.broker import BrokerThread


def create(
    broker: BrokerThread,
    topic: str,
    partitions: int = 1,
    settings: Mapping[str, str] | None = None,
) -> None:
    with blocking.Admin(broker.address) as admin:
        admin.create_topic(
            topic, partitions=partitions, settings={"retention.ms": "-1", **(settings or {})}
        )


def send(
    broker: BrokerThread,
    topic: str,
    times_ms: Iterable[int | None],
    *,
    partition: int = 0,
    value: str = "message of {}",
) -> None:
    """One message for each time, in this order; None has no time."""
    with blocking.Producer(broker.address, check_units=False, stamp_missing=False) as producer:
        for time_ms in times_ms:
            record = NewRecord(
                value.format(time_ms).encode(), None, -1 if time_ms is None else time_ms
            )
            producer.send_many(topic, [record], partition=partition)


def commit(broker: BrokerThread, name: str, topic: str, partition: int, offset: int) -> None:
    with blocking.Admin(broker.address) as admin:
        admin.commit_position(name, topic, partition, offset)
