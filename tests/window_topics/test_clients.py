"""Kafka's clients read a window by its name, unchanged: exactly its messages, then the end, then
late messages as they come."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

import horolog
from horolog import NewRecord
from horolog.testing.broker import BrokerThread

HOUR_MS = 3_600_000
AT_14 = 1_479_132_000_000
WINDOW = "20161114T14Z..1h"
AFTER_MS = [-1, 5, HOUR_MS, HOUR_MS - 1, -HOUR_MS, 0, 2 * HOUR_MS, 7, 9 * HOUR_MS]
"""Of messages of each set, from 14:00 on."""
INSIDE = [1, 3, 5, 7]
SETS = 40
WITHIN_S = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    data: Path = tmp_path_factory.mktemp("clients") / "data"
    settings = {"kafka.listen": "127.0.0.1:0", "retention.ms": "-1"}
    with BrokerThread(data, settings) as running:
        yield running


def send(server: BrokerThread, topic: str, *sets: list[int], codec: Any = "none") -> None:
    """A set for each list of times, with the offset in it as its value."""

    async def run() -> None:
        async with horolog.Producer(server.address, compression=codec) as producer:
            for times in sets:
                records = [
                    NewRecord(f"{number}".encode(), b"k", AT_14 + after_ms)
                    for number, after_ms in enumerate(times)
                ]
                await producer.send_many(topic, records)

    asyncio.run(run())


@pytest.fixture(scope="module")
def clicks(server: BrokerThread) -> str:
    for codec in ("none", "gzip", "lz4", "zstd"):
        send(server, "clicks", *[AFTER_MS] * (SETS // 4), codec=codec)
    return f"clicks..{WINDOW}"


EXPECTED = [9 * number + inside for number in range(SETS) for inside in INSIDE]
"""The offsets of the window's messages."""


Kcat = Callable[..., list[int]]


@pytest.fixture
def kcat(require_program: Callable[[str], str]) -> Kcat:
    """`kcat(server, *options)` is the offsets that it prints."""
    program = require_program("kcat")

    def run(server: BrokerThread, *options: str) -> list[int]:
        return printed_offsets([program, "-b", str(server.kafka_address), *options])

    return run


def printed_offsets(command: list[str]) -> list[int]:
    said = subprocess.run(
        [*command, "-q", "-f", "%o\n"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    )
    return [int(line) for line in said.stdout.splitlines()]


def test_kcat_reads_a_window_to_its_end(server: BrokerThread, clicks: str, kcat: Kcat) -> None:
    assert kcat(server, "-C", "-t", clicks, "-e") == EXPECTED


def test_kcat_reads_between_times_of_a_window(
    server: BrokerThread, clicks: str, kcat: Kcat
) -> None:
    options = ("-C", "-t", clicks, "-e", "-o", f"s@{AT_14 + 1}")
    assert kcat(server, *options) == EXPECTED[0:]
    options = ("-C", "-t", clicks, "-e", "-o", "40")
    assert kcat(server, *options) == [offset for offset in EXPECTED if offset >= 40]
    options = ("-C", "-t", clicks, "-e", "-o", "-20")
    assert kcat(server, *options) == [
        offset for offset in EXPECTED if offset >= EXPECTED[-1] + 1 - 20
    ]


def test_kcat_as_a_group(server: BrokerThread, clicks: str, kcat: Kcat) -> None:
    options = ("-X", "auto.offset.reset=earliest", "-e", "-G", "by-kcat", clicks)
    assert sorted(kcat(server, *options)) == EXPECTED
    assert kcat(server, *options) == []


def test_confluent_kafka_and_late_messages(server: BrokerThread) -> None:
    send(server, "late", AFTER_MS)
    consumer = LibrdkafkaConsumer(
        {
            "bootstrap.servers": server.kafka_address,
            "group.id": "g",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        }
    )
    try:
        consumer.assign([LibrdkafkaPartition(f"late..{WINDOW}", 0, 0)])
        assert until_the_end(consumer) == INSIDE
        send(server, "late", [HOUR_MS, HOUR_MS + 1], [2, HOUR_MS])
        assert until_the_end(consumer) == [11]
        low, high = consumer.get_watermark_offsets(LibrdkafkaPartition(f"late..{WINDOW}", 0))
        assert (low, high) == (0, 12)
    finally:
        consumer.close()


def until_the_end(consumer: LibrdkafkaConsumer) -> list[int]:
    found: list[int] = []
    while True:
        message = consumer.poll(WITHIN_S)
        assert message is not None, f"no end after {found}"
        error = message.error()
        if error is None:
            offset = message.offset()
            assert offset is not None
            found.append(offset)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return found


def test_confluent_kafka_waits_at_an_empty_window(server: BrokerThread) -> None:
    send(server, "empty", [HOUR_MS] * 3)
    consumer = LibrdkafkaConsumer(
        {"bootstrap.servers": server.kafka_address, "group.id": "g", "enable.partition.eof": True}
    )
    try:
        consumer.assign([LibrdkafkaPartition(f"empty..{WINDOW}", 0, 0)])
        assert until_the_end(consumer) == []
        send(server, "empty", [0])
        assert until_the_end(consumer) == [3]
    finally:
        consumer.close()


def test_kafka_python(server: BrokerThread, clicks: str) -> None:
    partition = KafkaPythonPartition(clicks, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=server.kafka_address, group_id=None, auto_offset_reset="earliest"
    )
    try:
        consumer.assign([partition])
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        (end,) = consumer.end_offsets([partition]).values()
        assert end == EXPECTED[-1] + 1
        consumer.seek_to_beginning(partition)
        found: list[int] = []
        while consumer.position(partition) < end:
            for messages in consumer.poll(1000).values():
                found += [message.offset for message in messages]
        assert found == EXPECTED
        found_at = consumer.offsets_for_times({partition: AT_14 + 6})
        assert found_at[partition].offset == 3
    finally:
        consumer.close()


async def test_aiokafka(server: BrokerThread, clicks: str) -> None:
    consumer = AIOKafkaConsumer(
        clicks,
        bootstrap_servers=server.kafka_address,
        group_id="by-aiokafka",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        partition = TopicPartition(clicks, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        found: list[int] = []
        async with asyncio.timeout(WITHIN_S):
            while len(found) < len(EXPECTED):
                message = await consumer.getone()
                found.append(message.offset)
        assert found == EXPECTED
        assert await consumer.position(partition) == end
        await consumer.commit()
        assert await consumer.committed(partition) == end
    finally:
        await consumer.stop()


def test_no_window_is_listed(server: BrokerThread, clicks: str) -> None:
    consumer = LibrdkafkaConsumer({"bootstrap.servers": server.kafka_address, "group.id": "g"})
    try:
        assert not [name for name in consumer.list_topics(timeout=WITHIN_S).topics if ".." in name]
        named = consumer.list_topics(clicks, timeout=WITHIN_S).topics[clicks]
        assert named.error is None
        assert list(named.partitions) == [0]
    finally:
        consumer.close()
