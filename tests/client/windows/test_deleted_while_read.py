"""Messages that are deleted after the reading of a window began and before they were reached are an
error, in every form; others do not matter."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from horolog import (
    Admin,
    ColumnBatch,
    Consumer,
    ConsumerRecord,
    NewRecord,
    OffsetOutOfRange,
    Producer,
    blocking,
    read_window,
)
from horolog.server.broker import Broker
from horolog.testing.broker import BrokerThread, running_broker

T0 = 1_479_144_272_000

NUMBER = 6
"""Messages of each partition; their times are T0 and the milliseconds after it."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path, http_listen="off", kafka_listen="127.0.0.1:0", retention_ms=-1
    ) as started:
        yield started


@pytest.fixture(params=["native", "kafka"])
def reader_address(request: pytest.FixtureRequest, broker: Broker) -> str:
    native, kafka = broker.addresses.native, broker.addresses.kafka
    return str(native) if request.param == "native" else f"kafka://{kafka}"


Message = ConsumerRecord | ColumnBatch


async def note_partitions(messages: AsyncIterator[Message], found: list[int]) -> None:
    async for each in messages:
        if each.partition not in found:
            found.append(each.partition)


async def fill(address: str, topic: str, partitions: int = 2) -> None:
    records = [NewRecord(b"%d" % ms, None, T0 + ms) for ms in range(NUMBER)]
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic(topic, partitions=partitions)
        for partition in range(partitions):
            await producer.send_many(topic, records, partition=partition)


@pytest.mark.parametrize("from_ms", [None, T0, T0 + 2])
@pytest.mark.parametrize("in_columns", [False, True])
async def test_a_partition_that_is_still_to_be_read(
    reader_address: str, address: str, from_ms: int | None, in_columns: bool
) -> None:
    await fill(address, "t")
    found: list[int] = []
    async with Admin(address) as admin, Consumer(reader_address) as consumer:
        window = consumer.window("t", from_ms, T0 + 10)
        messages: AsyncIterator[Message] = window.columns() if in_columns else aiter(window)
        await anext(messages)
        await admin.delete_records("t", 1, 4)
        for _ in range(3):  # it stays so
            with pytest.raises(OffsetOutOfRange, match=r"t-1 .*log begins at 4"):
                await note_partitions(messages, found)
        assert set(found) <= {0}
        again = [r.offset async for r in consumer.window("t", from_ms, None, partitions=[1])]
        assert again == [4, 5]


async def test_messages_outside_of_the_window_do_not_matter(
    reader_address: str, address: str
) -> None:
    await fill(address, "t", 3)
    found: list[tuple[int, int]] = []
    async with Admin(address) as admin, Consumer(reader_address) as consumer:
        async for record in consumer.window("t", T0 + 3, T0 + 5):
            if not found:
                await admin.delete_records("t", 1, 3)
                await admin.delete_records("t", 2, 2)
            found.append((record.partition, record.offset))
    assert found == [(n, offset) for n in range(3) for offset in (3, 4)]


async def test_a_window_that_begins_before_it_is_read(reader_address: str, address: str) -> None:
    await fill(address, "t", 1)
    async with Admin(address) as admin, Consumer(reader_address) as consumer:
        window = consumer.window("t", T0, None)
        await window.begin()
        await admin.delete_records("t", 0, 4)
        with pytest.raises(OffsetOutOfRange):
            await anext(window)


async def test_a_window_that_follows(address: str) -> None:
    await fill(address, "t")
    async with Admin(address) as admin, Consumer(address, max_wait_ms=50) as consumer:
        window = consumer.window("t", T0, T0 + 10, follow=timedelta(days=9999))
        assert (await anext(window)).offset == 0
        await admin.delete_records("t", 1, 4)
        found: list[int] = []
        with pytest.raises(OffsetOutOfRange):
            await note_partitions(window, found)
        assert set(found) <= {0}


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    settings = {"kafka.listen": "127.0.0.1:0", "retention.ms": "-1"}
    with BrokerThread(tmp_path_factory.mktemp("data"), settings) as running:
        yield running


@pytest.fixture(params=["native", "kafka"])
def thread_address(request: pytest.FixtureRequest, thread: BrokerThread) -> str:
    return thread.address if request.param == "native" else f"kafka://{thread.kafka_address}"


def fill_blocking(address: str, topic: str) -> Callable[[], None]:
    """Return what deletes the messages of partition 1 but the last."""
    records = [NewRecord(b"%d" % ms, None, T0 + ms) for ms in range(NUMBER)]
    with blocking.Admin(address) as admin, blocking.Producer(address) as producer:
        admin.create_topic(topic, partitions=2)
        for partition in range(2):
            producer.send_many(topic, records, partition=partition)

    def delete() -> None:
        with blocking.Admin(address) as admin:
            admin.delete_records(topic, 1, 4)

    return delete


@pytest.mark.parametrize("in_columns", [False, True])
def test_the_blocking_form(thread: BrokerThread, thread_address: str, in_columns: bool) -> None:
    topic = f"b-{thread_address.startswith('kafka')}-{in_columns}"
    delete = fill_blocking(thread.address, topic)
    with blocking.Consumer(thread_address) as consumer:
        window = consumer.window(topic, T0, None)
        messages: Iterator[Message] = window.columns() if in_columns else iter(window)
        assert next(messages).partition == 0
        delete()
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange, match=r"-1 .*log begins at 4"):
                deque(messages, maxlen=0)


def test_a_table(
    thread: BrokerThread, thread_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    # So that the first batch is a fetch, and partition 1 is not reached yet.
    monkeypatch.setattr("horolog.client.consume.tables._FETCH_BYTES", 1000)
    monkeypatch.setattr("horolog.client.consume.tables._BYTES", 1)
    topic = f"table-{thread_address.startswith('kafka')}"
    delete = fill_blocking(thread.address, topic)
    with blocking.Producer(thread.address) as producer:
        for _ in range(20):
            producer.send(topic, bytes(1000), timestamp_ms=T0, partition=0)
    reader = read_window(thread_address, topic, T0, None)
    delete()
    with pytest.raises(OffsetOutOfRange):
        reader.read_all()
    with pytest.raises(Exception, match="only up to an error: OffsetOutOfRange"):
        reader.read_next_batch()
